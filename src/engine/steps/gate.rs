//! Asks the policy about a command line before it is started (R-P3), and about one that an agent was seen to run. Reads the
//! scripts that it would execute, as far as they lie open. A guard rail: what a program does inside itself is not seen here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::domain::failure::{Code, Failure};
use crate::domain::policy::Policy;
use crate::domain::policy::Verdict;
use crate::domain::policy::command::{ATTRIBUTES, CommandReading, read_command, read_script};
use crate::domain::policy::decide::{Asked, Stopped, stops};
use crate::domain::task::{CommandLine, StepBody, StepSpec};

/// Scripts that are read for one command line at most.
const MAX_SCRIPTS: usize = 32;

/// Bytes of a script that are read at most; a longer one is a program.
const MAX_BYTES: u64 = 256 << 10;

/// What a rule says against a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// The rule and its reason, in words.
    pub why: String,
    /// How the same is done without its objection; empty where there is no such way.
    pub way_out: &'static str,
    /// For the audit event: rule, verdict, effect and its attributes.
    pub body: Value,
}

impl Objection {
    /// As the failure of a step that is not started for it.
    pub fn failure(&self) -> Failure {
        Failure::new(Code::PolicyDenied, format!("{}: the command was not started{}", self.why, self.way_out))
    }
}

/// What the rules say against a step's command; nothing for one that may start.
pub fn against_step(
    policy: &Policy,
    step: &StepSpec,
    (vars, dir): (&BTreeMap<OsString, OsString>, &Path),
) -> Option<Objection> {
    let run = match &step.body {
        StepBody::Qa { run, .. } | StepBody::Command { run } => run,
        StepBody::Deploy(deploy) => &deploy.run,
        StepBody::Action(action) => action.run.as_ref()?,
        _ => return None,
    };
    let mut vars = texts(vars);
    vars.extend(step.env.clone());
    against(policy, run, (&vars, dir))
}

/// What the rules say against a command line that runs in this folder with these variables.
pub fn against(
    policy: &Policy,
    line: &CommandLine,
    (vars, dir): (&BTreeMap<String, String>, &Path),
) -> Option<Objection> {
    // A policy without such a rule has nothing to say, and nothing is read for it.
    if !policy.rules.iter().any(|rule| ATTRIBUTES.iter().any(|(action, _)| rule.action == *action)) {
        return None;
    }
    let effects = effects(line, (vars, dir));
    stops(policy, &effects).map(|stopped| objection(policy, &stopped))
}

/// The effects in a command line, with those of the scripts that it executes.
pub fn effects(line: &CommandLine, (vars, dir): (&BTreeMap<String, String>, &Path)) -> Vec<Asked> {
    let CommandReading { mut effects, mut scripts } = read_command(line, vars);
    let mut at = 0;
    while at < scripts.len() && at < MAX_SCRIPTS {
        let script = scripts[at].clone();
        at += 1;
        let Some(text) = text_of(&dir.join(&script.path)) else {
            effects.extend(script.unread());
            continue;
        };
        let inner = read_script(&text, &script.language, vars);
        effects.extend(inner.effects);
        for script in inner.scripts {
            if !scripts.contains(&script) {
                scripts.push(script);
            }
        }
    }
    effects
}

/// Variables as far as they are text.
pub fn texts(vars: &BTreeMap<OsString, OsString>) -> BTreeMap<String, String> {
    let text = |(name, value): (&OsString, &OsString)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()));
    vars.iter().filter_map(text).collect()
}

fn objection(policy: &Policy, stopped: &Stopped<'_>) -> Objection {
    let way_out = match stopped.verdict {
        Verdict::Approve => "; a command cannot be approved: make it a deploy or action step",
        _ if stopped.asked.values.get("opaque") == Some(&Value::Bool(true)) => {
            "; it cannot be read before it runs: write it as a plain command"
        }
        _ => "",
    };
    let body = json!({
        "rule": stopped.rule, "verdict": stopped.verdict, "action": stopped.asked.action,
        "attributes": stopped.asked.values, "policy_version": policy.version,
    });
    Objection { why: stopped.why.clone(), way_out, body }
}

/// The text of a script; nothing for what is no plain file, too long, or no text.
fn text_of(path: &Path) -> Option<String> {
    // Without blocking: a pipe of this name must not hold anybody up.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > MAX_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f91_scripts_are_read_through_each_other_and_a_pipe_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a.sh", "#!/bin/sh\nsh b.sh; sh a.sh\n");
        write("b.sh", "python3 c.py\n");
        write("c.py", "subprocess.run(['git', 'push', '-f'])\n");
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let found = |line: &str| effects(&CommandLine::Shell(line.to_owned()), (&BTreeMap::new(), dir.path()));
        assert_eq!(found("sh a.sh")[0].action, "git.push");
        assert_eq!(found("sh pipe; sh gone.sh; sh ."), []);
        assert_eq!(found("psql -h prod -f pipe")[0].values["opaque"], true);
    }
}
