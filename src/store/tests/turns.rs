//! R-R8, R-R1, R-W6: turns and breakers, with as many connections as it takes.

use std::path::Path;
use std::sync::Barrier;

use super::*;
use crate::domain::breaker::{BREAKER, Breaker, BreakerEvent, BreakerState, Cause};
use crate::domain::event::{EventKind, HOME_CHAIN};
use crate::domain::failure::{Code, Failure};
use crate::domain::machine::Word as _;
use crate::domain::policy::BreakerRules;
use crate::domain::quantity::Millis;
use crate::domain::turn::{Queue, TurnState};
use crate::store::fault::{self, CommitFault};
use crate::store::{Asked, EndedCall, StoreError, Turned};

const RULES: BreakerRules =
    BreakerRules { failures: 3, per: Millis::mins(1), open: Millis::secs(30), max: Millis::mins(10) };

/// A process of its own for each run.
fn holder(n: u64) -> Identity {
    Identity { start_ticks: n, ..process() }
}

fn acme() -> Queue {
    Queue::Provider("acme".into())
}

struct Ask {
    queue: Queue,
    run: RunId,
    holder: Identity,
    limit: Option<u64>,
    insists: bool,
    gone: Vec<u64>,
    takes_over: bool,
}

impl Ask {
    fn asked(&self) -> Asked<'_> {
        Asked {
            queue: &self.queue,
            run: &self.run,
            agent: Some("bot"),
            holder: &self.holder,
            limit: self.limit,
            insists: self.insists,
            trial: Millis::mins(20),
            gone: &self.gone,
            takes_over: self.takes_over,
        }
    }
}

impl World {
    /// Somebody who asks for the n-th run.
    fn ask(&mut self, n: u64, limit: Option<u64>) -> Ask {
        let run = self.started(&new_run(&n.to_string(), "a")).run;
        Ask { queue: acme(), run, holder: holder(n), limit, insists: false, gone: Vec::new(), takes_over: false }
    }

    fn queue_up(&mut self, ask: &Ask, at: i64) -> (u64, Turned) {
        let place = self.store.queue_up(&ask.asked(), &ctx(at)).unwrap();
        (place.turn, place.next)
    }

    fn end(&mut self, ask: &Ask, turn: u64, failure: Option<&Failure>, at: i64) {
        let call = EndedCall { provider: "acme", agent: "bot", run: &ask.run, turn, failure, rules: RULES };
        self.store.end_call(&call, &ctx(at)).unwrap();
    }

    /// A call that begins and fails.
    fn fail(&mut self, ask: &Ask, code: Code, at: i64) {
        let (turn, next) = self.queue_up(ask, at);
        assert_eq!(next, Turned::Taken);
        self.end(ask, turn, Some(&Failure::new(code, "no")), at);
    }

    fn breaker(&self) -> Breaker {
        let mut breakers = self.store.breakers().unwrap();
        assert_eq!(breakers.len(), 1);
        breakers.remove(0)
    }

    fn home_events(&self) -> Vec<EventKind> {
        self.store.chain(HOME_CHAIN).unwrap().iter().map(|e| e.kind).collect()
    }
}

