//! Commands and checks: a child process whose exit code is the answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::{Execution, capture, hidden, lookup, own_vars};
use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::ProcessEnd;
use crate::domain::record::RunInputs;
use crate::domain::task::{CommandLine, StepKind, StepSpec};
use crate::engine::error::EngineError;
use crate::engine::host::Host;
use crate::process::environment::{Audience, allowed};
use crate::process::spec::{CommandSpec, PoliteSignal, Stdin, StopRule};
use crate::store::Hold;

/// What a command is run with.
pub struct CommandRequest<'a> {
    /// The machine.
    pub host: &'a Host<'a>,
    /// The lease.
    pub hold: &'a Hold,
    /// What the run was given.
    pub inputs: &'a RunInputs,
    /// What commands of the run see of the environment ([`vars`]).
    pub vars: &'a BTreeMap<OsString, OsString>,
    /// The step.
    pub step: &'a StepSpec,
    /// Its command.
    pub run: &'a CommandLine,
    /// This execution of it.
    pub execution: &'a Execution,
    /// The working copy.
    pub dir: &'a Path,
}

/// Builds the child.
pub fn spec(request: &CommandRequest<'_>) -> Result<CommandSpec, EngineError> {
    let CommandRequest { host, hold, inputs, vars, step, run, execution, dir } = request;
    let mut vars = (*vars).clone();
    vars.extend(step.env.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))));
    let (program, args) = match run {
        CommandLine::Shell(line) => (lookup("sh", &vars, dir)?, vec![OsString::from("-c"), OsString::from(line)]),
        CommandLine::List(list) => {
            let (name, args) = list.split_first().ok_or_else(|| empty_command(step))?;
            (lookup(name, &vars, dir)?, args.iter().map(OsString::from).collect())
        }
    };
    let secrets = hidden(&vars, execution);
    vars.extend(own_vars(host, hold, execution));
    let grace = inputs.policy.timeouts.grace;
    Ok(CommandSpec {
        program,
        args,
        env: vars.into_iter().collect(),
        dir: dir.to_path_buf(),
        stdin: Stdin::Empty,
        stop: StopRule { polite: PoliteSignal::Terminate, grace },
        dies_with_parent: false,
        capture: capture(&host.home.run_dir(&hold.run)?, execution, inputs, false, secrets),
    })
}

fn empty_command(step: &StepSpec) -> EngineError {
    EngineError::failed(Code::ConfigInvalid, format!("step `{}` has an empty command", step.key))
}

/// What every command of a run sees of the environment: put together once for all of them.
pub fn vars(host: &Host<'_>, inputs: &RunInputs) -> BTreeMap<OsString, OsString> {
    let mut vars = allowed(host.vars, Audience::Command, &inputs.policy.env);
    vars.extend(input_vars(inputs));
    vars
}

/// The task's inputs as `AGENTRUN_INPUT_<NAME>`: data reaches a command by its environment, never spliced into a shell.
pub fn input_vars(inputs: &RunInputs) -> BTreeMap<OsString, OsString> {
    let name = |key: &str| {
        let upper: String =
            key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
        OsString::from(format!("AGENTRUN_INPUT_{upper}"))
    };
    inputs.spec.inputs.iter().map(|(k, v)| (name(k), OsString::from(v))).collect()
}

/// What the end of a command means.
pub fn verdict(kind: StepKind, step: &StepSpec, end: &ProcessEnd) -> Option<Failure> {
    let code = match end {
        ProcessEnd::Exited { code: 0 } => return None,
        ProcessEnd::TimedOut { .. } => Code::ToolTimeout,
        ProcessEnd::FailedToStart { .. } => Code::CommandNotFound,
        ProcessEnd::OverBudget => Code::BudgetExceeded,
        ProcessEnd::Canceled => Code::Canceled,
        ProcessEnd::Interrupted => Code::Interrupted,
        ProcessEnd::LeaseLost => Code::Fenced,
        ProcessEnd::Vanished => Code::WorkerCrash,
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } if kind == StepKind::Qa => Code::QaFailed,
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } if kind == StepKind::Verify => Code::VerifyFailed,
        ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. } => Code::CommandFailed,
    };
    Some(Failure::new(code, format!("`{}` {end}", program(step))))
}

/// The command of a step, for a message about its end.
fn program(step: &StepSpec) -> String {
    use crate::domain::task::StepBody;
    let run = match &step.body {
        StepBody::Deploy(deploy) => Some(&deploy.run),
        StepBody::Verify(verify) => verify.smoke.as_ref(),
        StepBody::Action(action) => action.run.as_ref(),
        _ => None,
    };
    run.map_or_else(|| shown(step), CommandLine::shown)
}

/// What a step does, as people know it.
pub fn shown(step: &StepSpec) -> String {
    use crate::domain::task::StepBody;
    match &step.body {
        StepBody::Qa { run, .. } | StepBody::Command { run } => run.shown(),
        StepBody::Agent { agent, .. } => agent.name.clone(),
        body => crate::domain::delivery::in_words(body).unwrap_or_else(|| step.key.to_string()),
    }
}
