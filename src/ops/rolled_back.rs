//! Whether the database knows what it once said (F14): a run's manifest and folder are written after the record and never
//! before it, so a database that lacks what they show is an older one, put in the place of the newer.

use super::error::OpsError;
use crate::artifacts::home::Home;
use crate::artifacts::manifest_file;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::{RunId, TaskId};
use crate::store::Store;

/// Refuses a run whose manifest shows more than the database knows, or something else (R-S4).
pub fn refuse_behind(home: &Home, store: &Store, run: &RunId) -> Result<(), OpsError> {
    match behind(home, store, run)? {
        None => Ok(()),
        Some(failure) => Err(OpsError::Failed { failure, run: Some(run.clone()) }),
    }
}

/// How the database lies behind a run's manifest, if it does.
pub fn behind(home: &Home, store: &Store, run: &RunId) -> Result<Option<Failure>, OpsError> {
    let Some(manifest) = manifest_file::read(&home.run_dir(run)?)? else { return Ok(None) };
    let ends = store.chain_head(run.as_str())?.count;
    let older = "an older database was put in place";
    let message = if manifest.generation > ends {
        format!("the manifest of run {run} shows event {}, the database ends at {ends}: {older}", manifest.generation)
    } else if !store.chain_has(run.as_str(), &manifest.anchor())? {
        format!("event {} of run {run} is another one than its manifest shows: {older}", manifest.generation)
    } else {
        return Ok(None);
    };
    Ok(Some(Failure::new(Code::StateRolledBack, message)))
}

/// Refuses a start of a task that has a run which the database does not know, or whose newest run it knows too little of: it
/// would begin again what was done, under a number that was given out (R-M2).
pub fn refuse_task(home: &Home, store: &Store, task: &TaskId) -> Result<(), OpsError> {
    // The folders first: one that another start makes meanwhile has its record already.
    let names = home.run_names()?;
    let known = store.run_numbers(task)?;
    let prefix = RunId::of(task, 0).as_str().trim_end_matches('0').to_owned();
    for name in names {
        let number = name.strip_prefix(&prefix).and_then(|rest| rest.parse::<u32>().ok());
        if number.is_some_and(|number| !known.contains(&number)) && !is_accepted(home, &name)? {
            let message = format!("the folder of run {name} is there, but the database does not know the run");
            return Err(OpsError::about(&RunId::recorded(name), Code::StateRolledBack, message));
        }
    }
    match store.newest_run_of_task(task)? {
        Some(newest) => refuse_behind(home, store, &newest.id),
        None => Ok(()),
    }
}

/// Run folders that the database knows nothing of and that nobody has accepted as they are.
pub fn forgotten(home: &Home, store: Option<&Store>) -> Result<Vec<RunId>, OpsError> {
    let mut found = Vec::new();
    for name in home.run_names()? {
        let run = RunId::recorded(&name);
        let is_known = match store {
            Some(store) => store.find_run(&run)?.is_some(),
            None => false,
        };
        if !is_known && !is_accepted(home, &name)? {
            found.push(run);
        }
    }
    Ok(found)
}

fn is_accepted(home: &Home, name: &str) -> Result<bool, OpsError> {
    Ok(home.run_dir(&RunId::recorded(name))?.forgotten().exists())
}
