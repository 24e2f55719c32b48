//! A run is accepted, or found to be there already (R-F3, R-F4). One transaction: whoever comes second, in whatever
//! process, finds what the first one wrote. It does not say what a found run means: that is `domain::plan`.

use serde_json::json;

use super::calls::{Asked, Claim, Context, Hold, Holder, NewRun, Started};
use super::error::{Result, StoreError};
use super::names::{self, KeyFound};
use super::write::{Fact, Writer};
use super::{Store, TENANT, claim, rows, turns};
use crate::domain::event::EventKind;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::{RunId, TaskId};
use crate::domain::machine::Word as _;
use crate::domain::quantity::Millis;
use crate::domain::run::{OpenedBy, RUN, RunEvent};
use crate::domain::step::STEP;
use crate::domain::task::{StepSpec, WhenBusy};
use crate::domain::turn::Queue;

impl Store {
    /// Makes the run, or finds the one that the same fingerprint or idempotency key already has; with a claim, the new
    /// run is held by the caller from its first moment on. Refusals (a key or version that stands for something else, a
    /// busy concurrency group) leave an event and nothing else.
    pub fn start_or_attach(&mut self, new: &NewRun, ctx: &Context) -> Result<Started> {
        self.write_or_refuse(ctx, |w| start(w, new))
    }
}

fn start(w: &mut Writer<'_>, new: &NewRun) -> Result<Result<Started>> {
    if let Some(key) = &new.key {
        match names::find_key(w, key)? {
            KeyFound::Unused => {}
            KeyFound::Same(run) => return Ok(Ok(Started::Existing(run))),
            KeyFound::Refused(refusal) => return Ok(Err(refusal)),
        }
    }
    // Before the fingerprint: a prompt with other text under an old version has the old fingerprint.
    if let Some(refusal) = names::check_versions(w, &new.inputs)? {
        return Ok(Err(refusal));
    }
    let fingerprint = new.components.fingerprint();
    let newest = newest_instance(w, fingerprint)?;
    if let (false, Some((seq, run, _))) = (new.fresh, &newest) {
        names::bind_key(w, new, *seq, run)?;
        return Ok(Ok(Started::Existing(run.clone())));
    }
    let behind = group_holder(w, new)?;
    if let (Some(run), Some(group)) = (&behind, &new.inputs.spec.concurrency)
        && group.when_busy != WhenBusy::Queue
    {
        let refusal = StoreError::GroupBusy { group: group.group.clone(), run: run.clone() };
        return Ok(Err(names::refuse(w, refusal, &new.inputs)?));
    }
    let instance = newest.map_or(1, |(_, _, instance)| instance + 1);
    let (seq, run) = insert(w, new, fingerprint, instance)?;
    names::register_versions(w, &new.inputs)?;
    names::bind_key(w, new, seq, &run)?;
    match (&new.claim, behind) {
        (Some(_), None) if !takes_turns(new) => claim_new(w, new, &run).map(|hold| Ok(Started::New(hold))),
        (claim, behind) => {
            if let Some(holder) = claim {
                queue_up(w, new, (seq, &run), holder)?;
            }
            Ok(Ok(Started::Queued { run, behind }))
        }
    }
}

/// The place in the first queue is taken with the acceptance: whoever is accepted later comes later, and a start that would
/// rather be refused than wait sees it (R-W6).
fn queue_up(w: &Writer<'_>, new: &NewRun, (seq, run): (i64, &RunId), holder: &Holder) -> Result<()> {
    let queue = match &new.inputs.spec.concurrency {
        Some(concurrency) => Queue::Group(concurrency.group.clone()),
        None => Queue::Runs,
    };
    let asked = Asked {
        queue: &queue,
        run,
        agent: None,
        holder: &holder.process,
        limit: None,
        insists: false,
        trial: Millis(0),
        gone: &[],
        takes_over: false,
    };
    turns::enqueue(w, (seq, 0), &asked).map(drop)
}

fn newest_instance(w: &Writer<'_>, fingerprint: Sha256Hash) -> Result<Option<(i64, RunId, u32)>> {
    let sql = "SELECT seq, id, instance FROM run WHERE tenant = ?1 AND fingerprint = ?2 ORDER BY instance DESC LIMIT 1";
    rows::first(w.db(), sql, (TENANT, fingerprint.0), |row| {
        Ok((row.take()?, RunId::recorded(row.take::<String>()?), row.take()?))
    })
}

/// The run that the new one would have to wait for in its group, if it is to be held at once.
fn group_holder(w: &Writer<'_>, new: &NewRun) -> Result<Option<RunId>> {
    match (&new.claim, &new.inputs.spec.concurrency) {
        (Some(_), Some(concurrency)) => turns::group_turn(w, &concurrency.group),
        _ => Ok(None),
    }
}

