//! Makes the records usable again (F13, F14): of a damaged database a new one is built beside it, and where the records are
//! older than what was once said, that is accepted. Nothing is deleted, and no run is begun. What is told is told as checks.

use std::collections::BTreeSet;

use super::doctor::check;
use super::error::OpsError;
use super::place::Place;
use super::rolled_back::{behind, forgotten};
use crate::artifacts::atomic::{self, IfExists};
use crate::artifacts::digest::verify_hashes;
use crate::artifacts::home::Home;
use crate::artifacts::manifest_file;
use crate::domain::event::{Event, EventKind, check_chain};
use crate::domain::failure::{Code, Exit, Failure};
use crate::domain::ids::RunId;
use crate::domain::manifest::Manifest;
use crate::domain::record::RunView;
use crate::domain::run::{RUN, RunEvent};
use crate::engine::host::Who;
use crate::process::locks;
use crate::report::machine_json::{CheckState, DoctorCheck};
use crate::store::{self, Note, RunFilter, Salvaged, Store, StoreError};

/// Recovers. Refused while any process has the database open.
pub fn recover(place: &Place, who: &Who) -> Result<Vec<DoctorCheck>, OpsError> {
    let none = || OpsError::failed(Code::NotFound, format!("there are no records in {}", place.home_path().display()));
    let home = place.existing_home()?.ok_or_else(none)?;
    refuse_in_use(&home)?;
    let mut told = Vec::new();
    rebuild(&home, &mut told)?;
    let mut store = Store::open(&home.database())?;
    for run in store.runs(&RunFilter::All)? {
        told.extend(settle_run(&home, &mut store, &run.run.id, who)?);
    }
    for run in forgotten(&home, Some(&store))? {
        told.push(accept_folder(&home, &run)?);
    }
    if told.is_empty() {
        return Ok(vec![check(
            "recover",
            CheckState::Ok,
            "the records are whole; nothing was changed".to_owned(),
            None,
        )]);
    }
    let said: Vec<_> = told.iter().map(|c| format!("{}: {}", c.name, c.message)).collect();
    let body = serde_json::json!({ "found": said });
    let note =
        Note { kind: EventKind::RecordsRecovered, reason: "a person had the records recovered".to_owned(), body };
    store.note(None, &note, &who.context())?;
    store.integrity()?;
    Ok(told)
}

/// A process that has the database open would go on writing to the damaged one.
fn refuse_in_use(home: &Home) -> Result<(), OpsError> {
    let database = home.database();
    let index = database.with_extension("db-shm");
    match locks::holders(&[&database, &index]).as_slice() {
        [] => Ok(()),
        pids => {
            let message = format!("the database is in use by {pids:?}: wait for these processes, or stop them");
            Err(OpsError::failed(Code::Busy, message))
        }
    }
}

/// Builds a new database where the present one is damaged.
fn rebuild(home: &Home, told: &mut Vec<DoctorCheck>) -> Result<(), OpsError> {
    let database = home.database();
    let looked = Store::open_read_only(&database).and_then(|store| store.map_or(Ok(()), |store| store.integrity()));
    let why = match looked {
        Ok(()) => return Ok(()),
        // SQLite's list of faults has a heading.
        Err(StoreError::Corrupt(why)) => {
            why.lines().find(|line| !line.starts_with("***")).unwrap_or_default().to_owned()
        }
        Err(other) => return Err(other.into()),
    };
    let new = database.with_extension("db.recovered");
    let tables = store::salvage(&database, &new)?;
    let kept_as = store::replace(&database, &new)?;
    let name = kept_as.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let message = format!("it was damaged ({why}) and is kept as {name}; a new one is in its place");
    told.push(check("recover.database", CheckState::Warning, message, None));
    told.extend(tables.iter().filter(|t| t.damaged || t.lost > 0 || t.kept > 0).map(table));
    Ok(())
}

fn table(found: &Salvaged) -> DoctorCheck {
    let Salvaged { table, kept, lost, damaged } = found;
    let (state, message) = match (lost, damaged) {
        (0, false) => (CheckState::Ok, format!("{kept} rows kept")),
        (0, true) => (CheckState::Warning, format!("{kept} rows kept, perhaps not all")),
        (lost, _) => (CheckState::Warning, format!("{kept} rows kept, at least {lost} lost")),
    };
    check(&format!("recover.table.{table}"), state, message, None)
}

