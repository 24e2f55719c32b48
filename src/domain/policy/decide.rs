//! What the rules say of one effect, and which of them says it (R-P2): deny beats approve beats allow, and what no rule names
//! needs a person.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ApprovalTerms, Policy, Rule, Verdict};

/// An effect that somebody wants, as rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The type: `deploy`, `git.push` …
    pub action: String,
    /// Its attributes by name: environment, target, account, branch, amount, force …
    pub values: BTreeMap<String, Value>,
}

/// What the policy says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Goes, goes with a person's agreement, or does not go.
    pub verdict: Verdict,
    /// The rule that decided; `None` when no rule names it.
    pub rule: Option<String>,
    /// By whom and for how long, where a person must agree.
    pub terms: ApprovalTerms,
    /// The reason, in words.
    pub why: String,
}

/// Decides. Of several rules with the same verdict the first in the file is named.
pub fn decide(policy: &Policy, asked: &Asked) -> Decision {
    let fitting: Vec<&Rule> = policy.rules.iter().filter(|rule| fits(rule, asked)).collect();
    let first = |verdict: Verdict| fitting.iter().find(|rule| rule.verdict == verdict);
    let decider = [Verdict::Deny, Verdict::Approve, Verdict::Allow].into_iter().find_map(first);
    match decider {
        Some(rule) => Decision {
            verdict: rule.verdict,
            rule: Some(rule.id.clone()),
            terms: rule.approval.clone().unwrap_or_default(),
            why: format!("rule `{}` says {} {}", rule.id, rule.verdict, rule.action),
        },
        None => Decision {
            verdict: Verdict::Approve,
            rule: None,
            terms: ApprovalTerms::default(),
            why: format!("no rule names {}: a person must agree", asked.action),
        },
    }
}

fn fits(rule: &Rule, asked: &Asked) -> bool {
    let named = rule.action == "*" || rule.action == asked.action;
    named && rule.when.iter().all(|(name, wanted)| holds(wanted, asked.values.get(name)))
}

/// A condition is canonical JSON: a text, true or false, or a list of which one must fit.
fn holds(wanted: &str, value: Option<&Value>) -> bool {
    let Ok(wanted) = serde_json::from_str::<Value>(wanted) else { return false };
    match wanted {
        Value::Array(any) => any.iter().any(|one| value == Some(one)),
        one => value == Some(&one),
    }
}