/// What each of many connections gets that ask at the same instant.
fn race(path: &Path, asks: &[Ask], at: i64) -> Vec<Turned> {
    let gate = Barrier::new(asks.len());
    let one = |ask: &Ask| {
        let mut store = Store::open(path).unwrap();
        gate.wait();
        store.queue_up(&ask.asked(), &ctx(at)).unwrap().next
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = asks.iter().map(|ask| scope.spawn(move || one(ask))).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn r_r8_of_twenty_that_try_at_once_exactly_one_does() {
    let mut world = World::new();
    let first = world.ask(1, None);
    for at in 1..=3 {
        world.fail(&first, Code::NetworkTimeout, at);
    }
    let open = world.breaker();
    assert_eq!((open.state, open.cause, open.until), (BreakerState::Open, Cause::Outage, UtcMs(30_003)));
    let asks: Vec<_> = (2..22).map(|n| world.ask(n, None)).collect();
    let answers = race(&world.path(), &asks, 30_003);
    assert_eq!(answers.iter().filter(|a| **a == Turned::Taken).count(), 1, "{answers:?}");
    assert_eq!(world.breaker().state, BreakerState::HalfOpen);
    assert_eq!(world.home_events(), [EventKind::ProviderHeld, EventKind::ProviderTried]);
    world.check_chains();
}

#[test]
fn r_r8_of_twenty_at_once_as_many_get_on_as_may() {
    let mut world = World::new();
    let asks: Vec<_> = (1..21).map(|n| world.ask(n, Some(4))).collect();
    let answers = race(&world.path(), &asks, 1);
    assert_eq!(answers.iter().filter(|a| **a == Turned::Taken).count(), 4, "{answers:?}");
    let turns = world.store.turns_in(&acme()).unwrap();
    assert!(turns[..4].iter().all(|t| t.state == TurnState::Taken), "the first that came");
    assert!(turns[4..].iter().all(|t| t.state == TurnState::Waiting));
}

#[test]
fn r_r8_the_window_counts_and_a_trial_closes_or_opens_for_longer() {
    let mut world = World::new();
    let ask = world.ask(1, None);
    for at in [0, 10, 60_011, 60_012] {
        world.fail(&ask, Code::ModelTimeout, at);
    }
    assert!(world.store.breakers().unwrap().is_empty(), "the first two are out of the window");
    world.fail(&ask, Code::AgentFailed, 60_013);
    assert!(world.store.breakers().unwrap().is_empty(), "an agent's own failure does not count");
    world.fail(&ask, Code::TemporaryProviderError, 60_014);
    let open = world.breaker();
    assert_eq!((open.rounds, open.until, open.agent.as_deref()), (1, UtcMs(90_014), Some("bot")));

    let (_, shut) = world.queue_up(&ask, 90_013);
    assert!(matches!(shut, Turned::Shut(breaker) if *breaker == open));
    world.fail(&ask, Code::NetworkTimeout, 90_014);
    let again = world.breaker();
    assert_eq!((again.state, again.rounds, again.until), (BreakerState::Open, 2, UtcMs(150_014)), "twice as long");

    // A trial that says nothing about the provider: the next one tries.
    world.fail(&ask, Code::QaFailed, 150_014);
    assert_eq!((world.breaker().state, world.breaker().trial), (BreakerState::Open, None));
    let (turn, _) = world.queue_up(&ask, 150_015);
    world.store.call_answered("acme", turn, &ctx(150_016)).unwrap();
    assert!(world.store.breakers().unwrap().is_empty(), "the first answer frees it");
    world.end(&ask, turn, Some(&Failure::new(Code::ModelTimeout, "no")), 150_017);
    assert!(world.store.breakers().unwrap().is_empty(), "what led to it is forgotten: this one is the first again");
    let told: Vec<_> = world.home_events().into_iter().map(EventKind::word).collect();
    let (held, tried) = ("provider.held", "provider.tried");
    assert_eq!(told, [held, tried, held, tried, "provider.left", tried, "provider.freed"]);
    world.check_chains();
}

#[test]
fn r_r1_a_refusal_holds_every_agent_of_the_provider_for_as_long_as_it_says() {
    let mut world = World::new();
    let ask = world.ask(1, None);
    let (turn, _) = world.queue_up(&ask, 1);
    let refused = Failure { retry_after: Some(Millis::secs(5 * 86_400)), ..Failure::new(Code::RateLimit, "slow") };
    world.end(&ask, turn, Some(&refused), 1);
    let held = world.breaker();
    assert_eq!((held.agent.clone(), held.cause, held.until), (None, Cause::Limit, UtcMs(432_000_001)), "FR-G4");
    let other = world.ask(2, None);
    let asked = Asked { agent: Some("another"), ..other.asked() };
    let place = world.store.queue_up(&asked, &ctx(2)).unwrap();
    assert!(matches!(place.next, Turned::Shut(_)));
    // Of several refusals of calls that had begun before, the longest counts.
    let late = world.ask(3, None);
    world.end(&late, 99, Some(&Failure::new(Code::RateLimit, "slow")), 3);
    assert_eq!(world.breaker(), held);
    let elsewhere = Ask { queue: Queue::Provider("other".into()), ..world.ask(4, None) };
    assert_eq!(world.queue_up(&elsewhere, 4).1, Turned::Taken, "held per provider");
}

#[test]
fn fr_g2_who_insists_tries_before_the_time_is_over_and_past_those_who_wait() {
    let mut world = World::new();
    let first = world.ask(1, None);
    world.fail(&first, Code::AuthFailed, 1);
    let waiting = world.ask(2, None);
    assert!(matches!(world.queue_up(&waiting, 2).1, Turned::Shut(_)));
    let person = Ask { insists: true, ..world.ask(3, None) };
    let (turn, next) = world.queue_up(&person, 3);
    assert_eq!(next, Turned::Taken);
    world.end(&person, turn, None, 4);
    let (turn, _) = world.queue_up(&waiting, 5);
    assert_eq!(world.store.take_turn(turn, &waiting.asked(), &ctx(5)).unwrap(), Turned::Taken);
}

#[test]
fn r_r8_a_trial_of_a_dead_process_goes_to_the_next() {
    let mut world = World::new();
    let first = world.ask(1, None);
    world.fail(&first, Code::QuotaExceeded, 1);
    let (dead, next) = world.queue_up(&first, 600_001);
    assert_eq!(next, Turned::Taken);
    let second = world.ask(2, None);
    let (turn, next) = world.queue_up(&second, 600_002);
    assert!(matches!(next, Turned::Shut(_)), "one at a time");
    let second = Ask { gone: vec![dead], ..second };
    assert_eq!(world.store.look_at_turn(turn, &second.asked(), UtcMs(600_003)).unwrap(), Turned::Due);
    assert_eq!(world.store.take_turn(turn, &second.asked(), &ctx(600_003)).unwrap(), Turned::Taken);
    assert_eq!(world.breaker().trial.map(|t| t.turn), Some(turn));
    // The process was only asleep after all: its late answer frees nobody, its late failure holds nobody.
    world.end(&first, dead, None, 600_004);
    assert_eq!(world.breaker().state, BreakerState::HalfOpen);
}

#[test]
fn r_r8_a_dead_processs_place_goes_to_who_goes_on_with_its_run_and_a_living_ones_does_not() {
    let mut world = World::new();
    let (first, second, third) = (world.ask(1, Some(1)), world.ask(2, Some(1)), world.ask(3, Some(1)));
    let (taken, _) = world.queue_up(&first, 1);
    let (place, _) = world.queue_up(&second, 2);
    world.queue_up(&third, 3);
    let mut other = Ask { holder: holder(9), ..second };
    let held = world.store.queue_up(&other.asked(), &ctx(4)).unwrap_err();
    assert!(matches!(held, StoreError::Held { .. }), "{held}");
    other.gone = vec![place];
    assert_eq!(world.queue_up(&other, 5), (place, Turned::Queue { ahead: 1 }), "it keeps its place");
    // A run that was taken over: whoever lost it has no say, but comes last.
    let over = Ask { holder: holder(10), takes_over: true, gone: Vec::new(), ..other };
    let (last, next) = world.queue_up(&over, 6);
    assert_eq!((last > place, next), (true, Turned::Queue { ahead: 2 }));
    world.store.leave_turn(taken, &ctx(7)).unwrap();
    let at = |world: &World, turn, ask: &Ask| world.store.look_at_turn(turn, &ask.asked(), UtcMs(8)).unwrap();
    assert_eq!(at(&world, last, &over), Turned::Queue { ahead: 1 });
    assert_eq!(at(&world, place, &over), Turned::Lost);
}

#[test]
fn r_w6_a_group_whose_run_lost_its_holder_is_nobodys_turn() {
    use crate::domain::task::{Concurrency, WhenBusy};
    let mut world = World::new();
    let grouped = |task: &str| {
        let mut new = new_run(task, "a");
        new.inputs.spec.concurrency = Some(Concurrency { group: "main".into(), when_busy: WhenBusy::Queue });
        new
    };
    let accept = |world: &mut World, task: &str| {
        let ctx = world.ctx();
        match world.store.start_or_attach(&grouped(task), &ctx).unwrap() {
            Started::Queued { run, behind } => (run, behind),
            other => panic!("{other:?}"),
        }
    };
    let (first, behind) = accept(&mut world, "1");
    assert_eq!(behind, None);
    let (second, behind) = accept(&mut world, "2");
    assert_eq!(behind, Some(first.clone()), "the order is that of the acceptance");
    let ask = |run: &RunId| Ask {
        queue: Queue::Group("main".into()),
        run: run.clone(),
        holder: process(),
        limit: Some(1),
        insists: false,
        gone: Vec::new(),
        takes_over: false,
    };
    assert_eq!(world.queue_up(&ask(&second), 1).1, Turned::Queue { ahead: 1 });
    let (turn, next) = world.queue_up(&ask(&first), 2);
    assert_eq!(next, Turned::Taken);
    world.claim(&first, RunEvent::Start, 0).unwrap();
    // Its process dies: the turn is free, the run is still RUNNING.
    world.store.leave_turn(turn, &ctx(3)).unwrap();
    assert_eq!(world.queue_up(&ask(&second), 4).1, Turned::Queue { ahead: 1 });
    assert_eq!(world.queue_up(&ask(&first), 5).1, Turned::Queue { ahead: 1 }, "it comes after the second now");
}

#[test]
fn r_m4_every_pair_of_the_breaker_machine() {
    for state in BreakerState::ALL {
        for event in BreakerEvent::ALL {
            let mut world = World::new();
            let ask = world.ask(1, None);
            world.fail(&ask, Code::QuotaExceeded, 1);
            let before = Breaker { state: *state, ..world.breaker() };
            world.raw().execute("UPDATE breaker SET state = ?1", [state.word()]).unwrap();
            let next = Breaker { trial: None, ..before.clone() };
            let answer =
                world.store.write(&ctx(3), |w| super::super::breakers::put(w, &before, *event, next.clone(), &ask.run));
            let now: String = world.raw().query_row("SELECT state FROM breaker", (), |row| row.get(0)).unwrap();
            if let Ok(to) = BREAKER.next(*state, *event) {
                answer.unwrap();
                assert_eq!(now, to.word(), "{state} by {event}");
            } else {
                assert_eq!(answer.unwrap_err().code(), Code::InvalidState, "{state} {event}");
                assert_eq!(now, state.word());
            }
        }
    }
}

#[test]
fn f06_a_place_whose_commit_failed_is_taken_once() {
    let mut world = World::new();
    let ask = world.ask(1, Some(1));
    fault::plan([CommitFault::Kept]);
    let (turn, next) = world.queue_up(&ask, 1);
    assert_eq!((next, world.store.turns().unwrap().len()), (Turned::Taken, 1));
    fault::plan([CommitFault::Lost(rusqlite::ffi::SQLITE_IOERR_FSYNC)]);
    world.end(&ask, turn, Some(&Failure::new(Code::QuotaExceeded, "no")), 2);
    assert_eq!((world.store.turns().unwrap().len(), world.home_events().len(), fault::planned()), (0, 1, 0));
}
