//! Turns: who waits for what, and whose turn it is (R-R8, R-W6). Each step is one transaction, so of any number of
//! processes that look at the same instant exactly as many get on as may. Whether a process lives is found by the caller,
//! whose turn it is by `domain::turn`.

use serde_json::json;

use super::calls::{Asked, Context, Place, Turned};
use super::claim::{self, group_holder};
use super::error::{Result, StoreError};
use super::write::{Fact, Writer};
use super::{Store, TENANT, breakers, rows};
use crate::domain::breaker::{self, Breaker, Passage};
use crate::domain::event::EventKind;
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::quantity::UtcMs;
use crate::domain::turn::{self, Next, Queue, Turn, TurnState};

/// What [`read_turn`] reads.
const TURN: &str = "u.seq, u.queue, r.id, u.agent, u.state, u.insists, u.holder_pid, u.holder_start_ticks, \
    u.holder_boot_id, u.since, u.seen_at";

fn read_turn(row: &mut rows::Fields<'_>) -> Result<Option<Turn>> {
    let (seq, queue) = (row.count()?, row.take::<String>()?);
    let (run, agent) = (RunId::recorded(row.take::<String>()?), row.take()?);
    let (state, insists) = (row.word()?, row.take()?);
    let holder = row.identity()?;
    let (since, seen_at) = (UtcMs(row.take()?), UtcMs(row.take()?));
    let known = Queue::recorded(&queue).zip(holder);
    Ok(known.map(|(queue, holder)| Turn { seq, queue, run, agent, state, insists, holder, since, seen_at }))
}

/// The turns of one queue, in their order.
pub(super) fn in_queue(db: &rusqlite::Connection, queue: &Queue) -> Result<Vec<Turn>> {
    let sql = format!(
        "SELECT {TURN} FROM turn u JOIN run r ON r.seq = u.run WHERE u.tenant = ?1 AND u.queue = ?2 ORDER BY u.seq"
    );
    Ok(rows::all(db, &sql, (TENANT, queue.to_string()), read_turn)?.into_iter().flatten().collect())
}

impl Store {
    /// Every turn, in order. None in a database that was only looked at and is of the version before.
    pub fn turns(&self) -> Result<Vec<Turn>> {
        if !breakers::are_there(&self.db)? {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT {TURN} FROM turn u JOIN run r ON r.seq = u.run WHERE u.tenant = ?1 ORDER BY u.seq");
        Ok(rows::all(&self.db, &sql, [TENANT], read_turn)?.into_iter().flatten().collect())
    }

    /// The turns of one queue, in order.
    pub fn turns_in(&self, queue: &Queue) -> Result<Vec<Turn>> {
        in_queue(&self.db, queue)
    }

    /// The run that is RUNNING in a concurrency group, whether or not it has a turn.
    pub fn group_holder(&self, group: &str) -> Result<Option<RunId>> {
        claim::holder_of_group(&self.db, group)
    }

    /// Takes a place in a queue, at its end, and looks at once whether it is its turn. A run has one place in a queue: one
    /// that a dead process left is taken over where it stands; one of a living process is not taken ([`StoreError::Held`]).
    pub fn queue_up(&mut self, asked: &Asked<'_>, ctx: &Context) -> Result<Place> {
        self.write(ctx, |w| {
            forget(w, asked.queue, asked.gone, Some(asked.run))?;
            let run = claim::find(w, asked.run)?;
            let known = in_queue(w.db(), asked.queue)?.into_iter().find(|t| t.run == *asked.run);
            let turn = match known {
                // Its own from before, or one whose process cannot come back and leave it as if it were its own.
                Some(turn) if turn.holder == *asked.holder || is_surely_dead(&turn, asked) => {
                    take_over(w, turn.seq, asked)?;
                    turn.seq
                }
                Some(turn) if asked.takes_over || asked.gone.contains(&turn.seq) => {
                    w.run("DELETE FROM turn WHERE seq = ?1", [rows::int(turn.seq)])?;
                    enqueue(w, (run.seq, run.fence), asked)?
                }
                Some(_) => return Err(StoreError::Held { run: asked.run.clone(), fence: run.fence }),
                None => enqueue(w, (run.seq, run.fence), asked)?,
            };
            Ok(Place { turn, next: step(w, turn, asked)? })
        })
    }

    /// Looks again whether it is somebody's turn; takes it if so.
    pub fn take_turn(&mut self, turn: u64, asked: &Asked<'_>, ctx: &Context) -> Result<Turned> {
        self.write(ctx, |w| {
            forget(w, asked.queue, asked.gone, None)?;
            step(w, turn, asked)
        })
    }

    /// The same, without writing anything: what the answer would be if the processes of `asked.gone` are gone.
    pub fn look_at_turn(&self, turn: u64, asked: &Asked<'_>, now: UtcMs) -> Result<Turned> {
        let mut turns = in_queue(&self.db, asked.queue)?;
        turns.retain(|t| !asked.gone.contains(&t.seq));
        let breakers = breakers::of_queue(&self.db, asked.queue)?;
        Ok(match decide(&turns, turn, asked, &breakers, now) {
            Next::Go | Next::Try if group_is_held(&self.db, asked)? => Turned::Queue { ahead: 1 },
            next => turned(next),
        })
    }

    /// Gives a sign of life of somebody who waits.
    pub fn keep_turn(&mut self, turn: u64, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| w.run("UPDATE turn SET seen_at = ?2 WHERE seq = ?1", (rows::int(turn), w.now())).map(drop))
    }

