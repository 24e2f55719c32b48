//! The verdict over one execution: what the agent said, weighed against how its process ended (contract §9). The same
//! for every agent; what a word of one agent means is decided in its own file.

use crate::domain::failure::{Code, Failure};
use crate::domain::outcome::{ProcessEnd, TimeoutLayer};

use super::tools::Tools;
use super::wording::telling_line;
use super::{AgentEnd, SessionFate};

/// What an agent said, when nothing more will come.
#[derive(Debug)]
pub(crate) struct Said<'a> {
    /// The agent's name for messages: `codex`.
    pub who: &'static str,
    /// Its last word, when it said that it is done.
    pub result: Option<String>,
    /// The failure it reported.
    pub failure: Option<Failure>,
    /// Whether it began to work at all.
    pub begun: bool,
    /// Its tool calls.
    pub tools: &'a Tools,
    /// What to tell besides.
    pub warnings: Vec<String>,
    /// What became of its conversation.
    pub session: SessionFate,
}

/// Weighs what was said against how the process ended.
pub(crate) fn verdict(said: Said<'_>, end: &ProcessEnd, stderr: &str) -> AgentEnd {
    let Said { who, failure, begun, tools, mut warnings, session, .. } = said;
    let result = said.result.filter(|text| !text.trim().is_empty());
    let failure = if stopped_for_good(end) {
        Some(by_end(who, end, stderr, begun, tools.in_progress()))
    } else if failure.is_some() {
        // FR-C1: a reported failure is one, whatever the exit code.
        failure
    } else if result.is_none() {
        Some(by_end(who, end, stderr, begun, tools.in_progress()))
    } else {
        let proof = tools.all_failed().map(|n| all_failed(who, n));
        if proof.is_none() && !end.is_clean() {
            // FR-C7: the work is done; both facts are kept.
            warnings.push(format!("{who} gave its result and then {end}"));
        }
        proof
    };
    AgentEnd { result, failure, warnings, session }
}

fn all_failed(who: &str, count: u64) -> Failure {
    Failure::new(Code::AllToolsFailed, format!("{who} says that it is done, but all {count} of its tool calls failed"))
}

/// Stopped by agentrun for a reason that a result does not heal.
fn stopped_for_good(end: &ProcessEnd) -> bool {
    matches!(end, ProcessEnd::OverBudget | ProcessEnd::Canceled | ProcessEnd::LeaseLost)
}

/// The failure when the agent gave no result and no reason.
fn by_end(who: &str, end: &ProcessEnd, stderr: &str, begun: bool, in_tool: bool) -> Failure {
    let because = telling_line(stderr).map(|line| format!(": {line}")).unwrap_or_default();
    let code = code_of(end, begun, in_tool);
    let text = match (end, code) {
        (ProcessEnd::Exited { .. }, Code::AgentStartFailed) => format!("{who} {end} before it began to work{because}"),
        (ProcessEnd::Exited { code: 0 }, _) => format!("{who} ended without a result"),
        (ProcessEnd::Exited { .. } | ProcessEnd::Signalled { .. }, _) => {
            format!("{who} {end} without a result{because}")
        }
        _ => format!("{who} {end}"),
    };
    Failure::new(code, text)
}

/// FR-C19: endings that mean different things have different codes.
fn code_of(end: &ProcessEnd, begun: bool, in_tool: bool) -> Code {
    match end {
        ProcessEnd::Exited { code } => by_exit(*code, begun),
        ProcessEnd::Signalled { signal: 2 } | ProcessEnd::Interrupted => Code::Interrupted,
        ProcessEnd::Signalled { .. } | ProcessEnd::Vanished => Code::WorkerCrash,
        ProcessEnd::FailedToStart { .. } => Code::AgentStartFailed,
        ProcessEnd::TimedOut { layer: TimeoutLayer::Exit } => Code::NoResult,
        ProcessEnd::TimedOut { .. } if in_tool => Code::ToolTimeout,
        ProcessEnd::TimedOut { .. } => Code::ModelTimeout,
        ProcessEnd::OverBudget => Code::BudgetExceeded,
        ProcessEnd::Canceled => Code::Canceled,
        ProcessEnd::LeaseLost => Code::Fenced,
    }
}

