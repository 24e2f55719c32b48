//! Breakers: what ended calls say about their provider, written down for every process on this database (R-R8, R-R1). Every
//! change leaves an event in the home's chain: a provider belongs to no run. What a failure means, and how long a provider
//! is left alone, is decided in `domain::breaker`.

use rusqlite::Connection;
use serde_json::json;

use super::calls::{Asked, Context, EndedCall};
use super::error::Result;
use super::write::{Fact, Writer};
use super::{Store, TENANT, claim::in_list, rows};
use crate::domain::breaker::{BREAKER, Breaker, BreakerEvent, BreakerState, Cause, Said, Trial, rest, said, trips};
use crate::domain::event::EventKind;
use crate::domain::failure::{Code, Failure};
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::quantity::{Millis, UtcMs};
use crate::domain::turn::Queue;

const BREAKER_COLUMNS: &str =
    "provider, agent, state, cause, code, message, run, since, until, rounds, trial, trial_until";

fn read_breaker(row: &mut rows::Fields<'_>) -> Result<Breaker> {
    Ok(Breaker {
        provider: row.take()?,
        agent: Some(row.take::<String>()?).filter(|agent| !agent.is_empty()),
        state: row.word()?,
        cause: row.word()?,
        code: row.word()?,
        message: row.take()?,
        run: RunId::recorded(row.take::<String>()?),
        since: UtcMs(row.take()?),
        until: UtcMs(row.take()?),
        rounds: row.take()?,
        trial: {
            let (turn, until) = (row.take::<Option<i64>>()?, row.opt_time()?);
            let turn = turn.and_then(|turn| u64::try_from(turn).ok());
            turn.zip(until).map(|(turn, until)| Trial { turn, until })
        },
    })
}

/// False in a database of version 1, which may be looked at and is migrated by the first that writes.
pub(super) fn are_there(db: &Connection) -> Result<bool> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'breaker'";
    Ok(rows::first(db, sql, (), |_| Ok(()))?.is_some())
}

/// The breakers that a queue's turns may meet.
pub(super) fn of_queue(db: &Connection, queue: &Queue) -> Result<Vec<Breaker>> {
    let Queue::Provider(provider) = queue else { return Ok(Vec::new()) };
    let sql = format!("SELECT {BREAKER_COLUMNS} FROM breaker WHERE tenant = ?1 AND provider = ?2 ORDER BY agent");
    rows::all(db, &sql, (TENANT, provider), read_breaker)
}

impl Store {
    /// Every breaker that is not closed.
    pub fn breakers(&self) -> Result<Vec<Breaker>> {
        if !are_there(&self.db)? {
            return Ok(Vec::new());
        }
        let sql =
            format!("SELECT {BREAKER_COLUMNS} FROM breaker WHERE tenant = ?1 AND state <> ?2 ORDER BY provider, agent");
        rows::all(&self.db, &sql, (TENANT, BreakerState::Closed.word()), read_breaker)
    }

    /// The provider answered a call that has not ended yet: a trial has done what it was for.
    pub fn call_answered(&mut self, provider: &str, turn: u64, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| succeed(w, provider, turn))
    }

    /// A call has ended: what it says about its provider is recorded, and its turn is over. A call whose turn was given to
    /// somebody else meanwhile still says what it saw.
    pub fn end_call(&mut self, call: &EndedCall<'_>, ctx: &Context) -> Result<()> {
        self.write(ctx, |w| {
            match said(call.failure) {
                Said::Answered => succeed(w, call.provider, call.turn)?,
                Said::Silent => silent(w, call)?,
                Said::Refused(cause) => refused(w, call, cause)?,
                Said::Nothing => give_back(w, call)?,
            }
            w.run("DELETE FROM turn WHERE seq = ?1", [rows::int(call.turn)]).map(drop)
        })
    }
}

/// One call becomes the trial of a breaker: of any number that want to, the first.
pub(super) fn claim_trial(w: &mut Writer<'_>, breaker: &Breaker, turn: u64, asked: &Asked<'_>) -> Result<()> {
    let event = match breaker.state {
        BreakerState::Closed => return Ok(()),
        BreakerState::Open => BreakerEvent::Try,
        BreakerState::HalfOpen => BreakerEvent::TryAgain,
    };
    let trial = Some(Trial { turn, until: w.ctx().now.utc.plus(asked.trial) });
    let run = asked.run.clone();
    put(w, breaker, event, Breaker { trial, ..breaker.clone() }, &run)
}

