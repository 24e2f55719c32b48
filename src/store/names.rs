//! Names that may stand for one thing only: idempotency keys of `start` (R-F7), versions of prompts and policies (R-F5).
//! A refusal leaves an event.

use rusqlite::Connection;
use serde_json::json;

use super::calls::{NewRun, StartKey};
use super::error::{Result, StoreError};
use super::write::{Fact, Writer};
use super::{Store, TENANT, rows};
use crate::domain::event::EventKind;
use crate::domain::ids::RunId;
use crate::domain::record::RunInputs;

/// What a key stands for.
pub(super) enum KeyFound {
    /// Nothing yet.
    Unused,
    /// The same request, which led to this run.
    Same(RunId),
    /// Something that must be refused; an event says so.
    Refused(StoreError),
}

/// Looks a key up.
pub(super) fn find_key(w: &mut Writer<'_>, key: &StartKey) -> Result<KeyFound> {
    let sql = "SELECT r.id, k.request_hash, k.expires_at FROM start_key k JOIN run r ON r.seq = k.run \
               WHERE k.tenant = ?1 AND k.key_hash = ?2";
    let found = rows::first(w.db(), sql, (TENANT, key.hash.0), |row| {
        Ok((RunId::recorded(row.take::<String>()?), row.hash()?, row.take::<i64>()?))
    })?;
    let Some((run, request, expires_at)) = found else { return Ok(KeyFound::Unused) };
    if request == key.request && w.now() < expires_at {
        return Ok(KeyFound::Same(run));
    }
    let (kind, refusal, reason) = if w.now() >= expires_at {
        (EventKind::StartRefused, StoreError::KeyExpired { run: run.clone() }, "the idempotency key has expired")
    } else {
        let reason = "the idempotency key came with another request";
        (EventKind::KeyConflicted, StoreError::KeyReused { run: run.clone() }, reason)
    };
    let body = json!({
        "code": refusal.code(), "key_hash": key.hash.hex(), "request_hash": key.request.hex(),
        "recorded_request_hash": request.hex(),
    });
    w.append(&Fact { kind, run: Some(&run), attempt: None, fence: None, step: None, reason: Some(reason), body })?;
    Ok(KeyFound::Refused(refusal))
}

/// Binds a key, if there is one, to the run that it led to.
pub(super) fn bind_key(w: &mut Writer<'_>, new: &NewRun, seq: i64, run: &RunId) -> Result<()> {
    let Some(key) = &new.key else { return Ok(()) };
    w.run(
        "INSERT INTO start_key (tenant, key_hash, request_hash, run, created_at, expires_at, fence) \
         SELECT ?1, ?2, ?3, seq, ?5, ?6, fence FROM run WHERE seq = ?4",
        (TENANT, key.hash.0, key.request.0, seq, w.now(), key.expires_at.0),
    )?;
    let body = json!({
        "key_hash": key.hash.hex(), "request_hash": key.request.hex(), "expires_at": key.expires_at.0,
    });
    let kind = EventKind::KeyBound;
    w.append(&Fact { kind, run: Some(run), attempt: None, fence: None, step: None, reason: None, body })
}

/// The refusal of a prompt or policy version that stands for other content, if there is one (R-F5).
pub(super) fn check_versions(w: &mut Writer<'_>, inputs: &RunInputs) -> Result<Option<StoreError>> {
    match reused_version(w.db(), inputs)? {
        Some(refusal) => refuse(w, refusal, inputs).map(Some),
        None => Ok(None),
    }
}

impl Store {
    /// Refuses what a run would go on with where a version in it stands for other content already (R-F5).
    pub fn refuse_reused_versions(&self, inputs: &RunInputs) -> Result<()> {
        reused_version(&self.db, inputs)?.map_or(Ok(()), Err)
    }
}

fn reused_version(db: &Connection, inputs: &RunInputs) -> Result<Option<StoreError>> {
    let known = "SELECT sha256 FROM prompt_version WHERE tenant = ?1 AND path = ?2 AND version = ?3";
    for prompt in inputs.prompts.values() {
        let (path, version) = (prompt.path.clone(), prompt.version.clone());
        let known = rows::first(db, known, (TENANT, &path, &version), |row| row.take::<String>())?;
        if known.is_some_and(|known| !known.eq_ignore_ascii_case(&prompt.sha256)) {
            return Ok(Some(StoreError::PromptVersionReused { path, version }));
        }
    }
    let version = inputs.policy.version.clone();
    let known = "SELECT sha256 FROM policy_version WHERE tenant = ?1 AND version = ?2";
    let known = rows::first(db, known, (TENANT, &version), |row| row.hash())?;
    let is_reused = known.is_some_and(|known| known != inputs.policy_sha256);
    Ok(is_reused.then_some(StoreError::PolicyVersionReused { version }))
}

/// Registers the versions that a run was given; those that are known stay as they are.
pub(super) fn register_versions(w: &Writer<'_>, inputs: &RunInputs) -> Result<()> {
    let prompt = "INSERT INTO prompt_version (tenant, path, version, sha256, created_at) VALUES (?1, ?2, ?3, ?4, ?5) \
                  ON CONFLICT (tenant, path, version) DO NOTHING";
    for p in inputs.prompts.values() {
        w.run(prompt, (TENANT, &p.path, &p.version, &p.sha256, w.now()))?;
    }
    let policy = "INSERT INTO policy_version (tenant, version, sha256, created_at) VALUES (?1, ?2, ?3, ?4) \
                  ON CONFLICT (tenant, version) DO NOTHING";
    w.run(policy, (TENANT, &inputs.policy.version, inputs.policy_sha256.0, w.now()))?;
    Ok(())
}

/// Keeps the refusal of a start that led to no run, in the home's chain.
pub(super) fn refuse(w: &mut Writer<'_>, refusal: StoreError, inputs: &RunInputs) -> Result<StoreError> {
    let reason = refusal.to_string();
    let body = json!({ "code": refusal.code(), "task": inputs.spec.task });
    let kind = EventKind::StartRefused;
    w.append(&Fact { kind, run: None, attempt: None, fence: None, step: None, reason: Some(&reason), body })?;
    Ok(refusal)
}
