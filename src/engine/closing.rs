//! What stands in a run's folder: kept files, the manifest, and the reports, each drawn from the committed record.

use super::error::EngineError;
use super::held::Held;
use super::host::{Host, now};
use super::keep::write;
use super::workspace::{BRANCH_PIN, START_PIN};
use crate::artifacts::run_dir::{Execution, RunDir, StepFile};
use crate::artifacts::{manifest_file, transcript};
use crate::domain::change::Change;
use crate::domain::event::EventKind;
use crate::domain::failure::Code;
use crate::domain::lease::Holding;
use crate::domain::manifest::Manifest;
use crate::domain::plan::meaning::{Meaning, MeaningInput, meaning, stands_at};
use crate::domain::record::{ArtifactRecord, ArtifactType, RunView};
use crate::domain::step::StepState;
use crate::domain::task::StepKind;
use crate::report::action_json::Keys;
use crate::report::input::{FileChange, PatchText, ReportInput, StepTail};
use crate::report::run_json::Extras;
use crate::report::{html, junit, markdown, run_json};
use crate::store::EventFilter;

/// How much of a patch and of a log a report shows.
const PATCH_SHOWN: usize = 256 << 10;
const TAIL_SHOWN: u64 = 8 << 10;

/// Writes the manifest as the record stands (R-S4).
pub fn write_manifest(host: &Host<'_>, held: &Held) -> Result<(), EngineError> {
    let view = held.store().view(&held.hold.run)?;
    Ok(manifest_file::write(&host.home.run_dir(&held.hold.run)?, &Manifest::of(&view))?)
}

/// Writes report.md, report.html, result.json and junit.xml, and records them.
pub fn write_reports(host: &Host<'_>, held: &mut Held) -> Result<(), EngineError> {
    let view = held.store().view(&held.hold.run)?;
    let dir = host.home.run_dir(&held.hold.run)?;
    for (kind, name, text) in rendered(host, held, &dir, &view)? {
        let kept = write(&dir, name, text.as_bytes())?;
        held.stage(Change::Artifact(ArtifactRecord {
            kind,
            path: kept.path,
            sha256: kept.sha256,
            size: kept.size,
            step: None,
            attempt: held.hold.attempt,
        }))?;
    }
    held.commit()
}

type Rendered = Vec<(ArtifactType, &'static str, String)>;

fn rendered(host: &Host<'_>, held: &Held, dir: &RunDir, view: &RunView) -> Result<Rendered, EngineError> {
    let events = held.store().events(&EventFilter { run: Some(view.run.id.clone()), ..EventFilter::default() })?;
    let (changes, patch) = changes(host, view)?;
    let tails = tails(dir, view)?;
    let warnings = warnings(&events);
    let meaning = meaning_of(view);
    let limits = held.inputs.budget();
    let input = ReportInput {
        view,
        meaning: &meaning,
        changes: &changes,
        patch: patch.as_ref(),
        events: &events,
        tails: &tails,
        limits: &limits,
        warnings: &warnings,
    };
    let branch = host.repo.pinned(view.run.id.as_str(), BRANCH_PIN)?.map(|_| format!("agentrun/{}", view.run.id));
    let extras =
        Extras { via: None, meaning: &meaning, branch: branch.as_deref(), warnings: &warnings, keys: Keys::Hashed };
    let result = serde_json::to_string_pretty(&run_json::run_json(view, &extras)).unwrap_or_default();
    let junit = junit::junit(&input).map_err(|e| EngineError::failed(Code::Internal, e.to_string()))?;
    Ok(vec![
        (ArtifactType::Report, "report.md", markdown::markdown(&input)),
        (ArtifactType::Report, "report.html", html::html(&input)),
        (ArtifactType::Result, "result.json", result),
        (ArtifactType::Junit, "junit.xml", junit),
    ])
}

/// What a run at rest means.
fn meaning_of(view: &RunView) -> Meaning {
    meaning(&MeaningInput {
        run: &view.run,
        holding: Holding::Free,
        now: now().utc,
        silent_after: view.inputs.policy.leases.ttl,
        step: stands_at(view.run.status, &view.steps),
        wait: None,
    })
}

/// Remarks of the log that a reader should see.
fn warnings(events: &[crate::domain::event::Event]) -> Vec<String> {
    let told = events.iter().filter(|e| e.kind == EventKind::WarningRaised);
    let mut warnings: Vec<String> = told.filter_map(|e| e.reason.clone()).collect();
    warnings.dedup();
    warnings
}

fn changes(host: &Host<'_>, view: &RunView) -> Result<(Vec<FileChange>, Option<PatchText>), EngineError> {
    let start = host.repo.pinned(view.run.id.as_str(), START_PIN)?;
    let (Some(start), Some(tip)) = (start, &view.run.snapshot) else { return Ok((Vec::new(), None)) };
    if start == *tip {
        return Ok((Vec::new(), None));
    }
    let changes = host.repo.changes(&start, tip)?.into_iter().map(file_change).collect();
    let patch = host.repo.patch(&start, tip)?;
    let shown = &patch[..patch.len().min(PATCH_SHOWN)];
    let text = PatchText {
        path: "artifacts/changes.patch".to_owned(),
        text: String::from_utf8_lossy(shown).into_owned(),
        cut: shown.len() < patch.len(),
    };
    Ok((changes, Some(text)))
}

fn file_change(change: crate::git::FileChange) -> FileChange {
    use crate::git::ChangeKind as Found;
    use crate::report::input::ChangeKind as Shown;
    let kind = match change.kind {
        Found::Add => Shown::Added,
        Found::Modify => Shown::Modified,
        Found::Delete => Shown::Deleted,
        Found::Type => Shown::Mode,
    };
    let lines = |n: usize| (!change.binary).then_some(n as u64);
    FileChange { kind, added: lines(change.added), removed: lines(change.removed), path: change.path }
}

/// The ends of the output of steps that did not go well, newest execution.
fn tails(dir: &RunDir, view: &RunView) -> Result<Vec<StepTail>, EngineError> {
    let mut tails = Vec::new();
    for step in view.steps.iter().filter(|s| s.state == StepState::Failed && s.kind != StepKind::Agent) {
        let nth = view.executions.iter().filter(|e| e.step == step.key && e.attempt == step.attempt).count();
        let nth = u32::try_from(nth.max(1)).unwrap_or(1);
        for file in [StepFile::Stdout, StepFile::Stderr] {
            let execution = Execution { attempt: step.attempt, step: &step.key, nth };
            let path = dir.step_file(execution, file);
            if !path.exists() {
                continue;
            }
            let tail = transcript::tail(&path, TAIL_SHOWN)?;
            let path = RunDir::step_file_name(execution, file);
            tails.push(StepTail { step: step.key.clone(), path, text: tail.text, cut: tail.cut });
        }
    }
    Ok(tails)
}
