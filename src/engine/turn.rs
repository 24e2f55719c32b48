//! Waiting for a turn: for a concurrency group, for room on this machine, for a provider. The record says whose turn it is;
//! this looks at it at kind intervals, sees whose processes are gone, and wakes up for signals and cancels meanwhile.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use super::error::EngineError;
use super::host::{Inbox, Message, Who, now};
use super::observer::{Notice, Observer};
use crate::domain::breaker::Breaker;
use crate::domain::ids::RunId;
use crate::domain::lease::Liveness;
use crate::domain::quantity::{BootMs, Millis, UtcMs};
use crate::domain::record::Identity;
use crate::domain::turn::{Queue, Turn};
use crate::process::identity::liveness;
use crate::process::signals::StopSignal;
use crate::store::{Asked, Place, Store, Turned};

/// How often the database is asked whether it changed. Asking costs microseconds.
const LOOK: Duration = Duration::from_millis(100);
/// How often the queue is looked at even if it did not: a process that dies changes nothing in it.
const LOOK_AT_PROCESSES: Millis = Millis(500);
/// How often somebody who waits gives a sign of life, for those who cannot see its process.
const SIGN_OF_LIFE: Millis = Millis::secs(10);

/// What is wanted.
pub struct Wanted<'a> {
    /// The queue.
    pub queue: Queue,
    /// The run.
    pub run: &'a RunId,
    /// The agent, for a provider.
    pub agent: Option<&'a str>,
    /// How many at a time.
    pub limit: Option<u64>,
    /// True when a person wants it tried before the provider's time is over.
    pub insists: bool,
    /// How long a trial counts at most.
    pub trial: Millis,
    /// True when a turn that another process has for this run does not count: it has lost the run.
    pub takes_over: bool,
    /// After this time without a sign of life a process of another boot or machine counts as gone.
    pub silent_after: Millis,
}

/// Who waits.
pub struct Waiting<'a> {
    /// The connection.
    pub store: &'a mut Store,
    /// Who asked.
    pub who: &'a Who,
    /// What wakes up.
    pub inbox: &'a Inbox,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
    /// What came meanwhile and is for whoever waits: steps and actions go on beside the wait.
    pub aside: &'a mut Vec<Message>,
}

/// What came of it.
#[derive(Debug)]
pub enum Came {
    /// The turn is taken, until it is left.
    Taken(u64),
    /// Somebody who was asked about the wait said no: the place was left.
    GaveUp,
    /// A signal; the place was left.
    Signal(StopSignal),
    /// Somebody asked for a cancel; the place was left.
    Canceled,
    /// Another process has taken the run over.
    LeaseLost,
}

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// So many come first.
    Queue(u64),
    /// The provider is left alone.
    Shut(Box<Breaker>),
}

/// Whether somebody goes on waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Wait,
    /// It does not.
    GiveUp,
}

/// Waits until it is the turn of `wanted`, as long as `ask` says so. `ask` is called at each look that finds something in
/// the way.
pub fn wait(
    waiting: &mut Waiting<'_>,
    wanted: &Wanted<'_>,
    ask: &mut dyn FnMut(&Store, &Hindrance) -> Result<Verdict, EngineError>,
) -> Result<Came, EngineError> {
    let holder = super::run::this_process()?;
    let mut absences = Absences { silent_after: wanted.silent_after, seen: BTreeMap::new() };
    let gone = absences.gone(&waiting.store.turns_in(&wanted.queue)?);
    let Place { turn, next } = waiting.store.queue_up(&wanted.asked(&holder, &gone), &waiting.who.context())?;
    let mut line = Line { turn, told: None, signed: now().boot, looked: now().boot, version: None };
    let came = line.stand(waiting, wanted, &holder, (next, &mut absences), ask);
    match &came {
        Ok(Came::Taken(_)) => {}
        // What failed may have left the place behind: it goes with the process at the latest.
        Ok(_) | Err(_) => waiting.store.leave_turn(line.turn, &waiting.who.context())?,
    }
    came
}

impl Wanted<'_> {
    fn asked<'b>(&'b self, holder: &'b Identity, gone: &'b [u64]) -> Asked<'b> {
        let Self { queue, run, agent, limit, insists, trial, takes_over, .. } = self;
        Asked {
            queue,
            run,
            agent: *agent,
            holder,
            limit: *limit,
            insists: *insists,
            trial: *trial,
            gone,
            takes_over: *takes_over,
        }
    }
}

/// A place in a queue while it is waited in.
struct Line {
    turn: u64,
    told: Option<Hindrance>,
    signed: BootMs,
    looked: BootMs,
    version: Option<i64>,
}

impl Line {
    fn stand(
        &mut self,
        waiting: &mut Waiting<'_>,
        wanted: &Wanted<'_>,
        holder: &Identity,
        (mut next, absences): (Turned, &mut Absences),
        ask: &mut dyn FnMut(&Store, &Hindrance) -> Result<Verdict, EngineError>,
    ) -> Result<Came, EngineError> {
        loop {
            let hindrance = match next {
                Turned::Taken => return Ok(Came::Taken(self.turn)),
                Turned::Shut(breaker) => Hindrance::Shut(breaker),
                Turned::Queue { ahead } => Hindrance::Queue(ahead),
                Turned::Due => Hindrance::Queue(0),
                // Somebody took this process for dead: it begins again at the end of the queue.
                Turned::Lost => {
                    let gone = absences.gone(&waiting.store.turns_in(&wanted.queue)?);
                    let asked = Asked { takes_over: false, ..wanted.asked(holder, &gone) };
                    let place = waiting.store.queue_up(&asked, &waiting.who.context())?;
                    self.turn = place.turn;
                    next = place.next;
                    continue;
                }
            };
            if ask(waiting.store, &hindrance)? == Verdict::GiveUp {
                return Ok(Came::GaveUp);
            }
            self.tell(waiting.observer, wanted, &hindrance);
            if let Some(woken) = self.rest(waiting, &hindrance)? {
                return Ok(woken);
            }
            let gone = absences.gone(&waiting.store.turns_in(&wanted.queue)?);
            let asked = wanted.asked(holder, &gone);
            next = waiting.store.look_at_turn(self.turn, &asked, now().utc)?;
            // Only who has something to write takes the write lock.
            if next == Turned::Due || !gone.is_empty() {
                next = waiting.store.take_turn(self.turn, &asked, &waiting.who.context())?;
            }
        }
    }

