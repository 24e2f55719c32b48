//! The user's git folder is watched over a run's whole life (F81): its print is in the record before anything is executed, so
//! that a change is seen also where agentrun was killed meanwhile, or where no agent came after the one who made it.

use std::cell::RefCell;

use super::error::EngineError;
use super::held::Held;
use super::host::Host;
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::StepKey;
use crate::domain::record::RunView;
use crate::domain::step::StepState;
use crate::domain::task::WorkspaceKind;
use crate::git::{GuardPrint, Workspace, changes, tampering};
use crate::store::EventFilter;

/// The prints that the present is compared with.
pub struct Guard {
    before: GuardPrint,
    /// Of the copy's own git folder, which is the agent's to change.
    copy: GuardPrint,
    /// Harmless changes that were told already.
    told: RefCell<Vec<String>>,
}

impl Guard {
    /// Begins an attempt. What changed while the run was at rest is the user's own affair; where the holder before was lost in
    /// the middle of its attempt, its own print still counts.
    pub fn begin(host: &Host<'_>, held: &mut Held, view: &RunView, workspace: &Workspace) -> Result<Self, EngineError> {
        // A machine that failed under it leaves a step in the middle, too.
        let was_lost = view.was_taken_over() || view.steps.iter().any(|s| s.state == StepState::Running);
        let recorded = if was_lost { recorded(held)? } else { None };
        let before = if let Some(print) = recorded {
            print
        } else {
            let print = host.repo.guard()?;
            held.stage(Change::Note {
                kind: EventKind::GuardTaken,
                step: None,
                reason: "what the repository's git folder can run".to_owned(),
                body: serde_json::to_value(&print).unwrap_or_default(),
            })?;
            print
        };
        Ok(Self { before, copy: workspace.guard()?, told: RefCell::default() })
    }

    /// The failure, if something was changed that git may run, or be led elsewhere by. A person may fetch or name a branch
    /// meanwhile: that is told, once, and so is what was configured in the copy, which nothing here obeys.
    pub fn check(
        &self,
        host: &Host<'_>,
        held: &mut Held,
        workspace: &Workspace,
        step: Option<&StepKey>,
    ) -> Result<Option<Failure>, EngineError> {
        if held.inputs.spec.workspace == WorkspaceKind::Isolated {
            let own = tampering(&self.copy, &workspace.guard()?);
            self.tell(held, step, "git_config_changed", own)?;
        }
        let (dangerous, harmless): (Vec<_>, Vec<_>) =
            changes(&self.before, &host.repo.guard()?).into_iter().partition(|change| change.is_dangerous);
        let words = |changes: Vec<crate::git::Change>| changes.into_iter().map(|c| c.what).collect::<Vec<_>>();
        self.tell(held, step, "the repository's git folder changed", words(harmless))?;
        let dangerous = words(dangerous).join(", ");
        let told = || format!("the repository's git folder was changed during the run: {dangerous}");
        Ok((!dangerous.is_empty()).then(|| Failure::new(Code::GitTamper, told())))
    }

    fn tell(
        &self,
        held: &mut Held,
        step: Option<&StepKey>,
        what: &str,
        changes: Vec<String>,
    ) -> Result<(), EngineError> {
        let text = format!("{what}: {}", changes.join(", "));
        if changes.is_empty() || self.told.borrow().contains(&text) {
            return Ok(());
        }
        held.note(EventKind::WarningRaised, step, &text)?;
        self.told.borrow_mut().push(text);
        Ok(())
    }
}

/// The newest print in the record; one that cannot be read counts as none.
fn recorded(held: &Held) -> Result<Option<GuardPrint>, EngineError> {
    let filter = EventFilter {
        run: Some(held.hold.run.clone()),
        kind: Some(EventKind::GuardTaken),
        limit: Some(1),
        ..EventFilter::default()
    };
    let events = held.store().events(&filter)?;
    Ok(events.last().and_then(|event| serde_json::from_str(&event.body).ok()))
}
