//! The audit log: everything that led to something, and whether anybody changed it (R-M7).

use super::error::OpsError;
use super::find;
use super::place::Place;
use crate::artifacts::manifest_file;
use crate::domain::event::{ChainFault, ChainHead, Event, HOME_CHAIN, check_chain};
use crate::domain::failure::Code;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{RequestId, RunId};
use crate::store::EventFilter;

/// What to look for.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Of this run (or task, or support code).
    pub run: Option<String>,
    /// Of this command.
    pub request: Option<String>,
    /// Led to by this idempotency key.
    pub key: Option<String>,
    /// With this code.
    pub code: Option<Code>,
    /// The newest so many.
    pub limit: Option<u32>,
}

/// The events that match, oldest first.
pub fn log(place: &Place, query: &AuditQuery) -> Result<Vec<Event>, OpsError> {
    let Some(store) = place.records()? else { return Ok(Vec::new()) };
    let run = match &query.run {
        Some(name) => Some(find::run(place, Some(&store), name)?.id),
        None => None,
    };
    let filter = EventFilter {
        run,
        request: query.request.as_deref().map(RequestId::recorded),
        key_hash: query.key.as_ref().map(|key| Sha256Hash::of(key.as_bytes())),
        kind: None,
        code: query.code,
        limit: query.limit,
    };
    Ok(store.events(&filter)?)
}

/// The result of checking every chain.
#[derive(Debug, Default)]
pub struct Checked {
    /// Chains that are whole, and how many events they have.
    pub whole: Vec<(String, u64)>,
    /// Chains that are not.
    pub broken: Vec<ChainFault>,
}

/// Checks every chain against itself and against the manifest that anchors it.
pub fn verify(place: &Place) -> Result<Checked, OpsError> {
    let mut checked = Checked::default();
    let Some(store) = place.records()? else { return Ok(checked) };
    for chain in store.chains()? {
        let events = store.chain(&chain)?;
        match check_chain(&chain, &events, anchor(place, &chain)?.as_ref()) {
            Ok(()) => checked.whole.push((chain, events.len() as u64)),
            Err(fault) => checked.broken.push(fault),
        }
    }
    Ok(checked)
}

fn anchor(place: &Place, chain: &str) -> Result<Option<ChainHead>, OpsError> {
    if chain == HOME_CHAIN {
        return Ok(None);
    }
    let Some(home) = place.existing_home()? else { return Ok(None) };
    let manifest = manifest_file::read(&home.run_dir(&RunId::recorded(chain))?)?;
    Ok(manifest.map(|m| m.anchor()))
}
