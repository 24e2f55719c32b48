//! `agentrun start`: the main job.

use super::{answer, task};
use crate::cli::args::StartArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::domain::ids::RunId;
use crate::domain::plan::start::{AfterFailure, Existing, Follow, Wishes};
use crate::domain::text::neutral_line;
use crate::ops::calling::{Hangup, Inbox};
use crate::ops::carry::{Acting, Answer};
use crate::ops::resume::{Many, many};
use crate::ops::start::{self, Plan, StartOptions};
use crate::ops::{detach, on_end, show};
use crate::report::command_json::plan_json;

/// Runs it.
pub fn run(session: &mut Session, args: Box<StartArgs>) -> Result<Exit, CliError> {
    let place = session.place()?;
    let options = options(&args)?;
    if args.dry_run {
        let plan = start::plan(&place, &options)?;
        return Ok(say_plan(session, &plan));
    }
    let inbox = Inbox::new();
    let _listener = session.listen(&inbox, Hangup::Stops)?;
    let own_program = session.own_program()?;
    let mut progress = session.progress();
    let acting = Acting { who: session.who.clone(), inbox: &inbox, observer: &mut progress, own_program: &own_program };
    let answer = start::start(&place, acting, &options);
    progress.finish();
    let mut answer = answer?;
    if args.detach && answer.exit == Exit::Ok && answer.view.run.attempt == 0 {
        detach::go_on(&place, &own_program, &session.who, &answer.view.run.id)?;
        answer.remark = Some("accepted; it runs in the background".to_owned());
    }
    let exit = finish(session, &place, &answer, args.on_end.as_deref())?;
    tell_abandoned(session, &place, &answer.view.run.id);
    Ok(exit)
}

/// Says the answer and tells whoever wanted to be told.
pub fn finish(
    session: &mut Session,
    place: &crate::ops::place::Place,
    answer: &Answer,
    on_end: Option<&str>,
) -> Result<Exit, CliError> {
    let shown = show::show(place, answer.view.run.id.as_str())?;
    answer::say(session, answer, &shown);
    if let Some(command) = on_end
        && let Err(error) = on_end::tell(place, command, &shown)
    {
        session.say.note(&format!("warning: --on-end failed: {error}"));
    }
    Ok(answer.exit)
}

/// Whoever starts or resumes something is told of runs that nobody works on any more: nothing else would tell (R-R6). What
/// hinders the look hinders nothing else.
pub fn tell_abandoned(session: &mut Session, place: &crate::ops::place::Place, besides: &RunId) {
    let abandoned = many(place, Many::Abandoned).unwrap_or_default();
    let others: Vec<String> = abandoned.iter().filter(|run| *run != besides).map(ToString::to_string).collect();
    if !others.is_empty() {
        let names = others.join(", ");
        session.say.note(&format!("note: the process that worked on {names} is gone: agentrun resume --stale goes on"));
    }
}

fn options(args: &StartArgs) -> Result<StartOptions, CliError> {
    let follow = if args.no_wait || args.detach { Follow::No } else { Follow::ToTheEnd };
    let after_failure = if args.resume { AfterFailure::Resume } else { AfterFailure::Offer };
    Ok(StartOptions {
        task: task::choice(&args.task),
        choices: task::choices(&args.task)?,
        dirty: task::dirty(&args.task),
        fresh: args.new,
        wishes: Wishes { follow, after_failure },
        idempotency_key: args.idempotency_key.clone(),
        accept_only: args.detach,
    })
}

fn say_plan(session: &mut Session, plan: &Plan) -> Exit {
    let would = match &plan.existing {
        None => "a new run".to_owned(),
        Some((run, decision)) => format!("{} {}", word(*decision), run.id),
    };
    let steps = start::steps(&plan.facts.inputs.spec);
    if session.json {
        let existing = plan.existing.as_ref().map(|(run, decision)| (&run.id, word(*decision)));
        session.say.json(&plan_json(&plan.facts.components, &steps, existing));
        return Exit::Ok;
    }
    let mut text = format!("would do: {would}\nfingerprint {}\n", plan.facts.components.fingerprint());
    for (name, value) in plan.facts.components.fields() {
        text.push_str(&format!("  {name}: {}\n", value.as_deref().unwrap_or("none")));
    }
    text.push_str("steps:\n");
    for (key, kind, what) in steps {
        text.push_str(&format!("  {key} ({kind}) {}\n", if what == key { "".into() } else { neutral_line(&what) }));
    }
    session.say.result(&text);
    Exit::Ok
}

fn word(decision: Existing) -> &'static str {
    match decision {
        Existing::Reuse => "reuse",
        Existing::Attach => "follow",
        Existing::TellBusy => "be told of",
        Existing::TakeOver => "go on with",
        Existing::Tell(_) => "be told the state of",
    }
}