/// Whether a run may have to wait for others before it is held: then it is accepted first and takes its turn (R-R8).
fn takes_turns(new: &NewRun) -> bool {
    new.inputs.spec.concurrency.is_some() || new.inputs.policy.concurrency.runs.is_some()
}

fn claim_new(w: &mut Writer<'_>, new: &NewRun, run: &RunId) -> Result<Hold> {
    let holder = new.claim.clone().ok_or_else(|| StoreError::Internal("a claim without a holder".to_owned()))?;
    let (event, opened_by) = (RunEvent::Start, OpenedBy::Start);
    let Holder { process, lease_until, token } = holder;
    let attempts = new.inputs.budget().task.attempts;
    let claim = Claim { event, opened_by, holder: process, lease_until, expected_fence: 0, attempts, token };
    claim::claim(w, run, &claim)
}

/// A task: its number here, and its id as it was first spelled. Another spelling that differs in case alone is the same
/// task, or its folders would be the same on some disks (R-M2).
fn task(w: &Writer<'_>, id: &TaskId) -> Result<(i64, TaskId)> {
    w.run(
        "INSERT INTO task (tenant, id, folded, epoch, created_at) VALUES (?1, ?2, ?3, 1, ?4) \
         ON CONFLICT (tenant, folded) DO NOTHING",
        (TENANT, id.as_str(), id.folded(), w.now()),
    )?;
    let sql = "SELECT seq, id FROM task WHERE tenant = ?1 AND folded = ?2";
    let found = rows::first(w.db(), sql, (TENANT, id.folded()), |row| {
        Ok((row.take()?, TaskId::recorded(row.take::<String>()?)))
    })?;
    found.ok_or_else(|| StoreError::Internal(format!("task {id} vanished")))
}

fn insert(w: &mut Writer<'_>, new: &NewRun, fingerprint: Sha256Hash, instance: u32) -> Result<(i64, RunId)> {
    let spec = &new.inputs.spec;
    let (task_seq, task) = task(w, &spec.task)?;
    let highest = "SELECT coalesce(max(number), 0) FROM run WHERE tenant = ?1 AND task = ?2";
    let highest = rows::first(w.db(), highest, (TENANT, task_seq), |row| row.take::<u32>())?.unwrap_or(0);
    let number = highest.max(new.number_floor).saturating_add(1);
    let run = RunId::of(&task, number);
    let parts = &new.components;
    let params = rusqlite::params![
        TENANT,
        run.as_str(),
        task_seq,
        number,
        instance,
        RUN.initial.word(),
        new.phase.map(crate::domain::machine::Word::word),
        fingerprint.0,
        parts.task,
        parts.base_commit,
        parts.prompt_version,
        parts.context_hash.0,
        parts.mode,
        parts.policy_version,
        spec.title,
        spec.concurrency.as_ref().map(|c| c.group.as_str()),
        w.ctx().request_id.as_str(),
        new.support_code.as_str(),
        new.key.map(|key| key.hash.0),
        w.now(),
    ];
    let seq = w.insert(
        "INSERT INTO run (tenant, id, task, number, instance, status, phase, attempt, fence, fingerprint, task_text, \
         base_commit, prompt_version, context_hash, mode, policy_version, title, concurrency_group, request_id, \
         support_code, key_hash, cancel_requested, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, 0, ?20)",
        params,
    )?;
    let inputs = serde_json::to_string(&new.inputs).map_err(|error| StoreError::Internal(error.to_string()))?;
    w.run("INSERT INTO run_inputs (run, inputs, fence) VALUES (?1, ?2, 0)", (seq, inputs))?;
    for (position, step) in (1..).zip(&spec.steps) {
        insert_step(w, seq, 0, position, step)?;
    }
    created(w, new, &run, fingerprint, instance)?;
    Ok((seq, run))
}

/// Inserts a step of a run, PENDING.
pub(super) fn insert_step(w: &Writer<'_>, run: i64, fence: u64, position: u32, step: &StepSpec) -> Result<()> {
    w.run(
        "INSERT INTO step (run, key, position, kind, state, attempt, runs, rounds, sent_back, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, 0, ?6)",
        (run, step.key.as_str(), position, step.kind().word(), STEP.initial.word(), rows::int(fence)),
    )?;
    Ok(())
}

fn created(w: &mut Writer<'_>, new: &NewRun, run: &RunId, fingerprint: Sha256Hash, instance: u32) -> Result<()> {
    let steps: Vec<_> = new.inputs.spec.steps.iter().map(|step| step.key.as_str()).collect();
    let body = json!({
        "fingerprint": fingerprint.hex(), "instance": instance, "components": new.components, "steps": steps,
        "policy_sha256": new.inputs.policy_sha256.hex(), "support_code": new.support_code,
    });
    let kind = EventKind::RunCreated;
    w.append(&Fact { kind, run: Some(run), attempt: None, fence: Some(0), step: None, reason: None, body })
}
