//! What each type of side effect is and what becomes of it (R-A20): its class, its clocks, how often it is tried, how long it is
//! remembered, what a person has to do with it. Whatever a policy leaves out takes the most careful value, and is named.

use std::collections::BTreeMap;

use serde::Serialize;

use super::decide::{Asked, Decision, decide};
use super::{ActionClocks, ActionType, Keep, Policy, SendLimit};
use crate::domain::machine::Word as _;
use crate::words;

words! {
    /// What kind of work it is for whoever waits for it.
    pub enum ActionClass {
        /// It changes nothing.
        Read = "read",
        /// It is done within the time that a person waits for an answer.
        QuickEffect = "quick_effect",
        /// It takes longer than an answer; its state is asked.
        SlowEffect = "slow_effect",
        /// It goes on by itself at the other side, and is looked at from time to time.
        LongJob = "long_job",
    }
}

/// How often an action is sent where the policy does not say. Only what is known to have had no effect is sent again, under the
/// same key.
const CAREFUL_TRIES: u64 = 3;

/// What holds for one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KindTerms {
    /// The type.
    pub kind: ActionType,
    /// Its class.
    pub class: ActionClass,
    /// Its clocks.
    pub clocks: ActionClocks,
    /// What makes two requests the same.
    pub key: String,
    /// Tries at most, and only where it is proved that nothing happened.
    pub tries: u64,
    /// Sends at most, if the policy limits them.
    pub sends: Option<SendLimit>,
    /// How long its record is kept; `None` is without end.
    pub retention: Option<Keep>,
    /// What the rules say of it with no attribute told: the strictest that can happen.
    pub approval: Decision,
    /// What happens when nobody knows whether it happened.
    pub unknown: &'static str,
    /// What the policy does not say, and what holds instead.
    pub missing: Vec<Missing>,
}

/// Something that the policy leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The key that would say it.
    pub key: String,
    /// The careful value that holds instead.
    pub instead: &'static str,
}

impl ActionType {
    /// Its class. One that nothing is known of counts as slow: nobody takes silence for an answer.
    pub fn class(self) -> ActionClass {
        match self {
            Self::Notification | Self::Webhook | Self::PullRequest | Self::FeatureFlag => ActionClass::QuickEffect,
            Self::Export | Self::Generic => ActionClass::SlowEffect,
            Self::Deploy | Self::Rollback | Self::Migration => ActionClass::LongJob,
        }
    }

    fn unknown(self) -> &'static str {
        match self {
            Self::Deploy | Self::Rollback | Self::Migration => {
                "asked by the step's `status` or the contract's query; never executed again by itself; without either, a person says"
            }
            _ => {
                "asked by the contract's query; sent again by itself only under the same key with `dedupe: key`; without a query, \
                 a person says"
            }
        }
    }
}

impl Policy {
    /// How often an action of this type is tried at most.
    pub fn tries(&self, kind: ActionType) -> u64 {
        self.retry.per.get(kind.word()).map_or(CAREFUL_TRIES, |ceiling| ceiling.attempts)
    }

    /// What holds for a type.
    pub fn terms(&self, kind: ActionType) -> KindTerms {
        let asked = Asked { action: kind.word().to_owned(), values: BTreeMap::new() };
        let approval = decide(self, &asked);
        let (sends, retention) = (Some(self.send_limit(kind)), self.retention.get(kind.word()).copied());
        let has_budget = [kind.word(), "default"].iter().any(|name| self.send_budget.contains_key(*name));
        let gaps = [
            (self.actions.types.contains_key(&kind), format!("actions.{kind}"), "the clocks of `actions` hold"),
            (
                self.retry.per.contains_key(kind.word()),
                format!("retry.per.{kind}"),
                "sent three times at most, and again only when nothing happened",
            ),
            (has_budget, format!("send_budget.{kind}"), "three sends to one target in five minutes, then a person"),
            (
                retention.is_some(),
                format!("retention.{kind}"),
                "its record answers an equal request for seven days, that of a deployment for ever",
            ),
            (approval.rule.is_some(), format!("a rule for {kind}"), NO_RULE),
        ];
        let missing = gaps.into_iter().filter(|(there, ..)| !there);
        KindTerms {
            kind,
            class: kind.class(),
            clocks: self.actions.types.get(&kind).copied().unwrap_or(self.actions.clocks),
            key: kind.key_template(),
            tries: self.tries(kind),
            sends,
            retention,
            approval,
            unknown: kind.unknown(),
            missing: missing.map(|(_, key, instead)| Missing { key, instead }).collect(),
        }
    }
}

const NO_RULE: &str = "a person must agree; without a policy file it is denied";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::policy::{Ceiling, Verdict};

    #[test]
    fn r_a20_what_is_missing_is_named_and_careful() {
        let policy = Policy { version: "v1".to_owned(), ..Policy::default() };
        for kind in ActionType::ALL {
            let terms = policy.terms(*kind);
            assert_eq!((terms.tries, terms.approval.verdict, terms.missing.len()), (3, Verdict::Approve, 5), "{kind}");
            assert!(terms.key.starts_with(kind.word()) && !terms.unknown.is_empty());
        }
        let mut told = policy;
        told.retry.per.insert("export".into(), Ceiling { attempts: 4 });
        told.send_budget.insert("default".into(), SendLimit { max: 3, per: crate::domain::quantity::Millis::mins(5) });
        let terms = told.terms(ActionType::Export);
        assert_eq!((terms.tries, terms.sends.map(|s| s.max), terms.missing.len()), (4, Some(3), 3));
    }
}
