//! First come, first served, over all processes (R-R8, R-W6): a turn is a durable place in a queue, first waiting, then
//! taken. Three things are queued for: the machine's room for runs, a concurrency group, a provider. Who is dead is found
//! outside; a turn of a dead process is removed, or taken over by whoever goes on with its run.

use std::fmt;

use serde::Serialize;

use super::breaker::{Breaker, BreakerState, Passage};
use super::ids::RunId;
use super::quantity::UtcMs;
use super::record::Identity;
use crate::words;

words! {
    /// Where a turn stands.
    pub enum TurnState {
        /// In the queue.
        Waiting = "WAITING",
        /// It is this one's turn, until it leaves.
        Taken = "TAKEN",
    }
}

/// What is queued for. A run asks for a group first, then for room, then for providers, each while it keeps the ones
/// before: as everybody asks in this order, nobody waits in a circle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Queue {
    /// A concurrency group: one at a time.
    Group(String),
    /// Room for runs on this machine.
    Runs,
    /// Calls to a provider.
    Provider(String),
}

impl Queue {
    /// Back from its text ([`fmt::Display`]); `None` for one of a newer database.
    pub fn recorded(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "runs" => Some(Self::Runs),
            Some(("group", name)) => Some(Self::Group(name.to_owned())),
            Some(("provider", name)) => Some(Self::Provider(name.to_owned())),
            _ => None,
        }
    }
}

impl Queue {
    /// The provider, where it is one's.
    pub fn provider(&self) -> Option<&str> {
        match self {
            Self::Provider(name) => Some(name),
            Self::Group(_) | Self::Runs => None,
        }
    }

    /// What it is for, in words that follow "waits for".
    pub fn what(&self) -> String {
        match self {
            Self::Group(group) => format!("its turn in the group {group}"),
            Self::Runs => "room for a run on this machine".to_owned(),
            Self::Provider(provider) => format!("its turn at {provider}"),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(name) => write!(f, "group:{name}"),
            Self::Runs => f.write_str("runs"),
            Self::Provider(name) => write!(f, "provider:{name}"),
        }
    }
}

impl Serialize for Queue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A place in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// Its number: a smaller one came first. Never given out twice.
    pub seq: u64,
    /// The queue.
    pub queue: Queue,
    /// The run that wants to go on.
    pub run: RunId,
    /// The agent that is to be called (queues of providers).
    pub agent: Option<String>,
    /// Where it stands.
    pub state: TurnState,
    /// True when a person wants the call tried before the provider's time is over.
    pub insists: bool,
    /// The process that waits or works.
    pub holder: Identity,
    /// When it came.
    pub since: UtcMs,
    /// Its last sign of life.
    pub seen_at: UtcMs,
}

/// What somebody in the queue does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next<'b> {
    /// It is its turn.
    Go,
    /// It is its turn, as the one trial of a provider.
    Try,
    /// Others come first.
    Queue {
        /// How many, those whose turn it is included.
        ahead: u64,
    },
    /// The provider is left alone for the present.
    Shut(&'b Breaker),
    /// Its place is gone.
    Lost,
}

/// What a run waits for, as far as the record shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Its place.
    pub turn: Turn,
    /// How many have theirs before it.
    pub ahead: u64,
    /// What keeps it from its provider.
    pub breaker: Option<Breaker>,
}

/// What a run waits for; `turns` are those of all queues.
pub fn wait_of(turns: &[Turn], breakers: &[Breaker], run: &RunId) -> Option<Wait> {
    let turn = turns.iter().find(|t| t.run == *run && t.state == TurnState::Waiting)?;
    let ahead = turns.iter().filter(|t| t.queue == turn.queue && t.seq < turn.seq).count() as u64;
    let about = |b: &&Breaker| {
        matches!(&turn.queue, Queue::Provider(name) if *name == b.provider)
            && b.state != BreakerState::Closed
            && (b.agent.is_none() || b.agent == turn.agent)
    };
    let breaker = breakers.iter().filter(about).max_by_key(|b| b.until).cloned();
    Some(Wait { turn: turn.clone(), ahead, breaker })
}