/// The breakers of a provider whose trial is this turn.
fn tried_by(w: &Writer<'_>, provider: &str, turn: u64) -> Result<Vec<Breaker>> {
    let all = of_queue(w.db(), &Queue::Provider(provider.to_owned()))?;
    let is_own = |b: &Breaker| b.state == BreakerState::HalfOpen && b.trial.is_some_and(|t| t.turn == turn);
    Ok(all.into_iter().filter(is_own).collect())
}

fn succeed(w: &mut Writer<'_>, provider: &str, turn: u64) -> Result<()> {
    for breaker in tried_by(w, provider, turn)? {
        let run = run_of_turn(w, turn)?.unwrap_or_else(|| breaker.run.clone());
        close(w, &breaker, &run)?;
    }
    Ok(())
}

/// A trial was answered. What led to it is over, or the next failure alone would open it again.
fn close(w: &mut Writer<'_>, breaker: &Breaker, run: &RunId) -> Result<()> {
    let agent = breaker.agent.as_deref().unwrap_or_default();
    let params = (TENANT, &breaker.provider, agent);
    w.run("DELETE FROM silence WHERE tenant = ?1 AND provider = ?2 AND agent = ?3", params)?;
    let closed = Breaker { trial: None, rounds: 0, ..breaker.clone() };
    put(w, breaker, BreakerEvent::Succeed, closed, run)
}

/// No answer: the trials fail, and the call counts in its agent's window.
fn silent(w: &mut Writer<'_>, call: &EndedCall<'_>) -> Result<()> {
    let tried = tried_by(w, call.provider, call.turn)?;
    for breaker in &tried {
        let next = opened(w, call, breaker.cause, breaker.rounds + 1, breaker.agent.clone());
        // The cause stays: a limit is not lifted because the question whether it is got no answer.
        let next = Breaker { code: breaker.code, message: breaker.message.clone(), ..next };
        put(w, breaker, BreakerEvent::Fail, next, call.run)?;
    }
    count(w, call)?;
    let (provider, agent) = (call.provider, call.agent);
    let from = w.ctx().now.utc.0.saturating_sub(rows::int(call.rules.per.0));
    let sql = "SELECT count(*) FROM silence WHERE tenant = ?1 AND provider = ?2 AND agent = ?3 AND at > ?4";
    let failures = rows::first(w.db(), sql, (TENANT, provider, agent, from), |row| row.count())?.unwrap_or(0);
    let known = of_queue(w.db(), &Queue::Provider(provider.to_owned()))?;
    let known = known.into_iter().find(|b| b.agent.as_deref() == Some(agent));
    let is_closed = known.as_ref().is_none_or(|b| b.state == BreakerState::Closed);
    if is_closed && trips(&call.rules, failures) {
        let next = opened(w, call, Cause::Outage, 1, Some(agent.to_owned()));
        let before = known.unwrap_or_else(|| Breaker { state: BreakerState::Closed, ..next.clone() });
        put(w, &before, BreakerEvent::Trip, next, call.run)?;
    }
    Ok(())
}

fn count(w: &Writer<'_>, call: &EndedCall<'_>) -> Result<()> {
    let code = call.failure.map_or(Code::Internal, |f| f.code).word();
    let params = (TENANT, call.provider, call.agent, w.now(), code, call.run.as_str());
    let sql = "INSERT INTO silence (tenant, provider, agent, at, code, run) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    w.run(sql, params)?;
    // Another run's policy may look back further, but not beyond a day.
    let past = w.now().saturating_sub(rows::int(call.rules.per.0.max(Millis::mins(24 * 60).0)));
    w.run("DELETE FROM silence WHERE tenant = ?1 AND at < ?2", (TENANT, past)).map(drop)
}

