//! Releases and their deployments (R-A10, R-A19): one name for one content, one row for one release in one environment.

use serde_json::json;

use super::action_calls::DeploymentMove;
use super::actions::{self, Found};
use super::calls::{Context, Hold};
use super::claim::{self, in_list};
use super::error::{Result, StoreError};
use super::write::Writer;
use super::{Store, TENANT, action_rows, rows};
use crate::domain::action::record::{DeploymentRecord, ReleaseRecord};
use crate::domain::action::state::{DEPLOYMENT, DeploymentEvent, DeploymentState};
use crate::domain::event::EventKind;
use crate::domain::ids::{ReleaseId, RunId};
use crate::domain::machine::Word as _;

impl Store {
    /// Gives a name to a commit and its artifacts. The same again answers the record that is there; other content under a
    /// known name is refused, with an event ([`StoreError::ReleaseConflict`]). `run` and time of `release` are those of the
    /// holder and of now, whatever stands there.
    pub fn make_release(&mut self, hold: &Hold, release: &ReleaseRecord, ctx: &Context) -> Result<ReleaseRecord> {
        self.write_or_refuse(ctx, |w| {
            if let Some(refusal) = actions::check_hold(w, hold, "a release")? {
                return Ok(Err(refusal));
            }
            let body = json!({ "release": release.id, "commit": release.commit, "artifacts": release.artifacts });
            match find_release(w.db(), &release.id)? {
                Some(known) if (&known.commit, &known.artifacts) == (&release.commit, &release.artifacts) => {
                    Ok(Ok(known))
                }
                Some(known) => {
                    let id = release.id.clone();
                    let refusal = StoreError::ReleaseConflict { release: id, commit: known.commit, run: known.run };
                    let body = actions::with(body, json!({ "code": refusal.code() }));
                    let reason = refusal.to_string();
                    w.append(&super::write::Fact {
                        reason: Some(&reason),
                        ..claim::fact(hold, EventKind::ReleaseConflicted, body)
                    })?;
                    Ok(Err(refusal))
                }
                None => {
                    let made = ReleaseRecord { run: hold.run.clone(), created_at: ctx.now.utc, ..release.clone() };
                    insert_release(w, hold, &made)?;
                    w.append(&claim::fact(hold, EventKind::ReleaseMade, body))?;
                    Ok(Ok(made))
                }
            }
        })
    }

    /// A release by its name.
    pub fn release(&self, id: &ReleaseId) -> Result<Option<ReleaseRecord>> {
        find_release(&self.db, id)
    }

    /// All releases, oldest first.
    pub fn releases(&self) -> Result<Vec<ReleaseRecord>> {
        let sql = format!("SELECT {} FROM release WHERE tenant = ?1 ORDER BY seq", action_rows::RELEASE);
        rows::all(&self.db, &sql, [TENANT], action_rows::release)
    }

    /// The deployments to one environment, or to all, oldest first.
    pub fn deployments(&self, environment: Option<&str>) -> Result<Vec<DeploymentRecord>> {
        let sql = format!(
            "SELECT {} FROM deployment WHERE tenant = ?1 AND (?2 IS NULL OR environment = ?2) ORDER BY seq",
            action_rows::DEPLOYMENT
        );
        rows::all(&self.db, &sql, (TENANT, environment), action_rows::deployment)
    }

    /// Moves a deployment by what was found about it: verified, failed, rolled back, or agreed to. That it is executed is
    /// recorded by [`Store::begin_send`] alone.
    pub fn move_deployment(&mut self, moved: &DeploymentMove<'_>, ctx: &Context) -> Result<DeploymentRecord> {
        self.write_or_refuse(ctx, |w| {
            if let Some(hold) = moved.hold
                && let Some(refusal) = actions::check_hold(w, hold, "a move of a deployment")?
            {
                return Ok(Err(refusal));
            }
            let found = find(w, moved.environment, moved.release)?.ok_or_else(|| StoreError::NotFound {
                what: format!("a deployment of {} to {}", moved.release, moved.environment),
            })?;
            if matches!(moved.event, DeploymentEvent::Deploy | DeploymentEvent::DeployAgain) {
                return Err(DEPLOYMENT.refusal(found.state.word(), moved.event).into());
            }
            let action = actions::find(w, &found.action)?;
            let chain = moved.hold.map_or_else(|| action.chain().clone(), |hold| hold.run.clone());
            let verified = moved.verified.or(found.verified);
            let next = DeploymentRecord { verified, ..found };
            shift(w, (&action, &chain), (next, moved.event), moved.reason).map(Ok)
        })
    }
}

fn find_release(db: &rusqlite::Connection, id: &ReleaseId) -> Result<Option<ReleaseRecord>> {
    let sql = format!("SELECT {} FROM release WHERE tenant = ?1 AND id = ?2", action_rows::RELEASE);
    rows::first(db, &sql, (TENANT, id.as_str()), action_rows::release)
}

fn insert_release(w: &Writer<'_>, hold: &Hold, made: &ReleaseRecord) -> Result<()> {
    w.run(
        "INSERT INTO release (tenant, id, commit_id, artifacts, run, created_at, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        rusqlite::params![
            TENANT,
            made.id.as_str(),
            made.commit,
            action_rows::text(&made.artifacts)?,
            made.run.as_str(),
            made.created_at.0,
            rows::int(hold.fence),
        ],
    )?;
    Ok(())
}

