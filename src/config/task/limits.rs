//! A task's limits and clocks against its policy's: stricter is fine, looser is refused, and both places are named.

use super::super::check::refused;
use super::super::error::ConfigError;
use super::super::policy::{LoadedPolicy, RawBudget};
use crate::domain::budget::{Budget, LimitKind, Limits};
use crate::domain::ids::StepKey;
use crate::domain::machine::Word as _;
use crate::domain::quantity::Millis;
use crate::yaml::{Document, Seg};

/// The task's own limits, none of them looser than the policy's (R-R4).
pub(super) fn budget(doc: &Document, raw: &RawBudget, policy: &LoadedPolicy) -> Result<Budget, ConfigError> {
    let own = raw.over(Budget::default());
    let theirs = &policy.policy.budgets;
    stricter(doc, "attempt", &own.attempt, &theirs.attempt, policy)?;
    stricter(doc, "task", &own.task, &theirs.task, policy)?;
    Ok(own)
}

fn stricter(
    doc: &Document,
    scope: &'static str,
    own: &Limits,
    theirs: &Limits,
    policy: &LoadedPolicy,
) -> Result<(), ConfigError> {
    let Some(kind) = own.looser_than(theirs).first().copied() else { return Ok(()) };
    let path: [Seg<'_>; 3] = ["budget".into(), scope.into(), kind.word().into()];
    let place = policy.place(&["budgets".into(), scope.into(), kind.word().into()]);
    let (own, theirs) = (amount(kind, own), amount(kind, theirs));
    let message = format!("budget `{scope}.{kind}` {own} is looser than the policy's {theirs} ({place})");
    Err(refused(doc, &path, message))
}

fn amount(kind: LimitKind, limits: &Limits) -> String {
    let n = limits.of(kind).unwrap_or_default();
    match kind {
        LimitKind::Time => Millis(n).to_string(),
        LimitKind::Cost => {
            let decimals = format!("{:06}", n % 1_000_000);
            let short = decimals.trim_end_matches('0');
            format!("{}.{short:0<2}", n / 1_000_000)
        }
        _ => n.to_string(),
    }
}

/// A step's own clock lies between a call's and the attempt's (R-R5).
pub(super) fn step_timeout(
    doc: &Document,
    at: &[Seg<'_>],
    key: &StepKey,
    timeout: Millis,
    policy: &LoadedPolicy,
) -> Result<(), ConfigError> {
    let clocks = policy.policy.timeouts;
    let place = |clock: &'static str| policy.place(&["timeouts".into(), clock.into()]);
    let message = if timeout >= clocks.attempt {
        let place = place("attempt");
        format!(
            "timeout {timeout} of step `{key}` must be shorter than the policy's `attempt` {} ({place})",
            clocks.attempt
        )
    } else if timeout <= clocks.call {
        format!(
            "timeout {timeout} of step `{key}` must be longer than the policy's `call` {} ({})",
            clocks.call,
            place("call")
        )
    } else {
        return Ok(());
    };
    Err(refused(doc, at, message))
}
