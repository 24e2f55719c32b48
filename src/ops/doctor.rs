//! Is this machine, this repository and this agent fit? Looks at everything that a run needs and changes nothing.

use std::path::Path;
use std::time::Duration;

use super::error::OpsError;
use super::given;
use super::place::{Place, Vars};
use super::rolled_back::{behind, forgotten};
use crate::agents::{self, AgentRequest};
use crate::domain::policy::AgentRules;
use crate::domain::task::{AgentSpec, Protocol};
use crate::process::environment::{Audience, allowed};
use crate::report::machine_json::{CheckState, DoctorCheck};
use crate::store::RunFilter;

/// How long a program may take to say its version or to try its sandbox.
const PATIENCE: Duration = Duration::from_secs(20);

/// All checks, in the order in which they depend on each other.
pub fn doctor(dir: &Path, vars: &Vars, agent: Option<&str>) -> Vec<DoctorCheck> {
    let mut checks = vec![kernel()];
    let place = match Place::find(dir, vars.clone()) {
        Ok(place) => {
            checks.push(ok("git", format!("repository at {}", place.repo.root().display())));
            place
        }
        Err(error) => {
            checks.push(failed("git", &error));
            return checks;
        }
    };
    checks.push(of(
        "git.head",
        place.repo.head().map(|h| format!("checked out: {}", short(&h.commit))).map_err(Into::into),
    ));
    checks.push(of("state.disk", disk(&place)));
    checks.push(of("state", state(&place)));
    checks.push(of("database", database(&place)));
    checks.extend(rolled_back(&place));
    let policy = given::policy(&place, None).map(|found| found.loaded);
    checks.push(of("policy", policy.as_ref().map(|p| format!("version {}", p.policy.version)).map_err(clone_error)));
    let agents = policy.map(|p| p.policy.agents).unwrap_or_default();
    match agent {
        Some(name) => match agents.get(name) {
            Some(rules) => checks.extend(agent_checks(&place, name, rules, Need::Required)),
            None => {
                checks.push(check("agent", CheckState::Failed, format!("the policy knows no agent `{name}`"), None));
            }
        },
        None => {
            for (name, rules) in agents.iter().filter(|(_, r)| r.protocol == Protocol::Codex) {
                checks.extend(agent_checks(&place, name, rules, Need::Optional));
            }
        }
    }
    checks
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

pub(super) fn check(name: &str, state: CheckState, message: String, hint: Option<&str>) -> DoctorCheck {
    DoctorCheck { name: name.to_owned(), state, message, hint: hint.map(ToOwned::to_owned) }
}

fn ok(name: &str, message: String) -> DoctorCheck {
    check(name, CheckState::Ok, message, None)
}

fn failed(name: &str, error: &OpsError) -> DoctorCheck {
    DoctorCheck { name: name.to_owned(), state: CheckState::Failed, message: error.to_string(), hint: error.way_out() }
}

fn of(name: &str, result: Result<String, OpsError>) -> DoctorCheck {
    match result {
        Ok(message) => ok(name, message),
        Err(error) => failed(name, &error),
    }
}

fn clone_error(error: &OpsError) -> OpsError {
    OpsError::failed(error.code(), error.to_string())
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// Linux with what the process room is built on: sub-reaper, pidfd, openat2.
fn kernel() -> DoctorCheck {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    if cfg!(target_os = "linux") {
        ok("kernel", format!("Linux {release}"))
    } else {
        let hint = Some("run agentrun on Linux, or in WSL");
        check("kernel", CheckState::Failed, format!("{} is not supported", name.sysname().to_string_lossy()), hint)
    }
}

/// Where the state folder lies, or would (F16).
fn disk(place: &Place) -> Result<String, OpsError> {
    let found = place.file_system()?;
    found.check(place.home_path())?;
    Ok(format!("{} lies on {}", place.home_path().display(), found.name()))
}

fn state(place: &Place) -> Result<String, OpsError> {
    Ok(match place.existing_home()? {
        Some(home) => format!("{} is private", home.root().display()),
        None => format!("{} does not exist yet; a first start makes it", place.home_path().display()),
    })
}

fn database(place: &Place) -> Result<String, OpsError> {
    Ok(match place.records()? {
        Some(store) => {
            store.integrity()?;
            "whole".to_owned()
        }
        None => "there is none yet".to_owned(),
    })
}

/// Runs of which the database knows less than their folders show (F14); nothing is told where nothing is wrong.
fn rolled_back(place: &Place) -> Vec<DoctorCheck> {
    let found = || -> Result<Vec<String>, OpsError> {
        let Some(home) = place.existing_home()? else { return Ok(Vec::new()) };
        let store = place.records()?;
        let mut found: Vec<String> = forgotten(&home, store.as_ref())?
            .iter()
            .map(|run| format!("the database does not know run {run}"))
            .collect();
        if let Some(store) = &store {
            for run in store.runs(&RunFilter::All)? {
                // One manifest that cannot be read hides nothing of the others.
                match behind(&home, store, &run.run.id) {
                    Ok(failure) => found.extend(failure.map(|failure| failure.message)),
                    Err(error) => found.push(error.to_string()),
                }
            }
        }
        Ok(found)
    };
    // Records that cannot be read have been told of above.
    let hint = "put the newer database back, or go on with this one: agentrun doctor --recover";
    let failed = |message| check("records", CheckState::Failed, message, Some(hint));
    found().unwrap_or_default().into_iter().map(failed).collect()
}

/// The agent's program, its version, and for Codex whether its sandbox works: a broken one looks like a successful run.
fn agent_checks(place: &Place, name: &str, rules: &AgentRules, need: Need) -> Vec<DoctorCheck> {
    let vars = allowed(&place.vars, Audience::Agent, &rules.env);
    let agent = AgentSpec {
        name: name.to_owned(),
        protocol: rules.protocol,
        model: None,
        args: Vec::new(),
        events: None,
        patch: None,
    };
    let request = AgentRequest {
        agent: &agent,
        rules,
        workspace: place.repo.root(),
        repository: place.repo.root(),
        prompt_file: Path::new("/dev/null"),
        session: None,
        private_home: place.home_path(),
        env: &vars,
        own_program: Path::new("/proc/self/exe"),
        tools: None,
    };
    let label = format!("agent.{name}");
    let program = match agents::version_command(&request) {
        Ok(Some(program)) => program,
        Ok(None) => return vec![ok(&label, "needs nothing".to_owned())],
        Err(error) => {
            let state = if need == Need::Required { CheckState::Failed } else { CheckState::Warning };
            return vec![check(&label, state, error.to_string(), Some("npm install -g @openai/codex"))];
        }
    };
    let (path, args, _) = program;
    let printed = crate::process::probe(&path, &args, &vars, PATIENCE);
    let version = printed.ok().and_then(|p| agents::parse_version(rules.protocol, &p.stdout));
    let Some(version) = version else {
        return vec![check(&label, CheckState::Failed, format!("{} does not tell its version", path.display()), None)];
    };
    let mut checks = vec![ok(&label, format!("{version} at {}", path.display()))];
    if rules.protocol == Protocol::Codex {
        checks.push(sandbox(&label, &path, &vars));
    }
    checks
}

fn sandbox(label: &str, program: &Path, vars: &Vars) -> DoctorCheck {
    let args = ["sandbox", "-c", "sandbox_mode=workspace-write", "--", "true"].map(Into::into);
    let label = format!("{label}.sandbox");
    match crate::process::probe(program, &args, vars, PATIENCE) {
        Ok(probe) if probe.success => ok(&label, "works".to_owned()),
        Ok(probe) => {
            let why = probe.stderr.lines().last().unwrap_or("it failed").to_owned();
            let hint = Some("allow user namespaces, or run in an outer sandbox with `sandbox: danger-full-access`");
            check(&label, CheckState::Failed, why, hint)
        }
        Err(error) => check(&label, CheckState::Failed, error.to_string(), None),
    }
}