    /// Leaves a queue: the turn is over, or is waited for no more.
    pub fn leave_turn(&mut self, turn: u64, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| w.run("DELETE FROM turn WHERE seq = ?1", [rows::int(turn)]).map(drop))
    }
}

fn is_surely_dead(turn: &Turn, asked: &Asked<'_>) -> bool {
    asked.gone.contains(&turn.seq) && turn.holder.boot_id == asked.holder.boot_id
}

/// What the holder's heartbeat keeps alive besides its run.
pub(super) fn keep_of_run(w: &Writer<'_>, run: i64) -> Result<()> {
    w.run("UPDATE turn SET seen_at = ?2 WHERE run = ?1", (run, w.now())).map(drop)
}

/// Removes turns whose processes are gone, but for the one that its own run takes over.
fn forget(w: &Writer<'_>, queue: &Queue, gone: &[u64], but: Option<&RunId>) -> Result<()> {
    for turn in in_queue(w.db(), queue)?.iter().filter(|t| gone.contains(&t.seq) && Some(&t.run) != but) {
        w.run("DELETE FROM turn WHERE seq = ?1", [rows::int(turn.seq)])?;
    }
    Ok(())
}

/// Takes the last place of a queue.
pub(super) fn enqueue(w: &Writer<'_>, (run, fence): (i64, u64), asked: &Asked<'_>) -> Result<u64> {
    let params = rusqlite::params![
        TENANT,
        asked.queue.to_string(),
        run,
        asked.agent,
        TurnState::Waiting.word(),
        asked.insists,
        asked.holder.pid,
        rows::int(asked.holder.start_ticks),
        asked.holder.boot_id.0,
        w.now(),
        rows::int(fence),
    ];
    let seq = w.insert(
        "INSERT INTO turn (tenant, queue, run, agent, state, insists, holder_pid, holder_start_ticks, holder_boot_id, \
         since, seen_at, fence) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)",
        params,
    )?;
    u64::try_from(seq).map_err(|_| StoreError::Internal(format!("turn {seq}")))
}

/// The place of a process that died goes to the one that goes on with its run. It waits again: a trial that was under way
/// is nobody's now.
fn take_over(w: &Writer<'_>, turn: u64, asked: &Asked<'_>) -> Result<()> {
    let params = rusqlite::params![
        rows::int(turn),
        TurnState::Waiting.word(),
        asked.agent,
        asked.insists,
        asked.holder.pid,
        rows::int(asked.holder.start_ticks),
        asked.holder.boot_id.0,
        w.now(),
    ];
    w.run(
        "UPDATE turn SET state = ?2, agent = ?3, insists = ?4, holder_pid = ?5, holder_start_ticks = ?6, \
         holder_boot_id = ?7, seen_at = ?8 WHERE seq = ?1",
        params,
    )?;
    Ok(())
}

