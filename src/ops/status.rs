//! What is going on. Read-only: creates nothing, writes nothing, takes no lock of git.

use std::collections::BTreeSet;

use super::error::OpsError;
use super::find;
use super::follow;
use super::place::Place;
use super::queue;
use super::show::{self, Shown};
use crate::domain::breaker::Breaker;
use crate::domain::lease::Holding;
use crate::domain::plan::meaning::{Meaning, MeaningInput, meaning};
use crate::domain::policy::Leases;
use crate::domain::record::RunSummary;
use crate::domain::run::RunStatus;
use crate::domain::turn::{Queue, Turn, TurnState, wait_of};
use crate::engine::host::now;
use crate::report::providers::ProviderLine;
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
    let summaries = summaries(place, store.as_ref(), which)?;
    let Some(store) = store else { return Ok(Vec::new()) };
    let (turns, breakers) = (store.turns()?, store.breakers()?);
    Ok(summaries.into_iter().map(|summary| line(summary, &turns, &breakers)).collect())
}

/// The providers about which there is something to say.
pub fn providers(place: &Place) -> Result<Vec<ProviderLine>, OpsError> {
    let Some(store) = place.records()? else { return Ok(Vec::new()) };
    let (turns, breakers) = (store.turns()?, store.breakers()?);
    let living = |state: TurnState, name: &str| {
        let is_there = |t: &&Turn| matches!(&t.queue, Queue::Provider(p) if p == name) && queue::lives(t);
        turns.iter().filter(|t| t.state == state).filter(is_there).count() as u64
    };
    let line = |provider: &str, breaker: Option<Breaker>| ProviderLine {
        provider: provider.to_owned(),
        breaker,
        waiting: living(TurnState::Waiting, provider),
        calls: living(TurnState::Taken, provider),
    };
    let mut lines: Vec<_> = breakers.iter().map(|b| line(&b.provider, Some(b.clone()))).collect();
    let called: BTreeSet<&str> = turns.iter().filter_map(|t| t.queue.provider()).collect();
    let silent = called.into_iter().filter(|name| !breakers.iter().any(|b| b.provider == **name));
    lines.extend(silent.map(|name| line(name, None)).filter(|l| l.waiting + l.calls > 0));
    Ok(lines)
}

/// The same with everything below them, for JSON.
pub fn views(place: &Place, which: &Which) -> Result<Vec<Shown>, OpsError> {
    let store = place.records()?;
    let runs = summaries(place, store.as_ref(), which)?;
    let Some(store) = store else { return Ok(Vec::new()) };
    runs.into_iter().map(|s| show::of(place, &store, store.view(&s.run.id)?)).collect()
}

fn summaries(place: &Place, store: Option<&Store>, which: &Which) -> Result<Vec<RunSummary>, OpsError> {
    let filter = match which {
        Which::Named(name) => return named(place, store, name),
        Which::Overview => RunFilter::Overview { newest: 20 },
        Which::All => RunFilter::All,
        Which::Dead => RunFilter::Dead,
    };
    store.map_or(Ok(Vec::new()), |store| Ok(store.runs(&filter)?))
}

fn named(place: &Place, store: Option<&Store>, name: &str) -> Result<Vec<RunSummary>, OpsError> {
    let run = find::run(place, store, name)?;
    let Some(store) = store else { return Ok(Vec::new()) };
    let by_task = run.task.folded() == name.to_ascii_lowercase();
    let runs = store.runs(&RunFilter::Task(run.task.clone()))?;
    Ok(runs.into_iter().filter(|s| by_task || s.run.id == run.id).collect())
}

fn line(summary: RunSummary, turns: &[Turn], breakers: &[Breaker]) -> Line {
    let run = &summary.run;
    let is_waited_for = run.status == RunStatus::Pending && queue::is_waited_for(turns, &run.id);
    let is_open = matches!(run.status, RunStatus::Pending | RunStatus::Running);
    let wait = if is_open { wait_of(turns, breakers, &run.id) } else { None };
    let meaning = meaning(&MeaningInput {
        run: &summary.run,
        holding: if is_waited_for { Holding::Held } else { follow::holding(run) },
        now: now().utc,
        // The run's own policy is not read for a list; a lease of another length only changes when STALE is said.
        silent_after: Leases::default().ttl,
        step: summary.step.as_ref(),
        wait: wait.as_ref(),
    });
    Line { summary, meaning }
}
