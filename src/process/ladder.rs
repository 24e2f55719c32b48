//! The stop ladder as a value: polite signal, grace, SIGTERM, grace, SIGKILL. It is told the time and answers what to do;
//! it sends nothing itself.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::event::{Haste, StopReport};
use super::spec::{PoliteSignal, StopRule};

/// What is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Send this signal to the group.
    Signal(Signal),
    /// Kill the whole tree.
    KillTree,
}

/// How far the stopping of one child got.
#[derive(Debug, Clone)]
pub(super) struct Ladder {
    rule: StopRule,
    rung: Rung,
    deadline: Option<Instant>,
    report: StopReport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rung {
    NotAsked,
    Polite,
    Terminate,
    Kill,
}

impl PoliteSignal {
    /// The signal itself.
    pub(super) fn signal(self) -> Signal {
        match self {
            Self::Interrupt => Signal::INT,
            Self::Terminate => Signal::TERM,
        }
    }
}

impl Ladder {
    /// A child that nobody wants to stop yet.
    pub(super) fn new(rule: StopRule) -> Self {
        Self { rule, rung: Rung::NotAsked, deadline: None, report: StopReport::default() }
    }

    /// Somebody wants it to stop. Asking politely twice changes nothing; asking for haste skips the rest of the ladder.
    pub(super) fn ask(&mut self, haste: Haste, now: Instant) -> Option<Move> {
        match haste {
            Haste::Now if self.rung < Rung::Kill => Some(self.kill()),
            Haste::Polite if self.rung == Rung::NotAsked => {
                self.report.polite_sent = true;
                // For a program whose polite signal is SIGTERM, the rung above is the same one.
                let terminate = self.rule.polite == PoliteSignal::Terminate;
                self.climb(if terminate { Rung::Terminate } else { Rung::Polite }, now);
                Some(Move::Signal(self.rule.polite.signal()))
            }
            _ => None,
        }
    }

    /// The deadline has passed: the next rung.
    pub(super) fn climb_on(&mut self, now: Instant) -> Option<Move> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        self.report.escalated = true;
        match self.rung {
            Rung::Polite => {
                self.climb(Rung::Terminate, now);
                Some(Move::Signal(Signal::TERM))
            }
            _ => Some(self.kill()),
        }
    }

    /// When the next rung is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// What was done; `None` when nobody asked.
    pub(super) fn report(&self) -> Option<StopReport> {
        (self.rung != Rung::NotAsked).then_some(self.report)
    }

    fn climb(&mut self, rung: Rung, now: Instant) {
        self.rung = rung;
        self.deadline = now.checked_add(Duration::from_millis(self.rule.grace.0));
    }

    fn kill(&mut self) -> Move {
        self.rung = Rung::Kill;
        self.deadline = None;
        self.report.escalated = true;
        self.report.killed = true;
        Move::KillTree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::quantity::Millis;

    fn ladder(polite: PoliteSignal) -> Ladder {
        Ladder::new(StopRule { polite, grace: Millis(100) })
    }

    #[test]
    fn f27_each_rung_has_its_grace() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut ladder = ladder(PoliteSignal::Interrupt);
        assert_eq!(ladder.report(), None);
        assert_eq!(ladder.ask(Haste::Polite, start), Some(Move::Signal(Signal::INT)));
        assert_eq!(ladder.climb_on(after(99)), None);
        assert_eq!(ladder.climb_on(after(100)), Some(Move::Signal(Signal::TERM)));
        assert_eq!(ladder.climb_on(after(199)), None);
        assert_eq!(ladder.climb_on(after(200)), Some(Move::KillTree));
        assert_eq!(ladder.climb_on(after(999)), None);
        assert_eq!(ladder.report(), Some(StopReport { polite_sent: true, escalated: true, killed: true }));
    }

    #[test]
    fn sigterm_is_not_sent_twice() {
        let start = Instant::now();
        let mut ladder = ladder(PoliteSignal::Terminate);
        assert_eq!(ladder.ask(Haste::Polite, start), Some(Move::Signal(Signal::TERM)));
        assert_eq!(ladder.report(), Some(StopReport { polite_sent: true, escalated: false, killed: false }));
        assert_eq!(ladder.climb_on(start + Duration::from_millis(100)), Some(Move::KillTree));
    }

    #[test]
    fn f28_a_second_wish_only_makes_it_faster() {
        let start = Instant::now();
        let mut ladder = ladder(PoliteSignal::Interrupt);
        assert!(ladder.ask(Haste::Polite, start).is_some());
        assert_eq!(ladder.ask(Haste::Polite, start), None);
        assert_eq!(ladder.ask(Haste::Now, start), Some(Move::KillTree));
        assert_eq!(ladder.ask(Haste::Now, start), None);
        assert_eq!(ladder.ask(Haste::Polite, start), None);
        assert_eq!(ladder.deadline(), None);
    }
}
