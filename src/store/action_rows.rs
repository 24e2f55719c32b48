//! Rows of side effects to records, and back where a row is written whole.

use super::error::{Result, StoreError};
use super::rows::Fields;
use crate::domain::action::approval::ApprovalRecord;
use crate::domain::action::record::{
    ActionRecord, DeploymentRecord, ReadingRecord, ReleaseRecord, WantedBy, WantedRecord,
};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{ActionId, ApprovalId, ReleaseId, RequestId, RunId, StepKey};
use crate::domain::quantity::UtcMs;

/// What [`action`] reads; the statement calls the action `a`.
pub(super) const ACTION: &str = "a.id, a.kind, a.target, a.account, a.environment, a.key, a.request_hash, a.normal_version, \
    a.request_file, a.state, a.code, a.message, a.run, a.step, a.contract, a.irreversible, a.approval, a.digest, a.tries, \
    a.reference, a.summary, a.release, a.corrects, a.request_id, a.created_at, a.started_at, a.sent_at, a.finished_at, \
    a.retry_at, a.deadline, a.expires_at, a.query_from, a.owner, a.due, a.review, a.last_fact, a.fence, a.lease_pid, \
    a.lease_start_ticks, a.lease_boot_id, a.lease_until";

pub(super) fn action(row: &mut Fields<'_>) -> Result<ActionRecord> {
    Ok(ActionRecord {
        id: ActionId::recorded(row.take::<String>()?),
        kind: row.word()?,
        target: row.take()?,
        account: row.take()?,
        environment: row.word()?,
        key: row.take()?,
        request_hash: row.hash()?,
        normal_version: row.take()?,
        request_file: row.take()?,
        state: row.word()?,
        code: row.opt_word()?,
        message: row.take()?,
        run: RunId::recorded(row.take::<String>()?),
        step: step(row)?,
        contract: row.json()?,
        irreversible: row.take()?,
        approval: row.take::<Option<String>>()?.map(ApprovalId::recorded),
        digest: row.take::<Option<[u8; 32]>>()?.map(Sha256Hash),
        tries: row.take()?,
        reference: row.take()?,
        summary: row.take()?,
        release: row.take::<Option<String>>()?.map(ReleaseId::recorded),
        corrects: row.take::<Option<String>>()?.map(ActionId::recorded),
        request_id: RequestId::recorded(row.take::<String>()?),
        created_at: UtcMs(row.take()?),
        started_at: row.opt_time()?,
        sent_at: row.opt_time()?,
        finished_at: row.opt_time()?,
        retry_at: row.opt_time()?,
        deadline: UtcMs(row.take()?),
        expires_at: row.opt_time()?,
        query_from: row.opt_time()?,
        owner: row.take()?,
        due: row.opt_time()?,
        review: row.take()?,
        last_fact: row.take()?,
        fence: row.count()?,
        lease: super::rows::lease(row)?,
    })
}

fn step(row: &mut Fields<'_>) -> Result<Option<StepKey>> {
    Ok(row.take::<Option<String>>()?.map(StepKey::recorded))
}

/// What [`wanted`] reads.
pub(super) const WANTED: &str = "run, attempt, step, call, conversation, request_id, at, answer";

pub(super) fn wanted(row: &mut Fields<'_>) -> Result<WantedRecord> {
    let by = WantedBy {
        run: RunId::recorded(row.take::<String>()?),
        attempt: row.take()?,
        step: step(row)?,
        call: row.take()?,
        conversation: row.take()?,
        request_id: RequestId::recorded(row.take::<String>()?),
    };
    Ok(WantedRecord { by, at: UtcMs(row.take()?), answer: row.word()? })
}

/// What [`reading`] reads.
pub(super) const READING: &str = "at, reading, source, tries";

pub(super) fn reading(row: &mut Fields<'_>) -> Result<ReadingRecord> {
    Ok(ReadingRecord { at: UtcMs(row.take()?), reading: row.json()?, source: row.take()?, tries: row.take()? })
}

/// What [`approval`] reads.
pub(super) const APPROVAL: &str = "id, action, run, step, state, subject, digest, terms, rule, asked_at, expires_at, \
    decided_at, decided_by, reason";

pub(super) fn approval(row: &mut Fields<'_>) -> Result<ApprovalRecord> {
    Ok(ApprovalRecord {
        id: ApprovalId::recorded(row.take::<String>()?),
        action: row.take::<Option<String>>()?.map(ActionId::recorded),
        run: RunId::recorded(row.take::<String>()?),
        step: step(row)?,
        state: row.word()?,
        subject: row.json()?,
        digest: row.hash()?,
        terms: row.json()?,
        rule: row.take()?,
        asked_at: UtcMs(row.take()?),
        expires_at: row.opt_time()?,
        decided_at: row.opt_time()?,
        decided_by: row.take()?,
        reason: row.take()?,
    })
}

/// What [`release`] reads.
pub(super) const RELEASE: &str = "id, commit_id, artifacts, run, created_at";

pub(super) fn release(row: &mut Fields<'_>) -> Result<ReleaseRecord> {
    Ok(ReleaseRecord {
        id: ReleaseId::recorded(row.take::<String>()?),
        commit: row.take()?,
        artifacts: row.json()?,
        run: RunId::recorded(row.take::<String>()?),
        created_at: UtcMs(row.take()?),
    })
}

/// What [`deployment`] reads.
pub(super) const DEPLOYMENT: &str = "environment, release, state, action, verified, at";

pub(super) fn deployment(row: &mut Fields<'_>) -> Result<DeploymentRecord> {
    Ok(DeploymentRecord {
        environment: row.take()?,
        release: ReleaseId::recorded(row.take::<String>()?),
        state: row.word()?,
        action: ActionId::recorded(row.take::<String>()?),
        verified: row.take()?,
        at: UtcMs(row.take()?),
    })
}

/// A value as the database keeps it.
pub(super) fn text<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Internal(error.to_string()))
}
