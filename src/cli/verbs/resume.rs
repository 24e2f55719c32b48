//! `agentrun resume`: the one verb to go on after anything.

use super::start::{finish, tell_abandoned};
use crate::cli::args::ResumeArgs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::budget::{LimitKind, Scope};
use crate::domain::failure::{Code, Exit};
use crate::domain::ids::RunId;
use crate::domain::machine::Word as _;
use crate::domain::plan::resume::{Difference, DifferenceCode, ResumeVerdict};
use crate::domain::quantity::{Millis, parse_count, parse_micros};
use crate::ops::calling::{Hangup, Inbox};
use crate::ops::carry::Acting;
use crate::ops::find;
use crate::ops::place::Place;
use crate::ops::resume::{self, Many, Outlook, ResumeOptions};
use crate::report::record_json::{ResumeDifference, ResumeDocument, resume_json};
use crate::report::text::resume_text;

/// Runs it.
pub fn run(session: &mut Session, args: ResumeArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    let options = options(&args)?;
    if args.stale {
        return each(session, &place, Many::Stale, &options);
    }
    if args.due {
        return each(session, &place, Many::Due, &options);
    }
    let run = find::run(&place, place.records()?.as_ref(), args.run.as_deref().unwrap_or_default())?.id;
    if args.dry_run {
        return dry_run(session, &place, &run, &options);
    }
    let exit = one(session, &place, &run, &options)?;
    tell_abandoned(session, &place, &run);
    Ok(exit)
}

fn one(session: &mut Session, place: &Place, run: &RunId, options: &ResumeOptions) -> Result<Exit, CliError> {
    let inbox = Inbox::new();
    let _listener = session.listen(&inbox, Hangup::Stops)?;
    let own_program = session.own_program()?;
    let mut progress = session.progress();
    let say = &mut session.say;
    let acting = Acting { who: session.who.clone(), inbox: &inbox, observer: &mut progress, own_program: &own_program };
    // Where nothing differs there is nothing to explain.
    let mut explain = |outlook: &Outlook| {
        if !outlook.differences.is_empty() {
            say.chat(&text_of(outlook));
        }
    };
    let answer = resume::resume(place, acting, run, options, &mut explain);
    progress.finish();
    finish(session, place, &answer?, None)
}

/// Several runs, one after the other; the most careful exit of all of them.
fn each(session: &mut Session, place: &Place, which: Many, options: &ResumeOptions) -> Result<Exit, CliError> {
    let runs = resume::many(place, which)?;
    if runs.is_empty() {
        session.say.chat(match which {
            Many::Stale | Many::Abandoned => "no run has lost its holder",
            Many::Due => "no parked run may be tried again yet",
        });
    }
    let mut exits = Vec::new();
    for run in runs {
        // One that refuses is said, and is in nobody else's way; a signal ends the row.
        let exit = match one(session, place, &run, options) {
            Ok(exit) => exit,
            Err(error) => {
                error.say(&mut session.say, session.json);
                error.exit()
            }
        };
        exits.push(exit);
        if matches!(exit, Exit::Interrupted | Exit::Terminated | Exit::Hangup) {
            break;
        }
    }
    Ok(exits.into_iter().min_by_key(|e| e.care()).unwrap_or(Exit::Ok))
}

fn dry_run(session: &mut Session, place: &Place, run: &RunId, options: &ResumeOptions) -> Result<Exit, CliError> {
    let inbox = Inbox::new();
    let own_program = session.own_program()?;
    let mut progress = session.progress();
    let acting = Acting { who: session.who.clone(), inbox: &inbox, observer: &mut progress, own_program: &own_program };
    let outlook = resume::outlook(place, &acting, run, options)?;
    if session.json {
        session.say.json(&with_document(&outlook, resume_json));
    } else {
        session.say.result(&text_of(&outlook));
    }
    Ok(match outlook.verdict {
        ResumeVerdict::Valid => Exit::Ok,
        ResumeVerdict::ReviewRequired | ResumeVerdict::ResumeBlocked => Exit::ReviewRequired,
    })
}

fn text_of(outlook: &Outlook) -> String {
    with_document(outlook, resume_text)
}

fn with_document<T>(outlook: &Outlook, render: impl FnOnce(&ResumeDocument<'_>) -> T) -> T {
    let difference = |d: &Difference| ResumeDifference {
        code: d.code.word().to_owned(),
        old: d.old.clone(),
        new: d.new.clone(),
        verdict: d.verdict.word().to_owned(),
        note: d.note.clone(),
    };
    let differences: Vec<_> = outlook.differences.iter().map(difference).collect();
    render(&ResumeDocument {
        run: &outlook.view.run.id,
        verdict: outlook.verdict.word(),
        next_step: outlook.next_step.as_ref(),
        policy_ref: outlook.policy_rev(),
        differences: &differences,
        next: None,
    })
}

fn options(args: &ResumeArgs) -> Result<ResumeOptions, CliError> {
    let mut accept = Vec::new();
    for text in &args.accept {
        let code = DifferenceCode::from_word(&text.to_ascii_uppercase());
        let known = || DifferenceCode::ALL.iter().map(|c| c.word()).collect::<Vec<_>>().join(", ");
        accept.push(
            code.ok_or_else(|| {
                CliError::usage(format!("--accept `{text}` is no difference; it is one of {}", known()))
            })?,
        );
    }
    let budget = args.budget.iter().map(|text| limit(text)).collect::<Result<Vec<_>, _>>()?;
    Ok(ResumeOptions {
        accept,
        budget,
        send_back: args.send_back,
        keep: args.keep,
        rebuild: args.rebuild,
        now: args.now,
        no_wait: false,
        reason: args.reason.clone(),
    })
}

/// `task.tokens=800k`. A bad one is refused before anything is touched (FR-D22).
fn limit(text: &str) -> Result<(Scope, LimitKind, u64), CliError> {
    let bad = |why: String| CliError::new(Code::Usage, format!("--budget `{text}`: {why}"));
    let form = || bad("it has the form task.tokens=800k".to_owned());
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    let (scope, kind) = name.split_once('.').ok_or_else(form)?;
    let scope = Scope::from_word(scope).ok_or_else(|| bad(format!("`{scope}` is neither task nor attempt")))?;
    let kind = LimitKind::from_word(kind).ok_or_else(|| {
        let known: Vec<_> = LimitKind::ALL.iter().map(|k| k.word()).collect();
        bad(format!("`{kind}` is none of {}", known.join(", ")))
    })?;
    let amount = match kind {
        LimitKind::Time => Millis::parse(value).map(|t| t.0),
        LimitKind::Cost => parse_micros(value),
        _ => parse_count(value),
    };
    Ok((scope, kind, amount.map_err(|e| bad(e.to_string()))?))
}
