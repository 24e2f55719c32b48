//! Agents: the prompt, the child, and what its events mean.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::{Execution, capture, hidden, own_vars};
use crate::agents::{self, AgentRequest, InspectRequest, OwnTools, Reader, ReaderRequest};
use crate::artifacts::atomic::{self, IfExists};
use crate::artifacts::home::make_private;
use crate::artifacts::run_dir::{self, StepFile};
use crate::domain::agent_event::AgentEvent;
use crate::domain::change::MeterItem;
use crate::domain::failure::Code;
use crate::domain::ids::{RunId, StepKey};
use crate::domain::policy::AgentRules;
use crate::domain::quantity::BootMs;
use crate::domain::record::{ExecutionRecord, RunInputs, RunRecord};
use crate::domain::task::{AgentSpec, Protocol, StepBody};
use crate::domain::template::{PromptContext, PromptRun, PromptTask, PromptValues, invisible_chars, render_prompt};
use crate::engine::action::mailbox;
use crate::engine::error::EngineError;
use crate::engine::host::Host;
use crate::engine::meter;
use crate::process::environment::{Audience, allowed};
use crate::process::lookup::find_program;
use crate::process::probe;
use crate::process::spec::{CommandSpec, StopRule};
use crate::store::Hold;

/// How long an agent may take to tell its version or to try its sandbox.
const PATIENCE: Duration = Duration::from_secs(10);

/// Without it a model would look for credentials and try by itself.
const ABOUT_TOOLS: &str = "\n\nDo not deploy, notify or change anything outside of this working copy yourself: ask for it once \
    with the tool `request_action` of the MCP server `agentrun`, and do what the `advice` of its answer says.\n";

/// Why an agent is called, which decides what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// For the first time, or anew from a clean base.
    Fresh,
    /// A check failed: its name and its output.
    SentBack {
        /// The check.
        check: StepKey,
        /// The end of its output.
        output: String,
    },
    /// Its last turn was cut off; it goes on in its own conversation.
    Continue,
}

/// What an agent is called with.
pub struct AgentCall<'a> {
    /// The machine.
    pub host: &'a Host<'a>,
    /// The lease.
    pub hold: &'a Hold,
    /// The run.
    pub run: &'a RunRecord,
    /// What it was given.
    pub inputs: &'a RunInputs,
    /// This execution.
    pub execution: &'a Execution,
    /// The working copy.
    pub dir: &'a Path,
    /// Why.
    pub call: &'a Call,
    /// The conversation to go on in, if any.
    pub session: Option<&'a str>,
    /// What the agent may know of its limits and of agentrun's own tools, in words.
    pub budget: &'a str,
    /// The same for a program: the document of `show --budget` as it is now.
    pub budget_document: &'a str,
}

/// An agent at work: its reader, and what is known of it so far.
pub struct AtWork {
    /// Turns its output into events.
    pub reader: Box<dyn Reader>,
    /// Tool calls that have not come back.
    pub open_tools: BTreeSet<String>,
    /// When it said that it is done.
    pub result_at: Option<BootMs>,
    /// How many characters of its prompt nobody sees (F95).
    pub unseen: usize,
    /// True once its folder of side files is watched.
    pub watched: bool,
    /// What its tokens cost, where it does not say so itself.
    pub price: Option<crate::domain::budget::Price>,
    session: Option<String>,
}

/// What an event leads to.
#[derive(Debug, Default)]
pub struct Told {
    /// To be counted.
    pub items: Vec<MeterItem>,
    /// A conversation to be recorded at once (facts/codex pitfall 15).
    pub session: Option<(String, Option<String>)>,
}

/// Agent, rules and prompt of a step.
fn parts<'a>(inputs: &'a RunInputs, step: &StepKey) -> Option<(&'a AgentSpec, AgentRules)> {
    let StepBody::Agent { agent, .. } = &inputs.spec.step(step)?.body else { return None };
    Some((agent, rules(inputs, agent)))
}

/// The policy's entry for an agent.
pub fn rules(inputs: &RunInputs, agent: &AgentSpec) -> AgentRules {
    inputs.policy.agents.get(&agent.name).cloned().unwrap_or_else(|| AgentRules::known(agent.protocol))
}

