//! Which run a person means: a run id, a task id (its newest run), a support code, or the beginning of a run id.

use super::error::OpsError;
use super::place::Place;
use crate::domain::failure::Code;
use crate::domain::record::RunRecord;
use crate::store::Store;

/// The one run that `text` names. Where there is none, the folder is named that was looked in: it may be the wrong one.
pub fn run(place: &Place, store: Option<&Store>, text: &str) -> Result<RunRecord, OpsError> {
    let none = || {
        let root = place.repo.root().display();
        OpsError::failed(Code::NotFound, format!("there is no run, task or support code `{text}` in {root}"))
    };
    let store = store.ok_or_else(none)?;
    let found = store.find_by_prefix(text)?;
    match found.as_slice() {
        [] => Err(none()),
        [one] => store.find_run(one)?.ok_or_else(none),
        [newest, ..] => {
            let record = store.find_run(newest)?.ok_or_else(none)?;
            // A task names its newest run; any other text that fits several runs is too short.
            if record.task.folded() == text.to_ascii_lowercase() {
                return Ok(record);
            }
            let names: Vec<_> = found.iter().take(5).map(ToString::to_string).collect();
            let message = format!("`{text}` fits several runs: {}", names.join(", "));
            Err(OpsError::failed(Code::NotFound, message))
        }
    }
}
