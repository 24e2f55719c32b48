//! What a run uses, counted as it happens, and the limits that stop it (R-R4). The sums always come from the committed
//! record, so that what was counted before a crash still counts.

use std::collections::BTreeSet;

use super::error::EngineError;
use super::held::Held;
use crate::domain::agent_event::Metered;
use crate::domain::budget::{Breach, Budget, Certainty, Estimate, LimitKind, Price, Scope, Usage};
use crate::domain::change::MeterItem;
use crate::domain::event::{Event, EventKind};
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::quantity::Millis;
use crate::store::EventFilter;

/// The sums and the limits.
#[derive(Debug, Clone)]
pub struct Meter {
    /// The limits that hold: the policy's and the task's, the stricter of both.
    pub budget: Budget,
    /// This attempt.
    pub attempt: Usage,
    /// The task since its last verified success.
    pub task: Usage,
    /// What was warned of in this run already, by an earlier holder too.
    warned: BTreeSet<String>,
}

impl Meter {
    /// Reads the sums.
    pub fn load(held: &Held) -> Result<Self, EngineError> {
        let (attempt, task, warned) = (Usage::default(), Usage::default(), warned(held)?);
        let mut meter = Self { budget: held.inputs.budget(), attempt, task, warned };
        meter.refresh(held)?;
        Ok(meter)
    }

    /// The limits of which the policy's share is used, each once in a run.
    pub fn new_warnings(&mut self, permille: u32, active: Millis) -> Vec<Breach> {
        let more = Usage { active, ..Usage::default() };
        let (attempt, task) = (self.attempt.plus(&more), self.task.plus(&more));
        let near = self.budget.attempt.nearly(Scope::Attempt, &attempt, permille);
        let near = near.into_iter().chain(self.budget.task.nearly(Scope::Task, &task, permille));
        near.filter(|near| self.warned.insert(limit_name(near.scope, near.kind))).collect()
    }

    /// Reads the sums again, after something was recorded.
    pub fn refresh(&mut self, held: &Held) -> Result<(), EngineError> {
        let view = held.store().view(&held.hold.run)?;
        self.attempt = view.attempt_usage;
        self.task = view.task_usage;
        Ok(())
    }

    /// The limit that was crossed, `active` being time that is not recorded yet.
    pub fn breach(&self, active: Millis) -> Option<Breach> {
        let more = Usage { active, ..Usage::default() };
        let attempt = self.budget.attempt.breach(Scope::Attempt, &self.attempt.plus(&more));
        attempt.or_else(|| self.budget.task.breach(Scope::Task, &self.task.plus(&more)))
    }

    /// The limit that leaves no room for another agent call. Attempts are decided when one is opened, not here.
    pub fn exhausted(&self) -> Option<Breach> {
        let spent = |b: &Breach| b.kind != LimitKind::Attempts;
        let attempt = self.budget.attempt.exhausted(Scope::Attempt, &self.attempt).filter(spent);
        let mut task_limits = self.budget.task;
        task_limits.attempts = None;
        attempt.or_else(|| task_limits.exhausted(Scope::Task, &self.task))
    }

    /// How long something may still be active before a time limit strikes.
    pub fn time_left(&self) -> Option<Millis> {
        let left = |limit: Option<Millis>, used: Millis| limit.map(|l| Millis(l.0.saturating_sub(used.0)));
        let both = [left(self.budget.attempt.time, self.attempt.active), left(self.budget.task.time, self.task.active)];
        both.into_iter().flatten().min()
    }

    /// How long something may still be active before a time limit is worth a warning; `None` once it is.
    pub fn time_to_warning(&self, permille: u32) -> Option<Millis> {
        let scopes =
            [(Scope::Attempt, &self.budget.attempt, &self.attempt), (Scope::Task, &self.budget.task, &self.task)];
        let open = scopes.into_iter().filter(|(scope, ..)| !self.warned.contains(&limit_name(*scope, LimitKind::Time)));
        let left = open.filter_map(|(_, limits, used)| {
            let near = u128::from(limits.time?.0) * u128::from(permille) / 1000;
            Some(Millis(u64::try_from(near).unwrap_or(u64::MAX).saturating_sub(used.active.0)))
        });
        left.min()
    }

    /// Every kind that is limited and how far it is used: what an agent is told in its prompt.
    pub fn limited(&self) -> Vec<(Scope, LimitKind, u64, u64)> {
        let scopes =
            [(Scope::Attempt, &self.budget.attempt, &self.attempt), (Scope::Task, &self.budget.task, &self.task)];
        let rows = scopes.into_iter().flat_map(|(scope, limits, used)| {
            LimitKind::ALL.iter().filter_map(move |k| Some((scope, *k, limits.of(*k)?, used.of(*k))))
        });
        rows.collect()
    }
}

/// `task.tokens`: how a warning is known again.
pub fn limit_name(scope: Scope, kind: LimitKind) -> String {
    format!("{scope}.{kind}")
}

/// The limits that this run has warned of.
fn warned(held: &Held) -> Result<BTreeSet<String>, EngineError> {
    let filter = EventFilter {
        run: Some(held.hold.run.clone()),
        kind: Some(EventKind::WarningRaised),
        ..EventFilter::default()
    };
    let limit = |event: &Event| {
        let body: serde_json::Value = serde_json::from_str(&event.body).ok()?;
        body["limit"].as_str().map(ToOwned::to_owned)
    };
    Ok(held.store().events(&filter)?.iter().filter_map(limit).collect())
}

/// A model response as a counted thing; the cost is the agent's own word, else the policy's price. Agents keep their names
/// apart only within one conversation, so a step's name is part of each.
pub fn response(step: &StepKey, metered: &Metered, price: Option<&Price>) -> MeterItem {
    let priced = price.map(|p| p.cost_micros(metered.input, metered.cached, metered.output));
    MeterItem {
        name: format!("{step}/response/{}", metered.response),
        input: metered.input,
        cached: metered.cached.min(metered.input),
        output: metered.output,
        cost_micros: metered.cost_micros.or(priced),
        tool_calls: 0,
        certainty: metered.certainty,
    }
}

/// What an execution cost beyond what anybody told. Looked at again later, it takes the place of what was thought before:
/// nothing, once everything is known.
pub fn untold(step: &StepKey, execution: u32, untold: Option<Estimate>, price: Option<&Price>) -> MeterItem {
    let Estimate { input, cached, output, .. } = untold.unwrap_or_default();
    let priced = untold.and(price).map(|p| p.cost_micros(input, cached, output));
    MeterItem {
        name: format!("{step}/untold/{execution}"),
        input,
        cached,
        output,
        cost_micros: priced,
        tool_calls: 0,
        certainty: Certainty::Estimated,
    }
}

/// A tool call as a counted thing.
pub fn tool_call(step: &StepKey, id: &str) -> MeterItem {
    MeterItem {
        name: format!("{step}/call/{id}"),
        input: 0,
        cached: 0,
        output: 0,
        cost_micros: None,
        tool_calls: 1,
        certainty: Certainty::Told,
    }
}
