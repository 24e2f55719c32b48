//! What the holder of a run writes: a list of changes, all of them or none, each with its audit event. The fence is
//! checked first, in the same transaction (R-R7).

use serde_json::{Value, json};

use super::Store;
use super::calls::{Context, Hold, Recorded};
use super::changes;
use super::claim::{self, Found, fact, fenced};
use super::error::Result;
use super::step::Held;
use super::write::{Fact, Writer};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};

impl Store {
    /// Records what happened. A holder that has been replaced gets [`super::StoreError::Fenced`], and what it wanted to
    /// write is kept as evidence in the run's chain; a change that the state does not allow refuses all of them.
    pub fn record(&mut self, hold: &Hold, changes: &[Change], ctx: &Context) -> Result<Recorded> {
        self.write_or_refuse(ctx, |w| {
            let run = claim::find(w, &hold.run)?;
            if run.fence != hold.fence {
                keep_as_evidence(w, hold, &run, changes)?;
                return Ok(Err(fenced(hold, &run)));
            }
            let mut target = Held::of(&run, hold);
            for change in changes {
                changes::apply(w, &mut target, change)?;
            }
            let chain = w.head(hold.run.as_str())?;
            Ok(Ok(Recorded { chain, status: target.status, cancel_requested: run.cancel_requested }))
        })
    }
}

/// What a holder that was replaced had learned: evidence for reconciling, never state (R-R7).
fn keep_as_evidence(w: &mut Writer<'_>, hold: &Hold, found: &Found, changes: &[Change]) -> Result<()> {
    let attempted: Vec<_> = changes.iter().map(evidence).collect();
    let body = json!({
        "code": Code::Fenced, "fence": hold.fence, "held_by": found.fence, "attempted": attempted,
    });
    let reason = Some("the writer no longer holds the run");
    let fence = Some(found.fence);
    w.append(&Fact { fence, reason, ..fact(hold, EventKind::WriteFenced, body) })
}

fn evidence(change: &Change) -> Value {
    match change {
        Change::Run { event, failure, .. } => json!({ "run": event, "code": code(failure.as_ref()) }),
        Change::Phase(event) => json!({ "phase": event }),
        Change::Attempt { event, failure } => json!({ "attempt": event, "code": code(failure.as_ref()) }),
        Change::Step(moved) => json!({
            "step": moved.step, "event": moved.event, "code": code(moved.failure.as_ref()),
            "execution": moved.ended.as_ref().map(|ended| &ended.end),
            "active_ms": moved.ended.as_ref().map(|ended| ended.active.0),
            "checkpoint": moved.checkpoint.as_ref().map(|reached| &reached.name),
            "commit": moved.checkpoint.as_ref().and_then(|reached| reached.commit.as_ref()),
        }),
        Change::Child { step, child } => json!({ "child": child, "step": step }),
        Change::Session { step, session, .. } => json!({ "session": session, "step": step }),
        Change::Usage { step, items, active } => {
            json!({ "usage": items.len(), "step": step, "active_ms": active.0 })
        }
        Change::Artifact(kept) => json!({ "artifact": kept.path, "sha256": kept.sha256.hex() }),
        Change::Snapshot { commit, step } => json!({ "snapshot": commit, "step": step }),
        Change::CloseLedger => json!({ "ledger": "close" }),
        Change::Inputs(_) => json!({ "inputs": "replace" }),
        Change::UseApproval { approval, .. } => json!({ "approval": approval }),
        Change::Note { kind, step, reason, .. } => json!({ "note": kind, "step": step, "reason": reason }),
    }
}

fn code(failure: Option<&Failure>) -> Option<Code> {
    failure.map(|failure| failure.code)
}
