//! Processes that are no workers, what the provider hands out to them, and what they leave on disk. They outlive the worker
//! that started them, and write on.

use std::collections::BTreeMap;

use agentrun::domain::failure::{Code, Failure};
use agentrun::domain::ids::StepKey;
use agentrun::domain::outcome::ProcessEnd;
use agentrun::domain::quantity::Millis;
use agentrun::domain::record::Identity;
use agentrun::domain::task::StepKind;

use crate::chance::Chance;

/// One execution of a step.
pub(crate) type Execution = (StepKey, u32);

/// A child of a worker.
#[derive(Debug)]
pub(crate) struct Child {
    pub identity: Identity,
    pub execution: Execution,
    pub kind: StepKind,
    /// The worker that started it.
    pub owner: usize,
    /// Its worker had been replaced before it started.
    pub late: bool,
    /// Model calls that it still wants to make.
    pub calls: u64,
    /// A response on its way: handed out, not yet written down.
    pub in_flight: Option<u64>,
    pub ends: Ends,
    /// It was asked to stop.
    pub stopping: bool,
}

/// How a child ends when nobody stops it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    Well,
    /// With a failure of this code; with a Retry-After, where a provider says one.
    Badly(Code, Option<Millis>),
    Never,
}

/// What an agent wrote down as it went: on disk, whoever reads it.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    pub responses: Vec<u64>,
    pub finished: bool,
}

/// What the provider handed out, response by response, in its own books.
#[derive(Debug, Default)]
pub(crate) struct Provider {
    pub ledger: Vec<Response>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub execution: Execution,
    pub number: u64,
    pub tokens: u64,
    pub fate: Fate,
}

/// What became of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its agent wrote it down.
    Written,
    /// Its agent was killed before it wrote it down: nobody on this machine can know of it.
    Lost,
    /// A worker that had been replaced had started this agent: evidence, never state.
    Late,
}

impl Provider {
    /// Hands a response out.
    pub(crate) fn call(&mut self, child: &Child, tokens: u64) {
        let same = self.ledger.iter().filter(|r| r.execution == child.execution).count();
        let (execution, number) = (child.execution.clone(), same as u64);
        self.ledger.push(Response { execution, number, tokens, fate: Fate::Lost });
    }

    /// The newest response of an execution was written down.
    pub(crate) fn written(&mut self, child: &Child) {
        let fate = if child.late { Fate::Late } else { Fate::Written };
        if let Some(newest) = self.ledger.iter_mut().rev().find(|r| r.execution == child.execution) {
            newest.fate = fate;
        }
    }

    pub(crate) fn tokens(&self, fate: Fate) -> u64 {
        self.ledger.iter().filter(|r| r.fate == fate).map(|r| r.tokens).sum()
    }
}

pub(crate) type Transcripts = BTreeMap<Execution, Transcript>;

/// How the child of a step will fare.
pub(crate) fn fortune(kind: StepKind, chance: &mut Chance) -> (u64, Ends) {
    let told = |ms| Ends::Badly(Code::RateLimit, Some(ms));
    if kind == StepKind::Agent {
        let ends = [
            (12, Ends::Well),
            (2, Ends::Badly(Code::WorkerCrash, None)),
            (1, Ends::Badly(Code::TemporaryProviderError, None)),
            (1, told(Millis::secs(7))),
            (1, told(Millis::mins(9))),
            (1, Ends::Badly(Code::NoResult, None)),
            (1, Ends::Never),
        ];
        return (chance.between(1, 5), chance.weighted(&ends).unwrap());
    }
    let ends = [(12, Ends::Well), (6, Ends::Badly(Code::QaFailed, None)), (1, Ends::Never)];
    (0, chance.weighted(&ends).unwrap())
}

/// The end of a process as a failure, where an agent's own words do not say more.
pub(crate) fn failure_of(end: &ProcessEnd, ends: Ends) -> Option<Failure> {
    let code = match end {
        ProcessEnd::Exited { code: 0 } => return None,
        ProcessEnd::TimedOut { .. } => Code::ModelTimeout,
        ProcessEnd::OverBudget => Code::BudgetExceeded,
        ProcessEnd::Canceled => Code::Canceled,
        ProcessEnd::Interrupted => Code::Interrupted,
        ProcessEnd::LeaseLost => Code::Fenced,
        _ => {
            let Ends::Badly(code, retry_after) = ends else { return Some(Failure::new(Code::WorkerCrash, "gone")) };
            return Some(Failure { retry_after, ..Failure::new(code, "it failed") });
        }
    };
    Some(Failure::new(code, end.to_string()))
}
