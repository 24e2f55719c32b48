//! `agentrun approval`: what persons were and are asked for.

use clap::{Args, Subcommand};

use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::action::state::ApprovalState;
use crate::domain::failure::Exit;
use crate::ops::approval::{self, Asked, Ruling, Word};
use crate::report::approval::{ApprovalDocument, approval_json, approval_text, approvals_json, approvals_table};

/// `approval`.
#[derive(Debug, Args)]
pub struct ApprovalArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: ApprovalVerb,
}

/// `approval …`.
#[derive(Debug, Subcommand)]
pub enum ApprovalVerb {
    /// List what waits for a person, and what was agreed to and is not used yet.
    List {
        /// Past ones, too.
        #[arg(long)]
        all: bool,
    },
    /// Show exactly what a person is asked for.
    Show {
        /// The approval, its action, its step, or the run that waits.
        id: String,
    },
    /// Take an agreement back: it counts no more.
    Revoke {
        /// The approval, its action, its step, or its run.
        id: String,
        /// Why; recorded.
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

/// Runs it.
pub fn run(session: &mut Session, args: &ApprovalArgs) -> Result<Exit, CliError> {
    let place = session.place()?;
    match &args.verb {
        ApprovalVerb::List { all } => {
            let states = if *all { [].as_slice() } else { &[ApprovalState::Open, ApprovalState::Approved] };
            let mut found = approval::list(&place, states)?;
            found.sort_by_key(|a| a.state != ApprovalState::Open);
            if session.json {
                session.say.json(&approvals_json(&found));
            } else {
                let text = approvals_table(&found, &session.style());
                session.say.result(&text);
            }
        }
        ApprovalVerb::Show { id } => {
            let asked = approval::find(&place, id)?;
            if session.json {
                session.say.json(&approval_json(&document(&asked)));
            } else {
                let text = approval_text(&document(&asked), &session.style());
                session.say.result(&text);
            }
        }
        ApprovalVerb::Revoke { id, reason } => {
            approval::refuse_inside(&place)?;
            let asked = approval::find(&place, id)?;
            let word = Word { ruling: Ruling::Revoke, digest: None, reason: Some(reason) };
            let decided = approval::decide(&place, &session.who, &asked, word)?;
            super::approve::answer(session, &decided);
        }
    }
    Ok(Exit::Ok)
}

/// An approval as a report shows it.
pub fn document(asked: &Asked) -> ApprovalDocument<'_> {
    ApprovalDocument {
        approval: &asked.approval,
        action: asked.action.as_ref(),
        input: asked.input.as_ref(),
        may: &asked.may,
    }
}
