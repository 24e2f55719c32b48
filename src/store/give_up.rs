//! Ends a run whose record is not whole: nothing can be built on it. Only after a person asked for the records to be recovered.

use serde_json::json;

use super::Store;
use super::approvals;
use super::calls::{Context, Hold};
use super::changes::{self, RunMove};
use super::claim;
use super::error::{Result, StoreError};
use super::rows;
use super::step::{self, Held};
use super::write::Fact;
use crate::domain::change::StepMove;
use crate::domain::event::EventKind;
use crate::domain::failure::Failure;
use crate::domain::ids::RunId;
use crate::domain::record::RunRecord;
use crate::domain::run::{RUN, RunEvent};
use crate::domain::step::{STEP, StepEvent};

impl Store {
    /// Moves the run to CANCELED for this reason, with its open steps and its open attempt; one that has ended stays as it is
    /// and gets a remark. Whoever held it is fenced off.
    pub fn give_up(&mut self, run: &RunId, why: &Failure, ctx: &Context) -> Result<RunRecord> {
        self.write(ctx, |w| {
            let found = claim::find(w, run)?;
            let hold = Hold { run: run.clone(), attempt: found.attempt, fence: found.fence + 1 };
            let fact = |kind, body| Fact { reason: Some(&why.message), ..claim::fact(&hold, kind, body) };
            w.run("UPDATE run SET fence = ?2 WHERE seq = ?1", (found.seq, rows::int(hold.fence)))?;
            w.append(&fact(EventKind::RecordsRecovered, json!({ "code": why.code })))?;
            // A dead letter is no final state, but nothing cancels it either.
            if RUN.next(found.status, RunEvent::Cancel).is_err() {
                return Ok(());
            }
            claim::lose_attempt(w, &found, &hold)?;
            let held = Held::of(&found, &hold);
            for key in step::keys_in(w, &held, STEP.sources(StepEvent::Cancel))? {
                step::move_step(w, &held, &StepMove::new(&key, StepEvent::Cancel))?;
            }
            let by = RunMove { event: RunEvent::Cancel, failure: Some(why), retry_at: None };
            let body = changes::move_run(w, found.seq, found.status, &by)?;
            w.append(&fact(EventKind::RunMoved, body))?;
            approvals::void_of_run(w, run)
        })?;
        self.find_run(run)?.ok_or_else(|| StoreError::no_run(run))
    }
}
