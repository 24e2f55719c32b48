//! What is going on. Read-only: creates nothing, writes nothing, takes no lock of git.

use super::error::OpsError;
use super::find;
use super::follow;
use super::place::Place;
use super::show::{self, Shown};
use crate::domain::plan::meaning::{Meaning, MeaningInput, meaning};
use crate::domain::policy::Leases;
use crate::domain::record::RunSummary;
use crate::engine::host::now;
use crate::store::{RunFilter, Store};

/// Which runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// Open ones and the newest 20.
    Overview,
    /// Every one.
    All,
    /// Dead letters.
    Dead,
    /// One run, or the runs of one task.
    Named(String),
}

/// A run in a list, and what its state means.
#[derive(Debug)]
pub struct Line {
    /// The run.
    pub summary: RunSummary,
    /// What its state means.
    pub meaning: Meaning,
}

/// The runs, newest first.
pub fn list(place: &Place, which: &Which) -> Result<Vec<Line>, OpsError> {
    let store = place.records()?;
    Ok(summaries(store.as_ref(), which)?.into_iter().map(line).collect())
}

/// The same with everything below them, for JSON.
pub fn views(place: &Place, which: &Which) -> Result<Vec<Shown>, OpsError> {
    let store = place.records()?;
    let runs = summaries(store.as_ref(), which)?;
    let Some(store) = store else { return Ok(Vec::new()) };
    runs.into_iter().map(|s| show::of(place, &store, store.view(&s.run.id)?)).collect()
}

fn summaries(store: Option<&Store>, which: &Which) -> Result<Vec<RunSummary>, OpsError> {
    let filter = match which {
        Which::Named(name) => return named(store, name),
        Which::Overview => RunFilter::Overview { newest: 20 },
        Which::All => RunFilter::All,
        Which::Dead => RunFilter::Dead,
    };
    store.map_or(Ok(Vec::new()), |store| Ok(store.runs(&filter)?))
}

fn named(store: Option<&Store>, name: &str) -> Result<Vec<RunSummary>, OpsError> {
    let run = find::run(store, name)?;
    let Some(store) = store else { return Ok(Vec::new()) };
    let by_task = run.task.folded() == name.to_ascii_lowercase();
    let runs = store.runs(&RunFilter::Task(run.task.clone()))?;
    Ok(runs.into_iter().filter(|s| by_task || s.run.id == run.id).collect())
}

fn line(summary: RunSummary) -> Line {
    let meaning = meaning(&MeaningInput {
        run: &summary.run,
        holding: follow::holding(&summary.run),
        now: now().utc,
        // The run's own policy is not read for a list; a lease of another length only changes when STALE is said.
        silent_after: Leases::default().ttl,
        step: summary.step.as_ref(),
    });
    Line { summary, meaning }
}
