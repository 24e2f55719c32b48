//! One call of the program: who calls, from where, and how they want things said.

use std::path::PathBuf;

use jiff::tz::TimeZone;

use super::args::{Args, LogLevel};
use super::error::CliError;
use super::progress::Progress;
use super::say::{self, Say};
use crate::domain::ids::RequestId;
use crate::ops::calling::{Hangup, Inbox, StopSignals, Who, env_vars, listen, system_user};
use crate::ops::place::{Place, Vars, text};
use crate::report::text::Style;

/// One call.
pub struct Session {
    /// Where.
    pub dir: PathBuf,
    /// The environment.
    pub vars: Vars,
    /// Whether JSON is wanted.
    pub json: bool,
    /// Whether a CI job calls.
    pub ci: bool,
    /// Whether a person can be asked something: nobody forbade it, and one sits at the terminal.
    pub asks: bool,
    /// The streams.
    pub say: Say,
    /// Who and by which command.
    pub who: Who,
    quiet: bool,
}

impl Session {
    /// From the arguments and the environment.
    pub fn new(args: &Args, vars: Vars) -> Self {
        let truthy = |name: &str| text(&vars, name).is_some_and(|v| v != "0" && v != "false");
        let ci = args.ci || truthy(env_vars::CI);
        let mut say = Say::new();
        say.colours = !args.no_color && text(&vars, env_vars::NO_COLOR).is_none() && !is_dumb(&vars);
        say.chatty = !args.quiet;
        let request = args.request_id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        start_log(args.log_level, &vars);
        Self {
            dir: args.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
            json: args.json,
            ci,
            asks: !(args.no_input || args.json || ci) && say::can_ask(),
            say,
            who: Who { actor: system_user(), request_id: RequestId::recorded(request) },
            quiet: args.quiet,
            vars,
        }
    }

    /// The repository and its state.
    pub fn place(&self) -> Result<Place, CliError> {
        Ok(Place::find(&self.dir, self.vars.clone())?)
    }

    /// How text on standard output is dressed.
    pub fn style(&self) -> Style {
        Style { colour: self.say.colour_out(), zone: TimeZone::try_system().unwrap_or(TimeZone::UTC) }
    }

    /// The one who is told while a run works: moving on a terminal, plain lines elsewhere, nobody with `--quiet`.
    pub fn progress(&self) -> Progress {
        let moving = !self.ci && !is_dumb(&self.vars) && say::is_watched();
        Progress::new(moving, self.quiet, self.say.colour_err())
    }

    /// Hardens the process and listens to whoever wants to stop it. The listener must be kept.
    pub fn listen(&self, inbox: &Inbox, hangup: Hangup) -> Result<StopSignals, CliError> {
        Ok(listen(inbox, hangup)?)
    }

    /// agentrun's own program.
    pub fn own_program(&self) -> Result<PathBuf, CliError> {
        std::env::current_exe().map_err(|e| {
            let code = crate::domain::failure::Code::EnvUnsupported;
            CliError::new(code, format!("agentrun's own program cannot be found: {e}"))
        })
    }
}

fn is_dumb(vars: &Vars) -> bool {
    text(vars, env_vars::TERM).is_some_and(|t| t == "dumb")
}

fn start_log(level: Option<LogLevel>, vars: &Vars) {
    let named = text(vars, env_vars::AGENTRUN_LOG);
    let level = match (level, named.as_deref()) {
        (Some(level), _) => level,
        (None, Some("trace")) => LogLevel::Trace,
        (None, Some("debug")) => LogLevel::Debug,
        (None, Some("info")) => LogLevel::Info,
        (None, Some("warn")) => LogLevel::Warn,
        (None, Some("error")) => LogLevel::Error,
        (None, _) => return,
    };
    let level = match level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
        LogLevel::Trace => tracing::Level::TRACE,
    };
    let logging = tracing_subscriber::fmt().with_max_level(level).with_writer(say::log).with_ansi(false);
    let _ = logging.try_init();
}