/// What an agent is told of agentrun's own tools, where it is given them.
pub fn about_tools(inputs: &RunInputs, step: &StepKey) -> &'static str {
    let given = |(agent, _): &(&AgentSpec, AgentRules)| mailbox::is_open(inputs) && agents::gets_tools(agent.protocol);
    parts(inputs, step).filter(given).map_or("", |_| ABOUT_TOOLS)
}

/// Builds the child and its reader.
pub fn start(call: &AgentCall<'_>) -> Result<(CommandSpec, AtWork), EngineError> {
    let AgentCall { host, hold, inputs, execution, dir, .. } = call;
    let (agent, rules) = parts(inputs, &execution.step).ok_or_else(|| no_agent(&execution.step))?;
    let run_dir = host.home.run_dir(&hold.run)?;
    let prompt_file = run_dir.step_file(execution.files(), StepFile::Prompt);
    make_private(&run_dir.attempt(execution.attempt))?;
    let text = prompt(call)?;
    atomic::write(&prompt_file, text.as_bytes(), IfExists::Replace)?;

    let mut vars = allowed(host.vars, Audience::Agent, &rules.env);
    let private_home = host.home.private_home(&agent.name)?;
    let own = own_vars(host, hold, execution);
    let names: Vec<String> = own.iter().filter_map(|(name, _)| name.to_str().map(ToOwned::to_owned)).collect();
    let request = AgentRequest {
        agent,
        rules: &rules,
        workspace: dir,
        repository: host.repo.root(),
        prompt_file: &prompt_file,
        session: call.session,
        private_home: &private_home,
        env: &vars,
        own_program: host.own_program,
        tools: mailbox::longest_answer(inputs).map(|answer| OwnTools { answer, vars: &names }),
    };
    let command = agents::command(&request)?;
    let reader = agents::reader(&ReaderRequest {
        protocol: agent.protocol,
        rules: &rules,
        env: &vars,
        private_home: &private_home,
        session: call.session,
        prompt_bytes: text.len() as u64,
        execution: execution.number,
    });
    for folder in &command.folders {
        make_private(folder)?;
    }
    vars.extend(command.env);
    let secrets = hidden(&vars, execution);
    vars.insert("AGENTRUN_PROMPT_FILE".into(), prompt_file.clone().into_os_string());
    if let Some(session) = call.session {
        vars.insert("AGENTRUN_SESSION".into(), session.into());
    }
    // With these it can look for itself, and keep within what is left: there is no asking before each call (F45).
    vars.insert("AGENTRUN_BUDGET".into(), call.budget_document.into());
    vars.extend(own);
    let spec = CommandSpec {
        program: command.program,
        args: command.args,
        env: vars.into_iter().collect(),
        dir: dir.to_path_buf(),
        stdin: command.stdin,
        stop: StopRule { polite: command.polite, grace: inputs.policy.timeouts.grace },
        dies_with_parent: true,
        capture: capture(&run_dir, execution, inputs, true, secrets),
    };
    Ok((spec, AtWork { unseen: invisible_chars(&text), ..AtWork::new(reader, rules.price) }))
}

fn no_agent(step: &StepKey) -> EngineError {
    EngineError::failed(Code::Internal, format!("step `{step}` has no agent"))
}

/// What the agent is told.
fn prompt(call: &AgentCall<'_>) -> Result<String, EngineError> {
    let text = match call.inputs.prompts.get(&call.execution.step) {
        Some(prompt) => render_prompt(prompt, &values(call))?,
        None => String::new(),
    };
    let budget = call.budget;
    Ok(match call.call {
        Call::Fresh => format!("{text}{budget}"),
        Call::SentBack { check, output } => {
            let again = format!(
                "The check `{check}` failed on your changes. Its output ends like this:\n\n```\n{output}\n```\n\n\
                 Find the cause, correct it, and finish. The check is run again afterwards."
            );
            if call.session.is_some() { format!("{again}{budget}") } else { format!("{text}\n\n{again}{budget}") }
        }
        Call::Continue => {
            let cut = "Your last turn was cut off from outside before it ended. Commands that were running then were \
                       stopped and may have done part of their work: look at the state of the working copy before you \
                       repeat one. Then go on with the task and finish it.";
            if call.session.is_some() { format!("{cut}{budget}") } else { format!("{text}\n\n{cut}{budget}") }
        }
    })
}