/// A refusal holds the whole provider; an agent's own breaker has had the answer it wanted.
fn refused(w: &mut Writer<'_>, call: &EndedCall<'_>, cause: Cause) -> Result<()> {
    for breaker in tried_by(w, call.provider, call.turn)?.iter().filter(|b| b.agent.is_some()) {
        close(w, breaker, call.run)?;
    }
    let known = of_queue(w.db(), &Queue::Provider(call.provider.to_owned()))?;
    let known = known.into_iter().find(|b| b.agent.is_none());
    // Calls that had begun before: the news of several is one, and the longest hold counts.
    let open = known.as_ref().filter(|b| b.state == BreakerState::Open);
    let rounds = open.map_or_else(|| known.as_ref().map_or(0, |b| b.rounds) + 1, |open| open.rounds);
    let mut next = opened(w, call, cause, rounds, None);
    if let Some(open) = open {
        next = Breaker { since: open.since, ..next };
        if open.until > next.until {
            return Ok(());
        }
    }
    let before = known.unwrap_or_else(|| Breaker { state: BreakerState::Closed, ..next.clone() });
    put(w, &before, BreakerEvent::Hold, next, call.run)
}

fn give_back(w: &mut Writer<'_>, call: &EndedCall<'_>) -> Result<()> {
    for breaker in tried_by(w, call.provider, call.turn)? {
        let back = Breaker { trial: None, ..breaker.clone() };
        put(w, &breaker, BreakerEvent::GiveBack, back, call.run)?;
    }
    Ok(())
}

fn opened(w: &Writer<'_>, call: &EndedCall<'_>, cause: Cause, rounds: u32, agent: Option<String>) -> Breaker {
    let told = call.failure.and_then(|f| f.retry_after);
    let since = w.ctx().now.utc;
    Breaker {
        provider: call.provider.to_owned(),
        agent,
        state: BreakerState::Open,
        cause,
        code: call.failure.map_or(Code::Internal, |f| f.code),
        message: call.failure.map(|f: &Failure| f.message.clone()).unwrap_or_default(),
        run: call.run.clone(),
        since,
        until: since.plus(rest(&call.rules, cause, told, rounds)),
        rounds,
        trial: None,
    }
}

/// Moves a breaker by the table, only from the state in which it was found, and tells of it.
pub(super) fn put(w: &mut Writer<'_>, before: &Breaker, event: BreakerEvent, next: Breaker, by: &RunId) -> Result<()> {
    let state = BREAKER.next(before.state, event)?;
    let params = rusqlite::params![
        TENANT,
        next.provider,
        next.agent.as_deref().unwrap_or_default(),
        state.word(),
        next.cause.word(),
        next.code.word(),
        next.message,
        next.run.as_str(),
        next.since.0,
        next.until.0,
        next.rounds,
        next.trial.map(|t| rows::int(t.turn)),
        next.trial.map(|t| t.until.0),
    ];
    let sql = format!(
        "INSERT INTO breaker (tenant, {BREAKER_COLUMNS}) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) \
         ON CONFLICT (tenant, provider, agent) DO UPDATE SET state = excluded.state, cause = excluded.cause, \
         code = excluded.code, message = excluded.message, run = excluded.run, since = excluded.since, \
         until = excluded.until, rounds = excluded.rounds, trial = excluded.trial, trial_until = excluded.trial_until \
         WHERE breaker.state IN ({})",
        in_list(BREAKER.sources(event))
    );
    if w.run(&sql, params)? == 0 {
        return Err(BREAKER.refusal(before.state.word(), event).into());
    }
    let kind = match event {
        BreakerEvent::Trip | BreakerEvent::Hold | BreakerEvent::Fail => EventKind::ProviderHeld,
        BreakerEvent::Try | BreakerEvent::TryAgain => EventKind::ProviderTried,
        BreakerEvent::GiveBack => EventKind::ProviderLeft,
        BreakerEvent::Succeed => EventKind::ProviderFreed,
    };
    let body = json!({
        "provider": next.provider, "agent": next.agent, "from": before.state, "to": state, "event": event,
        "cause": next.cause, "code": next.code, "until": next.until.0, "round": next.rounds, "by": by,
    });
    let reason = Some(next.message.as_str());
    w.append(&Fact { kind, run: None, attempt: None, fence: None, step: None, reason, body })
}

fn run_of_turn(w: &Writer<'_>, turn: u64) -> Result<Option<RunId>> {
    let sql = "SELECT r.id FROM turn u JOIN run r ON r.seq = u.run WHERE u.seq = ?1";
    rows::first(w.db(), sql, [rows::int(turn)], |row| Ok(RunId::recorded(row.take::<String>()?)))
}
