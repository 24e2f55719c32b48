//! Deletes what retention allows: folders and pins of runs that finished long ago. Never a branch, and never anything whose
//! work is not safe.

use super::error::OpsError;
use super::place::Place;
use crate::domain::ids::RunId;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::run::RunStatus;
use crate::engine::host::{Who, now};
use crate::report::machine_json::GcItem;

/// What was, or would be, deleted, and what stays.
#[derive(Debug, Default)]
pub struct Swept {
    /// What goes.
    pub removed: Vec<GcItem>,
    /// What is old enough and stays, and why.
    pub kept: Vec<GcItem>,
}

/// Sweeps. With `dry_run` only tells.
pub fn gc(place: &Place, who: &Who, older_than: Option<Millis>, dry_run: bool) -> Result<Swept, OpsError> {
    let mut swept = Swept::default();
    let Some(home) = place.existing_home()? else { return Ok(swept) };
    let mut store = place.store()?;
    let retention = match older_than {
        Some(age) => age,
        None => super::given::policy(place, None)?.loaded.policy.retention_runs,
    };
    let before = UtcMs(now().utc.0.saturating_sub(i64::try_from(retention.0).unwrap_or(i64::MAX)));
    for run in store.finished_before(before)? {
        let Some(record) = store.find_run(&run)? else { continue };
        // The working copy of a run that may still go on, or whose changes are in it alone, is somebody's work.
        if !matches!(record.status, RunStatus::Succeeded | RunStatus::Canceled) {
            swept.kept.push(item(&run, 0, format!("it is {} and can go on", record.status)));
            continue;
        }
        if home.work_dir(&run)?.exists() {
            swept.kept.push(item(&run, 0, "its working copy is still there".to_owned()));
            continue;
        }
        let size = folder_size(home.run_dir(&run)?.path());
        if !dry_run {
            store.sweep(&run, &who.context())?;
            home.remove_run_dir(&run)?;
            place.repo.unpin(run.as_str())?;
        }
        swept.removed.push(item(&run, size, format!("finished more than {retention} ago")));
    }
    Ok(swept)
}

fn item(run: &RunId, size: u64, reason: String) -> GcItem {
    GcItem { run: Some(run.clone()), what: "run".to_owned(), path: run.to_string(), size, reason }
}

/// Bytes below a folder; what cannot be read counts nothing.
fn folder_size(path: &std::path::Path) -> u64 {
    let Ok(entries) = fs_err::read_dir(path) else { return 0 };
    let size = |entry: std::io::Result<fs_err::DirEntry>| {
        let Ok(entry) = entry else { return 0 };
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => folder_size(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |m| m.len()),
            _ => 0,
        }
    };
    entries.map(size).sum()
}