    /// Until there may be something new to see, or somebody calls.
    fn rest(&mut self, waiting: &mut Waiting<'_>, hindrance: &Hindrance) -> Result<Option<Came>, EngineError> {
        let due = match hindrance {
            Hindrance::Shut(breaker) => breaker.until,
            Hindrance::Queue(_) => UtcMs(i64::MAX),
        };
        loop {
            match waiting.inbox.receiver.recv_timeout(LOOK) {
                Ok(Message::Signal(signal)) => return Ok(Some(Came::Signal(signal))),
                Ok(Message::CancelRequested) => return Ok(Some(Came::Canceled)),
                Ok(Message::LeaseLost) => return Ok(Some(Came::LeaseLost)),
                Ok(Message::RecordFails(error)) => return Err(error.into()),
                Ok(
                    message @ (Message::Child(..)
                    | Message::Carried(..)
                    | Message::Verified(..)
                    | Message::Wished(_)
                    | Message::ClockSet { .. }),
                ) => waiting.aside.push(message),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            let present = now();
            let since = |earlier: BootMs| Millis(present.boot.0.saturating_sub(earlier.0));
            if since(self.signed) >= SIGN_OF_LIFE {
                self.signed = present.boot;
                waiting.store.keep_turn(self.turn, &waiting.who.context())?;
            }
            let version = Some(waiting.store.data_version()?);
            if version != self.version || since(self.looked) >= LOOK_AT_PROCESSES || due <= present.utc {
                (self.version, self.looked) = (version, present.boot);
                return Ok(None);
            }
        }
    }

    /// Says what is waited for, once for each reason.
    fn tell(&mut self, observer: &mut dyn Observer, wanted: &Wanted<'_>, hindrance: &Hindrance) {
        if self.told.as_ref() == Some(hindrance) {
            return;
        }
        match hindrance {
            Hindrance::Shut(breaker) if breaker.trial.is_some() => {
                let what = format!("{}, which one call tries", breaker.provider);
                observer.notice(&Notice::Queued { what: &what, ahead: 1 });
            }
            Hindrance::Shut(breaker) => {
                let why = format!("{} ({}: {})", breaker.provider, breaker.code, breaker.message);
                observer.notice(&Notice::Waiting { until: breaker.until, why: &why });
            }
            Hindrance::Queue(ahead) => {
                let what = wanted.queue.what();
                observer.notice(&Notice::Queued { what: &what, ahead: *ahead });
            }
        }
        self.told = Some(hindrance.clone());
    }
}

/// Who is gone. A process of this boot is seen at once; one of another boot or machine is gone when its signs of life have
/// stood still for a whole lease by this machine's own clock (faults rule 5).
struct Absences {
    silent_after: Millis,
    seen: BTreeMap<u64, (UtcMs, BootMs)>,
}

impl Absences {
    fn gone(&mut self, turns: &[Turn]) -> Vec<u64> {
        let present = now().boot;
        let mut is_gone = |turn: &&Turn| match liveness(&turn.holder) {
            Liveness::Alive => false,
            Liveness::Dead => true,
            Liveness::OtherBoot => {
                let (seen_at, since) = *self.seen.entry(turn.seq).or_insert((turn.seen_at, present));
                if seen_at != turn.seen_at {
                    self.seen.insert(turn.seq, (turn.seen_at, present));
                    return false;
                }
                present.0.saturating_sub(since.0) >= self.silent_after.0
            }
        };
        turns.iter().filter(&mut is_gone).map(|turn| turn.seq).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quantity::BootId;
    use crate::domain::turn::TurnState;

    fn turn(seq: u64, holder: Identity, seen_at: i64) -> Turn {
        Turn {
            seq,
            queue: Queue::Runs,
            run: RunId::recorded("run_1_001"),
            agent: None,
            state: TurnState::Waiting,
            insists: false,
            holder,
            since: UtcMs(0),
            seen_at: UtcMs(seen_at),
        }
    }

    #[test]
    fn r_r8_a_dead_process_is_gone_at_once_and_one_of_another_boot_when_it_has_been_silent_for_a_lease() {
        let own = super::super::run::this_process().unwrap();
        let dead = Identity { start_ticks: own.start_ticks + 1, ..own.clone() };
        let foreign = Identity { boot_id: BootId("another".into()), ..own.clone() };
        let mut absences = Absences { silent_after: Millis::mins(60), seen: BTreeMap::new() };
        let look = |absences: &mut Absences, seen_at| {
            absences.gone(&[turn(1, own.clone(), 0), turn(2, dead.clone(), 0), turn(3, foreign.clone(), seen_at)])
        };
        assert_eq!(look(&mut absences, 5), [2]);
        // An hour without a sign of life, by this machine's own clock: whatever the wall clocks say.
        absences.silent_after = Millis(0);
        assert_eq!(look(&mut absences, 5), [2, 3]);
        assert_eq!(look(&mut absences, 6), [2], "it gave a sign of life");
    }
}
