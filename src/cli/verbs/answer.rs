//! The answer of a command that led to a run: its JSON, or a block of words.

use crate::cli::session::Session;
use crate::ops::carry::Answer;
use crate::ops::show::Shown;
use crate::report::action_json::Keys;
use crate::report::run_json::{Extras, run_json};
use crate::report::text::end_block;

/// Says a run and how it was come to.
pub fn say(session: &mut Session, answer: &Answer, shown: &Shown) {
    if session.json {
        let branch = shown.branch.as_deref();
        let extras = Extras {
            via: Some(answer.via),
            meaning: &shown.meaning,
            branch,
            warnings: &shown.warnings,
            keys: Keys::Shown,
        };
        session.say.json(&run_json(&answer.view, &extras));
        return;
    }
    if let Some(remark) = &answer.remark {
        session.say.chat(remark);
    }
    let mut text = end_block(&answer.view, &shown.meaning, &session.style());
    if let Some(branch) = &shown.branch {
        text.push_str(&format!("  branch: {branch}\n"));
    }
    session.say.result(&text);
}