fn by_exit(code: i32, begun: bool) -> Code {
    match code {
        0 => Code::NoResult,
        126 | 127 => Code::CommandNotFound,
        // `timeout` in a wrapper script.
        124 => Code::ModelTimeout,
        130 => Code::Interrupted,
        // 101 is a Rust panic, 128+n a signal as shells report it: the process died, it did not decide.
        101 | 129..=192 => Code::WorkerCrash,
        _ if begun => Code::AgentFailed,
        _ => Code::AgentStartFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<'a>(result: Option<&str>, failure: Option<Failure>, tools: &'a Tools) -> Said<'a> {
        let result = result.map(str::to_owned);
        Said { who: "codex", result, failure, begun: true, tools, warnings: Vec::new(), session: SessionFate::Kept }
    }

    fn code(said: Said<'_>, end: &ProcessEnd) -> Option<Code> {
        verdict(said, end, "").failure.map(|f| f.code)
    }

    #[test]
    fn fr_c1_a_reported_failure_beats_exit_0_and_a_result() {
        let tools = Tools::default();
        let failure = Some(Failure::new(Code::RateLimit, "x"));
        assert_eq!(code(said(Some("done"), failure, &tools), &ProcessEnd::Exited { code: 0 }), Some(Code::RateLimit));
    }

    #[test]
    fn fr_c7_a_result_beats_a_bad_exit_and_both_are_told() {
        let tools = Tools::default();
        let ends = [
            ProcessEnd::Exited { code: 1 },
            ProcessEnd::Signalled { signal: 9 },
            ProcessEnd::TimedOut { layer: TimeoutLayer::Exit },
            ProcessEnd::Interrupted,
        ];
        for end in ends {
            let verdict = verdict(said(Some("done"), None, &tools), &end, "");
            assert_eq!((verdict.failure, verdict.warnings.len()), (None, 1), "{end}");
        }
    }

    #[test]
    fn a_stop_for_good_is_not_healed_by_a_result() {
        let tools = Tools::default();
        assert_eq!(code(said(Some("done"), None, &tools), &ProcessEnd::OverBudget), Some(Code::BudgetExceeded));
        assert_eq!(code(said(Some("done"), None, &tools), &ProcessEnd::Canceled), Some(Code::Canceled));
        assert_eq!(code(said(Some("done"), None, &tools), &ProcessEnd::LeaseLost), Some(Code::Fenced));
    }

    #[test]
    fn fr_c2_a_result_after_nothing_but_failed_tools_is_none() {
        let mut tools = Tools::default();
        tools.end("a", Some(false));
        let verdict = verdict(said(Some("done"), None, &tools), &ProcessEnd::Exited { code: 0 }, "");
        assert_eq!(verdict.failure.map(|f| f.code), Some(Code::AllToolsFailed));
    }

    #[test]
    fn fr_c17_a_blank_result_is_no_result() {
        let tools = Tools::default();
        for blank in [None, Some(""), Some(" \n")] {
            assert_eq!(code(said(blank, None, &tools), &ProcessEnd::Exited { code: 0 }), Some(Code::NoResult));
        }
    }

    #[test]
    fn fr_c19_endings_without_a_word_are_told_apart() {
        let mut tools = Tools::default();
        let timeout = ProcessEnd::TimedOut { layer: TimeoutLayer::Idle };
        assert_eq!(code(said(None, None, &tools), &timeout), Some(Code::ModelTimeout));
        tools.begin("a");
        assert_eq!(code(said(None, None, &tools), &timeout), Some(Code::ToolTimeout));
        let exits = [
            (2, Code::AgentFailed),
            (101, Code::WorkerCrash),
            (124, Code::ModelTimeout),
            (127, Code::CommandNotFound),
            (130, Code::Interrupted),
            (137, Code::WorkerCrash),
            (139, Code::WorkerCrash),
        ];
        for (exit, expected) in exits {
            assert_eq!(code(said(None, None, &tools), &ProcessEnd::Exited { code: exit }), Some(expected), "{exit}");
        }
        assert_eq!(code(said(None, None, &tools), &ProcessEnd::Vanished), Some(Code::WorkerCrash));
    }

    #[test]
    fn a_program_that_never_began_says_why_on_stderr() {
        let tools = Tools::default();
        let mut said = said(None, None, &tools);
        said.begun = false;
        let failure = verdict(said, &ProcessEnd::Exited { code: 1 }, "Error: bad config\n").failure.unwrap();
        assert_eq!(failure.code, Code::AgentStartFailed);
        assert_eq!(failure.message, "codex ended with exit code 1 before it began to work: Error: bad config");
    }
}