/// A run that is whole stays as it is. One that is not can prove nothing about what was done: it is ended, and its manifest
/// shows from now on what the database knows.
fn settle_run(home: &Home, store: &mut Store, run: &RunId, who: &Who) -> Result<Option<DoctorCheck>, OpsError> {
    let events = store.chain(run.as_str())?;
    let view = match store.view(run) {
        Ok(view) => Some(view),
        Err(StoreError::NotFound { .. } | StoreError::Corrupt(_)) => None,
        Err(other) => return Err(other.into()),
    };
    let Some(why) = not_whole(home, store, run, (view.as_ref(), &events))? else { return Ok(None) };
    let before = store.find_run(run)?.map(|r| r.status);
    let was_told = events.iter().any(|e| e.kind == EventKind::RecordsRecovered);
    if was_told
        && why.code != Code::StateRolledBack
        && before.is_some_and(|status| RUN.next(status, RunEvent::Cancel).is_err())
    {
        return Ok(None);
    }
    let after = store.give_up(run, &why, &who.context())?;
    let dir = home.run_dir(run)?;
    if dir.path().is_dir()
        && let Ok(view) = store.view(run)
    {
        manifest_file::set_aside(&dir)?;
        manifest_file::write(&dir, &Manifest::of(&view))?;
    }
    let chain = match check_chain(run.as_str(), &events, None) {
        Ok(()) => "its audit chain is whole as far as it goes".to_owned(),
        Err(fault) => format!("its audit chain is broken at event {}", fault.n),
    };
    let stands = if before == Some(after.status) {
        format!("it stays {}", after.status)
    } else {
        format!("it is {} now; its branch and files are as they were", after.status)
    };
    let message = format!("{}; {chain}; {stands}", why.message);
    Ok(Some(check(&format!("recover.run.{run}"), CheckState::Warning, message, None)))
}

/// What is missing of a run, if anything is.
fn not_whole(
    home: &Home,
    store: &Store,
    run: &RunId,
    (view, events): (Option<&RunView>, &[Event]),
) -> Result<Option<Failure>, OpsError> {
    let corrupt = |what: &str| Some(Failure::new(Code::StateCorrupt, what));
    match behind(home, store, run) {
        Ok(None) => {}
        Ok(Some(failure)) => return Ok(Some(failure)),
        Err(error) if error.code().entry().exit == Exit::StateCorrupt => return Ok(corrupt("its manifest is damaged")),
        Err(other) => return Err(other),
    }
    if let Err(fault) = check_chain(run.as_str(), events, None) {
        return Ok(corrupt(&format!("event {}: {}", fault.n, fault.what)));
    }
    let Some(view) = view else { return Ok(corrupt("what it was given is lost")) };
    let reached = events.iter().filter(|e| value_of(e, "checkpoint").is_some()).count();
    let number = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    let keys: BTreeSet<_> = view.steps.iter().map(|s| &s.key).collect();
    let has_steps = view.inputs.spec.steps.iter().all(|s| keys.contains(&s.key));
    let runs: usize = view.steps.iter().map(|s| number(s.runs)).sum();
    Ok(if events.is_empty() {
        corrupt("its events are lost")
    } else if !has_steps || view.attempts.len() < number(view.run.attempt) || view.executions.len() < runs {
        corrupt("some of its steps, attempts or executions are lost")
    } else if view.checkpoints.len() < reached || lacks_artifacts(view, events) {
        corrupt("some of its checkpoints or artifacts are lost")
    } else {
        None
    })
}

/// One value of an event's body.
fn value_of(event: &Event, name: &str) -> Option<serde_json::Value> {
    serde_json::from_str::<serde_json::Value>(&event.body).ok()?.get(name).cloned()
}

/// A file may be recorded anew, under the same path.
fn lacks_artifacts(view: &RunView, events: &[Event]) -> bool {
    let told = events.iter().filter(|e| e.kind == EventKind::ArtifactRecorded).filter_map(|e| value_of(e, "path"));
    let mut told = told.filter_map(|path| path.as_str().map(ToOwned::to_owned));
    told.any(|path| !view.artifacts.iter().any(|a| a.path == path))
}

/// Only its folder is left. Nothing can be put back into the database, for what it was given stands nowhere else; its number
/// stays taken, and what its manifest says is told.
fn accept_folder(home: &Home, run: &RunId) -> Result<DoctorCheck, OpsError> {
    let dir = home.run_dir(run)?;
    let knows = match manifest_file::read(&dir) {
        Ok(Some(manifest)) => {
            let whole = verify_hashes(&dir, &manifest.artifacts)?;
            let (files, status) = (manifest.artifacts.len(), manifest.status);
            format!(
                "its manifest says {status} after attempt {}, {whole} of its {files} files are whole",
                manifest.attempt
            )
        }
        Ok(None) => "it has no manifest".to_owned(),
        Err(error) => error.to_string(),
    };
    let message = format!("the database does not know it and its number stays taken; {knows}");
    let text = format!("# {run}\n\nThis run is not in the database, and a person has accepted that: {knows}.\n");
    atomic::write(&dir.forgotten(), text.as_bytes(), IfExists::Replace)?;
    Ok(check(&format!("recover.folder.{run}"), CheckState::Warning, message, None))
}