fn values(call: &AgentCall<'_>) -> PromptValues {
    let base = &call.run.components.base_commit;
    PromptValues {
        inputs: call.inputs.spec.inputs.clone(),
        context: PromptContext { files: call.inputs.files.iter().map(|f| f.path.clone()).collect() },
        run: PromptRun::of(call.run.id.as_str(), base),
        task: PromptTask { id: call.run.task.to_string(), title: call.inputs.spec.title.clone().unwrap_or_default() },
    }
}

impl AtWork {
    fn new(reader: Box<dyn Reader>, price: Option<crate::domain::budget::Price>) -> Self {
        Self { reader, open_tools: BTreeSet::new(), result_at: None, unseen: 0, watched: false, price, session: None }
    }

    /// Takes note of events; answers what is to be counted and recorded.
    pub fn take(&mut self, step: &StepKey, events: &[AgentEvent], now: BootMs) -> Told {
        let mut told = Told::default();
        for event in events {
            match event {
                AgentEvent::Session { id, model } => {
                    // Recorded for each execution, a continued conversation too: whoever takes over asks for this one's.
                    if self.session.as_deref() != Some(id) || model.is_some() {
                        told.session = Some((id.clone(), model.clone()));
                    }
                    self.session = Some(id.clone());
                }
                AgentEvent::ToolCall { id, .. } => {
                    self.open_tools.insert(id.clone());
                    told.items.push(meter::tool_call(step, id));
                }
                AgentEvent::ToolResult { id, .. } => {
                    self.open_tools.remove(id);
                }
                AgentEvent::Usage(metered) => told.items.push(meter::response(step, metered, self.price.as_ref())),
                AgentEvent::Result { .. } => self.result_at = Some(now),
                AgentEvent::Message { .. } | AgentEvent::Warning { .. } | AgentEvent::Error(_) => {}
            }
        }
        told
    }
}

/// Which agent it is: name, version, program; and whether its sandbox works, for a broken one looks like an agent whose
/// commands all failed (facts of Codex: exit code 0). Asked once per attempt; an agent without a version has none to tell.
pub fn examine(call: &AgentCall<'_>) -> Result<Option<String>, EngineError> {
    let (agent, rules) = parts(call.inputs, &call.execution.step).ok_or_else(|| no_agent(&call.execution.step))?;
    let vars = allowed(call.host.vars, Audience::Agent, &rules.env);
    let request = AgentRequest {
        agent,
        rules: &rules,
        workspace: call.dir,
        repository: call.host.repo.root(),
        prompt_file: call.dir,
        session: None,
        private_home: &call.host.home.private_home(&agent.name)?,
        env: &vars,
        own_program: call.host.own_program,
        tools: None,
    };
    refuse_broken_sandbox(&request)?;
    let Some((program, args, env)) = agents::version_command(&request)? else { return Ok(None) };
    let said = probe(&program, &args, &joined(&vars, env), PATIENCE).ok();
    let version = said.and_then(|s| agents::parse_version(agent.protocol, &s.stdout));
    let version = version.unwrap_or_else(|| "of unknown version".to_owned());
    Ok(Some(format!("{} {version} at {}", agent.name, program.display())))
}

fn refuse_broken_sandbox(request: &AgentRequest<'_>) -> Result<(), EngineError> {
    let Some(command) = agents::probe(request)? else { return Ok(()) };
    command.folders.iter().try_for_each(|folder| make_private(folder))?;
    let broken = |why: &str| {
        let message = format!("the sandbox of the agent `{}` does not work on this machine: {why}", request.agent.name);
        Err(EngineError::failed(Code::EnvUnsupported, message))
    };
    match probe(&command.program, &command.args, &joined(request.env, command.env), PATIENCE) {
        Ok(said) if said.success => Ok(()),
        Ok(said) => broken(said.stderr.lines().last().unwrap_or("it said nothing")),
        Err(error) => broken(&error.to_string()),
    }
}