/// Decides for one of the turns of a queue, given in their order. `limit` is how many may be taken at a time; `passage` says
/// what each meets at the breakers. Who is shut out is passed by those who are not.
pub fn next<'b>(turns: &[Turn], own: u64, limit: Option<u64>, passage: impl Fn(&Turn) -> Passage<'b>) -> Next<'b> {
    let Some(turn) = turns.iter().find(|t| t.seq == own) else { return Next::Lost };
    let own_passage = match passage(turn) {
        Passage::Shut(breaker) => return Next::Shut(breaker),
        other => other,
    };
    let waiting = |t: &&Turn| t.state == TurnState::Waiting && t.seq < own;
    let before: Vec<_> = turns.iter().filter(waiting).map(&passage).collect();
    let free = |p: &&Passage<'b>| !matches!(p, Passage::Shut(_));
    let taken = turns.iter().filter(|t| t.state == TurnState::Taken && t.seq != own).count();
    let ahead = (taken + before.iter().filter(free).count()) as u64;
    // Of those that could be the one trial the first is: the others wait for what becomes of it.
    let tried_before = own_passage == Passage::Trial && before.contains(&Passage::Trial);
    match own_passage {
        _ if tried_before || limit.is_some_and(|limit| ahead >= limit) => Next::Queue { ahead },
        Passage::Trial => Next::Try,
        _ => Next::Go,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quantity::BootId;
    use proptest::prelude::*;

    fn turn(seq: u64, state: TurnState) -> Turn {
        Turn {
            seq,
            queue: Queue::Provider("openai".into()),
            run: RunId::recorded(format!("run_{seq}_001")),
            agent: None,
            state,
            insists: false,
            holder: Identity { pid: 1, start_ticks: seq, boot_id: BootId("boot".into()) },
            since: UtcMs(0),
            seen_at: UtcMs(0),
        }
    }

    fn free(_: &Turn) -> Passage<'static> {
        Passage::Free
    }

    #[test]
    fn a_queue_is_written_and_read_back() {
        for queue in [Queue::Runs, Queue::Group("a:b".into()), Queue::Provider("openai".into())] {
            assert_eq!(Queue::recorded(&queue.to_string()), Some(queue));
        }
        assert_eq!(Queue::recorded("something"), None);
    }

    #[test]
    fn r_r8_who_came_first_goes_first_and_no_more_than_the_limit() {
        use TurnState::{Taken, Waiting};
        let turns = [turn(1, Taken), turn(2, Waiting), turn(3, Waiting), turn(4, Waiting)];
        let at = |own, limit| next(&turns, own, Some(limit), free);
        assert_eq!(at(2, 1), Next::Queue { ahead: 1 });
        assert_eq!((at(2, 2), at(3, 2), at(4, 2)), (Next::Go, Next::Queue { ahead: 2 }, Next::Queue { ahead: 3 }));
        assert_eq!(next(&turns, 4, None, free), Next::Go, "without a limit nobody waits");
        assert_eq!(next(&turns, 9, None, free), Next::Lost);
    }

    #[test]
    fn r_r8_of_several_that_could_try_the_first_does() {
        let turns = [turn(1, TurnState::Waiting), turn(2, TurnState::Waiting)];
        let trial = |_: &Turn| Passage::Trial;
        assert_eq!(next(&turns, 1, None, trial), Next::Try);
        assert_eq!(next(&turns, 2, None, trial), Next::Queue { ahead: 1 });
    }

    proptest! {
        /// Whatever the queue looks like: letting everybody in who may go fills the limit with the first that came, no more.
        #[test]
        fn r_r8_the_limit_holds_and_nobody_is_passed(taken in 0_u64..5, waiting in 0_u64..12, limit in 1_u64..6) {
            let mut turns: Vec<_> = (0..taken).map(|n| turn(n, TurnState::Taken)).collect();
            turns.extend((taken..taken + waiting).map(|n| turn(n, TurnState::Waiting)));
            // In whatever order they look: from the last to the first is the worst.
            for _ in 0..waiting {
                for own in (taken..taken + waiting).rev() {
                    let is_waiting = turns.iter().any(|t| t.seq == own && t.state == TurnState::Waiting);
                    if is_waiting && next(&turns, own, Some(limit), free) == Next::Go {
                        turns.iter_mut().find(|t| t.seq == own).unwrap().state = TurnState::Taken;
                    }
                }
            }
            let states: Vec<_> = turns.iter().map(|t| t.state).collect();
            let count = states.iter().filter(|s| **s == TurnState::Taken).count() as u64;
            prop_assert_eq!(count, (taken + waiting).min(limit.max(taken)));
            let first_waiting = states.iter().position(|s| *s == TurnState::Waiting).unwrap_or(states.len());
            prop_assert!(states[first_waiting..].iter().all(|s| *s == TurnState::Waiting));
        }
    }
}
