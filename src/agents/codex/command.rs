//! The command line of `codex exec`. Everything that decides how a run goes is said here, so that neither the user's
//! configuration nor the conversation that is continued changes it (a resumed thread remembers neither model nor
//! sandbox).
//!
//! How often Codex itself asks a provider again is left as it is (4 requests, 5 streams, about 25 seconds in all):
//! those tries cost no tokens, and the flags for it exist per provider, whose name only the user knows. agentrun's own
//! retries come minutes apart and are few, so the two do not multiply into a storm.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::super::{AgentCommand, AgentError, AgentRequest, OwnTools};
use super::{binary, home};
use crate::domain::machine::Word as _;
use crate::domain::policy::{AgentHome, Sandbox};
use crate::process::spec::{PoliteSignal, Stdin};

/// Always there.
const FIXED: &[&str] = &[
    // Nobody is there to answer.
    "-c",
    "approval_policy=never",
    // Without network each run would end five seconds late.
    "-c",
    "analytics.enabled=false",
    "--disable",
    "plugins",
    // Otherwise a refused connection is tried again for ever, silently.
    "--disable",
    "unbounded_connection_retries",
    // Otherwise the commands of the model see the key of the provider.
    "-c",
    "shell_environment_policy.inherit=core",
    // `/tmp` is everybody's. The temporary folder that stays writable is the run's own.
    "-c",
    "sandbox_workspace_write.exclude_slash_tmp=true",
];

/// How much longer than agentrun Codex waits for an answer, in milliseconds: two calls of a turn may stand one behind the
/// other, and an answer that comes too late would look like a failure.
const MORE: u64 = 30_000;

/// The key that Codex takes without a login.
const KEY: &str = "CODEX_API_KEY";

/// Builds the command line: first run, or `resume` with every flag repeated.
pub(crate) fn command(request: &AgentRequest<'_>) -> Result<AgentCommand, AgentError> {
    for path in [request.workspace, request.prompt_file, request.private_home] {
        if !path.is_absolute() {
            return Err(AgentError::NotAbsolute(path.to_owned()));
        }
    }
    let program = binary::program(request)?;
    let home = home::codex_home(request.rules.home, request.env, request.private_home)?;
    let temp = home::temp_folder(request.private_home, request.workspace);
    home::check(&home, &temp)?;
    Ok(AgentCommand {
        program,
        args: arguments(request)?,
        env: environment(request, &home, &temp),
        folders: vec![home, temp],
        stdin: Stdin::File(request.prompt_file.to_owned()),
        polite: PoliteSignal::Interrupt,
    })
}

/// A command that ends with 0 when the sandbox works here. A broken one looks like a successful run whose commands all
/// failed, so it is asked for once, before. `None` when no sandbox is wanted.
pub(crate) fn probe(request: &AgentRequest<'_>) -> Result<Option<AgentCommand>, AgentError> {
    if request.rules.sandbox == Sandbox::DangerFullAccess {
        return Ok(None);
    }
    let mode = format!("sandbox_mode={}", request.rules.sandbox.word());
    // In the private home: this subcommand cannot be told to leave the user's configuration alone.
    let (home, temp) = (request.private_home.to_owned(), home::temp_folder(request.private_home, request.workspace));
    home::check(&home, &temp)?;
    Ok(Some(AgentCommand {
        program: binary::program(request)?,
        args: ["sandbox", "-c", &mode, "--", "true"].iter().map(OsString::from).collect(),
        env: environment(request, &home, &temp),
        folders: vec![home, temp],
        stdin: Stdin::Empty,
        polite: PoliteSignal::Interrupt,
    }))
}

fn environment(request: &AgentRequest<'_>, home: &PathBuf, temp: &PathBuf) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![("CODEX_HOME".into(), home.into()), ("TMPDIR".into(), temp.into())];
    let given = |name: &str| request.env.get(OsStr::new(name)).filter(|value| !value.is_empty());
    // In a home without a login Codex takes this key, and not the one that everybody sets. The user's login stays as it is.
    if let (AgentHome::Private, None, Some(key)) = (request.rules.home, given(KEY), given("OPENAI_API_KEY")) {
        env.push((KEY.into(), key.clone()));
    }
    env
}