fn joined(vars: &BTreeMap<OsString, OsString>, more: Vec<(OsString, OsString)>) -> BTreeMap<OsString, OsString> {
    vars.clone().into_iter().chain(more).collect()
}

/// The first agent of a run to be whose program is not installed. Asked before a run is accepted: nothing has happened yet
/// then. A program inside the repository is not looked for, it may be made on the way.
pub fn not_installed(vars: &BTreeMap<OsString, OsString>, inputs: &RunInputs) -> Option<(StepKey, String)> {
    inputs.spec.steps.iter().find_map(|step| {
        let (agent, rules) = parts(inputs, &step.key)?;
        let program = match (rules.run.first(), &rules.bin) {
            (Some(program), _) => program.as_str(),
            (None, Some(program)) => program.as_str(),
            (None, None) if agent.protocol == Protocol::Codex => "codex",
            (None, None) => return None,
        };
        let vars = allowed(vars, Audience::Agent, &rules.env);
        let path = vars.get(&OsString::from("PATH")).map(OsString::as_os_str);
        let is_name = !program.contains('/');
        (is_name && find_program(program.as_ref(), path, Path::new("/")).is_err())
            .then(|| (step.key.clone(), program.to_owned()))
    })
}

/// Counts what an inspection of an unseen execution found, under the names the live reader would have used.
pub fn items_of(found: &agents::Inspection, inputs: &RunInputs, execution: &ExecutionRecord) -> Vec<MeterItem> {
    let step = &execution.step;
    let price = parts(inputs, step).and_then(|(_, rules)| rules.price);
    let items = found.events.iter().filter_map(|event| match event {
        AgentEvent::ToolCall { id, .. } => Some(meter::tool_call(step, id)),
        AgentEvent::Usage(metered) => Some(meter::response(step, metered, price.as_ref())),
        _ => None,
    });
    let untold = meter::untold(step, execution.number, found.untold, price.as_ref());
    let known_before = execution.estimated > 0 || found.untold.is_some();
    items.chain(known_before.then_some(untold)).collect()
}

/// What an unseen execution left in the agent's own records (R-W4). `None` when there is nothing to look at.
pub fn inspect(
    host: &Host<'_>,
    (run, inputs): (&RunId, &RunInputs),
    (execution, files): (&ExecutionRecord, run_dir::Execution<'_>),
    dir: &Path,
) -> Result<Option<agents::Inspection>, EngineError> {
    let Some((agent, rules)) = parts(inputs, &execution.step) else { return Ok(None) };
    let vars = allowed(host.vars, Audience::Agent, &rules.env);
    let private_home = host.home.private_home(&agent.name)?;
    let run_dir = host.home.run_dir(run)?;
    let transcript = run_dir.step_file(files, StepFile::Events);
    // An execution that died before it had its prompt has sent none.
    let prompt_bytes = std::fs::metadata(run_dir.step_file(files, StepFile::Prompt)).map_or(0, |m| m.len());
    let reader = ReaderRequest {
        protocol: agent.protocol,
        rules: &rules,
        env: &vars,
        private_home: &private_home,
        session: execution.session.as_deref(),
        prompt_bytes,
        execution: execution.number,
    };
    let request = InspectRequest {
        reader,
        workspace: dir,
        started_at: Some(execution.started_at),
        transcript: Some(&transcript),
    };
    Ok(Some(agents::inspect(&request)?))
}

/// What agents report that a set of limits needs: a limit without figures must be refused, not ignored (R-R4).
pub fn unenforceable(inputs: &RunInputs, budget: &crate::domain::budget::Budget) -> Vec<(StepKey, &'static str)> {
    let limits = [&budget.attempt, &budget.task];
    let wants = |get: fn(&crate::domain::budget::Limits) -> bool| limits.iter().any(|l| get(l));
    let cost = wants(|l| l.cost_micros.is_some());
    let mut missing = Vec::new();
    for step in &inputs.spec.steps {
        let Some((agent, rules)) = parts(inputs, &step.key) else { continue };
        let abilities = agents::abilities(agent.protocol);
        if cost && !abilities.reports_cost && rules.price.is_none() {
            missing.push((step.key.clone(), "cost"));
        }
    }
    missing
}
