//! `agentrun approve` and `agentrun reject`: shows exactly what is decided about, asks, and records the answer.

use clap::Args;

use super::approval::document;
use crate::cli::error::CliError;
use crate::cli::say;
use crate::cli::session::Session;
use crate::domain::action::state::ApprovalState;
use crate::domain::failure::Exit;
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::machine::Word as _;
use crate::ops::approval::{self, Asked, Ruling, Word};
use crate::ops::calling::Inbox;
use crate::ops::carry::{self, Acting};
use crate::ops::place::Place;
use crate::report::approval::{approval_json, approval_text};

/// `approve` and `reject`.
#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The approval, its action or a beginning of it, its step (run_182_001_deploy), or the run that waits.
    pub id: String,
    /// Decide about what is there now, without being asked.
    #[arg(long)]
    pub yes: bool,
    /// Decide only about exactly this, as it was shown: sha256:….
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
    /// Why; recorded.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// Runs it.
pub fn run(session: &mut Session, args: &DecideArgs, ruling: Ruling) -> Result<Exit, CliError> {
    let place = session.place()?;
    approval::refuse_inside(&place)?;
    let given = match &args.digest {
        Some(text) => Some(
            Sha256Hash::parse(text.strip_prefix("sha256:").unwrap_or(text))
                .ok_or_else(|| CliError::usage(format!("`{text}` is no digest: sha256: and 64 hex digits")))?,
        ),
        None => None,
    };
    let asked = approval::find(&place, &args.id)?;
    let is_open = asked.approval.state == ApprovalState::Open;
    if !session.json {
        let text = approval_text(&document(&asked), &session.style());
        session.say.note(&text);
    }
    if is_open {
        approval::refuse_unentitled(&place, &session.who, &asked)?;
    }
    // One that is decided needs no question: the record says by whom.
    if is_open && !args.yes && given.is_none() {
        ask(session, &asked, ruling)?;
    }
    let digest = Some(given.unwrap_or(asked.approval.digest));
    let word = Word { ruling, digest, reason: args.reason.as_deref() };
    let decided = approval::decide(&place, &session.who, &asked, word)?;
    if ruling == Ruling::Reject {
        tell_end(session, &place, &decided)?;
    }
    answer(session, &decided);
    Ok(Exit::Ok)
}

fn ask(session: &Session, asked: &Asked, ruling: Ruling) -> Result<(), CliError> {
    let (verb, id) = (ruling.word(), &asked.approval.id);
    let command = format!("agentrun {verb} {id} --digest sha256:{}", asked.approval.digest.hex());
    if !session.asks {
        let message = format!("nobody can be asked here whether to {verb} {id}");
        return Err(CliError::usage(message).hinting(&format!("to {verb} exactly this: {command}")));
    }
    if say::agrees(&format!("{verb} this?")) {
        return Ok(());
    }
    Err(CliError::usage("nothing was decided").hinting(&format!("to {verb} exactly this: {command}")))
}

/// A rejected run has come to its end: its report and manifest say so.
fn tell_end(session: &Session, place: &Place, decided: &Asked) -> Result<(), CliError> {
    let inbox = Inbox::new();
    let own_program = session.own_program()?;
    let mut progress = session.progress();
    let acting = Acting { who: session.who.clone(), inbox: &inbox, observer: &mut progress, own_program: &own_program };
    carry::at_rest(place, &place.home()?, &acting, place.store()?, &decided.approval.run)?;
    Ok(())
}

/// What was decided, and what to do next.
pub fn answer(session: &mut Session, decided: &Asked) {
    if session.json {
        session.say.json(&approval_json(&document(decided)));
        return;
    }
    let approval = &decided.approval;
    session.say.result(&format!("{} {}: {}", approval.id, approval.state, approval::step_of(approval)));
    let next = match approval.state {
        ApprovalState::Approved => format!("next: agentrun resume {}", approval.run),
        _ => format!("next: agentrun show {}", approval.run),
    };
    session.say.chat(&next);
}