/// Finds a deployment for writing.
pub(super) fn find(w: &Writer<'_>, environment: &str, release: &ReleaseId) -> Result<Option<DeploymentRecord>> {
    let sql = format!(
        "SELECT {} FROM deployment WHERE tenant = ?1 AND environment = ?2 AND release = ?3",
        action_rows::DEPLOYMENT
    );
    rows::first(w.db(), &sql, (TENANT, environment, release.as_str()), action_rows::deployment)
}

/// Moves a deployment by the table, only from the state in which it was found, and tells of it. `next` holds what is new
/// beside the state.
pub(super) fn shift(
    w: &mut Writer<'_>,
    (action, chain): (&Found, &RunId),
    (next, event): (DeploymentRecord, DeploymentEvent),
    reason: Option<&str>,
) -> Result<DeploymentRecord> {
    let from = next.state;
    let to = DEPLOYMENT.next(from, event)?;
    let next = DeploymentRecord { state: to, at: w.ctx().now.utc, ..next };
    let sql = format!(
        "UPDATE deployment SET state = ?4, action = ?5, verified = ?6, at = ?7, fence = ?8 \
         WHERE tenant = ?1 AND environment = ?2 AND release = ?3 AND state IN ({})",
        in_list(DEPLOYMENT.sources(event))
    );
    let params = rusqlite::params![
        TENANT,
        next.environment,
        next.release.as_str(),
        to.word(),
        next.action.as_str(),
        next.verified,
        next.at.0,
        rows::int(action.record.fence),
    ];
    if w.run(&sql, params)? == 0 {
        return Err(DEPLOYMENT.refusal(from.word(), event).into());
    }
    let body = json!({
        "environment": next.environment, "release": next.release, "from": from, "to": to, "event": event,
        "verified": next.verified,
    });
    actions::tell_in(w, (chain, None), (EventKind::DeploymentMoved, reason), actions::about(&action.record, body))?;
    Ok(next)
}

/// The row of a deployment that somebody intends; one that is there already stays as it is.
pub(super) fn intend(w: &Writer<'_>, action: &Found) -> Result<()> {
    let Some((environment, release)) = actions::deploys(&action.record) else { return Ok(()) };
    w.run(
        "INSERT INTO deployment (tenant, environment, release, state, action, at, fence) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0) ON CONFLICT (tenant, environment, release) DO NOTHING",
        (TENANT, environment, release.as_str(), DEPLOYMENT.initial.word(), action.record.id.as_str(), w.now()),
    )?;
    Ok(())
}

/// The deployment that an action executes, where it has one.
pub(super) fn of_action(w: &Writer<'_>, action: &Found) -> Result<Option<DeploymentRecord>> {
    match actions::deploys(&action.record) {
        Some((environment, release)) => find(w, environment, release),
        None => Ok(None),
    }
}

/// A person agreed to the action: its deployment may go.
pub(super) fn agreed(w: &mut Writer<'_>, action: &Found) -> Result<()> {
    match of_action(w, action)? {
        Some(found) if found.state == DeploymentState::Ready => {
            let next = DeploymentRecord { action: action.record.id.clone(), ..found };
            shift(w, (action, action.chain()), (next, DeploymentEvent::Approve), Some("agreed to")).map(drop)
        }
        _ => Ok(()),
    }
}

/// The action is executed: the deployment is under way, by this action. The caller has seen that it may be.
pub(super) fn begun(w: &mut Writer<'_>, action: &Found) -> Result<()> {
    let Some(mut next) = of_action(w, action)? else { return Ok(()) };
    let chain = action.chain();
    next = DeploymentRecord { action: action.record.id.clone(), verified: None, ..next };
    if next.state == DeploymentState::Ready {
        next = shift(w, (action, chain), (next, DeploymentEvent::Approve), Some("the policy lets it go"))?;
    }
    let event = match next.state {
        DeploymentState::Failed => DeploymentEvent::DeployAgain,
        // The same action, sent again.
        DeploymentState::Deploying => return Ok(()),
        _ => DeploymentEvent::Deploy,
    };
    shift(w, (action, chain), (next, event), None).map(drop)
}

/// It is certain that the action did nothing: so much for the deployment.
pub(super) fn failed(w: &mut Writer<'_>, action: &Found) -> Result<()> {
    match of_action(w, action)? {
        Some(found) if found.state == DeploymentState::Deploying && found.action == action.record.id => {
            shift(w, (action, action.chain()), (found, DeploymentEvent::Fail), Some("it was not executed")).map(drop)
        }
        _ => Ok(()),
    }
}

/// Whether another action stands in the way: it is deploying this, or has.
pub(super) fn in_the_way(w: &Writer<'_>, action: &Found) -> Result<Option<DeploymentRecord>> {
    let found = of_action(w, action)?;
    Ok(found.filter(|found| match found.state {
        DeploymentState::Ready | DeploymentState::Approved | DeploymentState::Failed => false,
        DeploymentState::Deploying => found.action != action.record.id,
        DeploymentState::Deployed | DeploymentState::RolledBack => true,
    }))
}