fn arguments(request: &AgentRequest<'_>) -> Result<Vec<OsString>, AgentError> {
    let mut args: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    // Rules files could let commands out of the sandbox that the policy promises.
    add(&["exec", "--json", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check"]);
    add(&["-s", request.rules.sandbox.word(), "-C", folder(request.workspace)?]);
    add(FIXED);
    if let Some(model) = &request.agent.model {
        add(&["-m", model]);
    }
    if let Some(tools) = &request.tools {
        for setting in server(folder(request.own_program)?, tools) {
            add(&["-c", &setting]);
        }
    }
    request.agent.args.iter().for_each(|arg| add(&[arg]));
    if let Some(session) = request.session {
        // A name that Codex does not know would silently begin a new conversation; an id does not.
        let id = uuid::Uuid::try_parse(session).ok().filter(|id| id.hyphenated().to_string() == session);
        id.ok_or_else(|| AgentError::BadSession(session.to_owned()))?;
        add(&["resume", session]);
    }
    add(&["-"]);
    Ok(args)
}

/// The settings of agentrun's own server. Nobody is there to approve its tools, and what they ask for is judged by the policy.
/// The command line, which everybody on the machine can read, has the names of its variables alone: Codex hands the values on
/// from its own environment.
fn server(program: &str, tools: &OwnTools<'_>) -> Vec<String> {
    let seconds = tools.answer.0.saturating_mul(2).saturating_add(MORE).div_ceil(1000);
    // A text of JSON is one of TOML.
    let settings = [
        ("command", json!(program)),
        ("args", json!(["mcp"])),
        ("env_vars", json!(tools.vars)),
        ("default_tools_approval_mode", json!("approve")),
        ("startup_timeout_sec", json!(30)),
        ("tool_timeout_sec", json!(seconds)),
    ];
    settings.iter().map(|(name, value)| format!("mcp_servers.agentrun.{name}={value}")).collect()
}

fn folder(path: &Path) -> Result<&str, AgentError> {
    // Codex writes the path into JSON, so one that is no text would not survive anyway.
    path.to_str().ok_or_else(|| AgentError::NotAbsolute(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::policy::AgentRules;
    use crate::domain::quantity::Millis;
    use crate::domain::task::{AgentSpec, Protocol};
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    /// What a request borrows.
    struct World {
        dir: tempfile::TempDir,
        agent: AgentSpec,
        rules: AgentRules,
        env: BTreeMap<OsString, OsString>,
        tools: Option<Vec<String>>,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let program = dir.path().join("codex");
            std::fs::write(&program, "").unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let (name, model) = ("codex".to_owned(), Some("m1".to_owned()));
            let args = vec!["-c".to_owned(), "a=b".to_owned()];
            let agent = AgentSpec { name, protocol: Protocol::Codex, model, args, events: None, patch: None };
            let env = [("PATH", dir.path().to_str().unwrap()), ("HOME", "/home/u"), ("OPENAI_API_KEY", "sk")];
            let env = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
            Self { dir, agent, rules: AgentRules::known(Protocol::Codex), env, tools: None }
        }

        fn command(&self, session: Option<&str>) -> Result<AgentCommand, AgentError> {
            command(&AgentRequest {
                agent: &self.agent,
                rules: &self.rules,
                workspace: Path::new("/state/work/run_1_001"),
                repository: self.dir.path(),
                prompt_file: Path::new("/state/prompt.md"),
                session,
                private_home: Path::new("/state/agents/codex"),
                env: &self.env,
                own_program: Path::new("/bin/agentrun"),
                tools: self.tools.as_deref().map(|vars| OwnTools { answer: Millis::secs(8), vars }),
            })
        }
    }

    const ID: &str = "01a22dbc-63a1-7f53-9a32-a4f02e45edc6";

    #[test]
    fn fr_d7_a_continued_run_repeats_every_flag() {
        let world = World::new();
        let text = |session| {
            let args = world.command(session).unwrap().args;
            args.iter().map(|arg| arg.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let first = "exec --json --ignore-user-config --ignore-rules --skip-git-repo-check -s workspace-write \
                     -C /state/work/run_1_001 -c approval_policy=never -c analytics.enabled=false --disable plugins \
                     --disable unbounded_connection_retries -c shell_environment_policy.inherit=core \
                     -c sandbox_workspace_write.exclude_slash_tmp=true -m m1 -c a=b";
        assert_eq!(text(None), format!("{first} -"));
        assert_eq!(text(Some(ID)), format!("{first} resume {ID} -"));
    }

    #[test]
    fn r_a2_where_something_may_be_asked_for_codex_gets_the_tools_and_no_secret_is_in_its_command_line() {
        let mut world = World::new();
        world.tools = Some(vec!["AGENTRUN_RUN_ID".to_owned(), "AGENTRUN_TOKEN".to_owned()]);
        world.env.insert("AGENTRUN_TOKEN".into(), "secret".into());
        let args = world.command(Some(ID)).unwrap().args;
        let args: Vec<_> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        let settings: Vec<_> = args.iter().filter_map(|arg| arg.strip_prefix("mcp_servers.agentrun.")).collect();
        assert_eq!(
            settings,
            [
                r#"command="/bin/agentrun""#,
                r#"args=["mcp"]"#,
                r#"env_vars=["AGENTRUN_RUN_ID","AGENTRUN_TOKEN"]"#,
                r#"default_tools_approval_mode="approve""#,
                "startup_timeout_sec=30",
                "tool_timeout_sec=46",
            ]
        );
        assert!(!args.concat().contains("secret"));
    }

    #[test]
    fn only_an_id_is_continued() {
        for name in ["my-thread", "--last", "", "01a22dbc63a17f539a32a4f02e45edc6"] {
            let error = World::new().command(Some(name)).unwrap_err();
            assert!(matches!(error, AgentError::BadSession(_)), "{name}: {error}");
        }
    }

    #[test]
    fn each_home_has_its_login_and_every_run_its_own_temporary_folder() {
        let mut world = World::new();
        let pair = |key: &str, value: &str| (OsString::from(key), OsString::from(value));
        let temp = pair("TMPDIR", "/state/agents/tmp-run_1_001");
        let user = world.command(None).unwrap();
        assert_eq!(user.env, [pair("CODEX_HOME", "/home/u/.codex"), temp.clone()]);
        assert_eq!(user.folders, [Path::new("/home/u/.codex"), Path::new("/state/agents/tmp-run_1_001")]);
        world.rules.home = AgentHome::Private;
        let private = world.command(None).unwrap();
        assert_eq!(private.env, [pair("CODEX_HOME", "/state/agents/codex"), temp, pair("CODEX_API_KEY", "sk")]);
        assert_eq!((private.stdin, private.polite), (Stdin::File("/state/prompt.md".into()), PoliteSignal::Interrupt));
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut world = World::new();
        world.rules.bin = Some("codex-next".to_owned());
        assert!(world.command(None).unwrap_err().to_string().contains("codex-next"));
    }
}