/// Whose turn it is, by the domain; and takes it.
fn step(w: &mut Writer<'_>, own: u64, asked: &Asked<'_>) -> Result<Turned> {
    let turns = in_queue(w.db(), asked.queue)?;
    if turns.iter().any(|t| t.seq == own && t.state == TurnState::Taken) {
        return Ok(Turned::Taken);
    }
    let breakers = breakers::of_queue(w.db(), asked.queue)?;
    let now = w.ctx().now.utc;
    match decide(&turns, own, asked, &breakers, now) {
        Next::Go | Next::Try if group_is_held(w.db(), asked)? => return Ok(Turned::Queue { ahead: 1 }),
        Next::Go => {}
        Next::Try => {
            let turn = turns.iter().find(|t| t.seq == own);
            for breaker in breakers.iter().filter(|b| turn.is_some_and(|t| is_about(b, t))) {
                breakers::claim_trial(w, breaker, own, asked)?;
            }
        }
        other => return Ok(turned(other)),
    }
    let sql = "UPDATE turn SET state = ?2, seen_at = ?3 WHERE seq = ?1 AND state = ?4";
    let params = (rows::int(own), TurnState::Taken.word(), w.now(), TurnState::Waiting.word());
    if w.run(sql, params)? == 0 {
        return Ok(Turned::Lost);
    }
    told(w, own, &turns, asked)?;
    Ok(Turned::Taken)
}

/// Who had to wait finds in its log for how long and for what.
fn told(w: &mut Writer<'_>, own: u64, turns: &[Turn], asked: &Asked<'_>) -> Result<()> {
    let Some(turn) = turns.iter().find(|t| t.seq == own && t.since < w.ctx().now.utc) else { return Ok(()) };
    let run = claim::find(w, asked.run)?;
    let body = json!({ "queue": asked.queue, "waited_ms": w.ctx().now.utc.0 - turn.since.0, "agent": turn.agent });
    let (attempt, fence) = (Some(run.attempt).filter(|n| *n > 0), Some(run.fence));
    let kind = EventKind::TurnTaken;
    w.append(&Fact { kind, run: Some(asked.run), attempt, fence, step: None, reason: None, body })
}

fn decide<'b>(turns: &[Turn], own: u64, asked: &Asked<'_>, breakers: &'b [Breaker], now: UtcMs) -> Next<'b> {
    let passage = |turn: &Turn| -> Passage<'b> {
        let about = breakers.iter().filter(|b| is_about(b, turn));
        breaker::narrowest(about.map(|b| {
            let is_taken = |trial| turns.iter().any(|t| t.seq == trial && t.state == TurnState::Taken);
            breaker::passage(b, b.trial.is_some_and(|trial| is_taken(trial.turn)), now, turn.insists)
        }))
    };
    turn::next(turns, own, asked.limit, passage)
}

/// Whether a breaker is about the agent of a turn.
fn is_about(breaker: &Breaker, turn: &Turn) -> bool {
    breaker.agent.is_none() || breaker.agent == turn.agent
}

/// A run of the group that is RUNNING without a turn: its holder died, and what it left is not settled (R-W6).
fn group_is_held(db: &rusqlite::Connection, asked: &Asked<'_>) -> Result<bool> {
    let Queue::Group(group) = asked.queue else { return Ok(false) };
    Ok(claim::holder_of_group(db, group)?.is_some_and(|run| run != *asked.run))
}

fn turned(next: Next<'_>) -> Turned {
    match next {
        Next::Go | Next::Try => Turned::Due,
        Next::Queue { ahead } => Turned::Queue { ahead },
        Next::Shut(breaker) => Turned::Shut(Box::new(breaker.clone())),
        Next::Lost => Turned::Lost,
    }
}

/// Whether another run has the group's turn, or waits for it, beside the one that is RUNNING.
pub(super) fn group_turn(w: &Writer<'_>, group: &str) -> Result<Option<RunId>> {
    if let Some(run) = group_holder(w, group)? {
        return Ok(Some(run));
    }
    Ok(in_queue(w.db(), &Queue::Group(group.to_owned()))?.into_iter().next().map(|t| t.run))
}
