//! The clocks over a running step (R-R5): which one strikes next, and when. Silence is measured on raw bytes and side
//! files, and never while the agent waits for a tool of its own.

use crate::domain::outcome::TimeoutLayer;
use crate::domain::policy::Timeouts;
use crate::domain::quantity::{BootMs, Millis};

/// What the clocks look at.
#[derive(Debug, Clone, Copy)]
pub struct Watched {
    /// When the step's process was started.
    pub started: BootMs,
    /// When its last byte came; `None` before the first.
    pub last_byte: Option<BootMs>,
    /// When the agent said that it is done.
    pub result_at: Option<BootMs>,
    /// True while the agent waits for a tool.
    pub in_tool: bool,
    /// Whether silence counts at all: for agents, not for commands.
    pub is_agent: bool,
    /// The step's own limit.
    pub step: Millis,
    /// When the attempt ends at the latest.
    pub attempt_until: BootMs,
    /// When the run ends at the latest.
    pub run_until: BootMs,
}

/// The next clock to strike, and when.
pub fn next(watched: &Watched, timeouts: &Timeouts) -> (BootMs, TimeoutLayer) {
    let after = |from: BootMs, length: Millis| BootMs(from.0.saturating_add(length.0));
    let mut clocks = vec![
        (after(watched.started, watched.step), TimeoutLayer::Step),
        (watched.attempt_until, TimeoutLayer::Attempt),
        (watched.run_until, TimeoutLayer::Run),
    ];
    if watched.is_agent {
        match (watched.result_at, watched.last_byte) {
            (Some(at), _) => clocks.push((after(at, timeouts.exit), TimeoutLayer::Exit)),
            (None, None) => clocks.push((after(watched.started, timeouts.first_output), TimeoutLayer::FirstOutput)),
            (None, Some(last)) if !watched.in_tool => clocks.push((after(last, timeouts.idle), TimeoutLayer::Idle)),
            (None, Some(_)) => {}
        }
    }
    clocks.into_iter().min_by_key(|(at, _)| *at).unwrap_or((watched.run_until, TimeoutLayer::Run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> Watched {
        Watched {
            started: BootMs(1_000),
            last_byte: None,
            result_at: None,
            in_tool: false,
            is_agent: true,
            step: Millis::mins(10),
            attempt_until: BootMs(10_000_000),
            run_until: BootMs(20_000_000),
        }
    }

    #[test]
    fn fr_a2_the_first_byte_has_a_limit_of_its_own() {
        let timeouts = Timeouts { first_output: Millis::secs(2), ..Timeouts::default() };
        assert_eq!(next(&watched(), &timeouts), (BootMs(3_000), TimeoutLayer::FirstOutput));
    }

    #[test]
    fn fr_a7_silence_strikes_but_not_while_a_tool_works() {
        let timeouts = Timeouts { idle: Millis::secs(3), ..Timeouts::default() };
        let talking = Watched { last_byte: Some(BootMs(5_000)), ..watched() };
        assert_eq!(next(&talking, &timeouts), (BootMs(8_000), TimeoutLayer::Idle));
        let in_tool = Watched { in_tool: true, ..talking };
        assert_eq!(next(&in_tool, &timeouts).1, TimeoutLayer::Step);
    }

    #[test]
    fn fr_a8_after_the_result_only_the_exit_clock_and_the_outer_ones_count() {
        let done = Watched { last_byte: Some(BootMs(5_000)), result_at: Some(BootMs(6_000)), ..watched() };
        assert_eq!(next(&done, &Timeouts::default()), (BootMs(11_000), TimeoutLayer::Exit));
    }

    #[test]
    fn a_command_may_be_silent() {
        let command = Watched { is_agent: false, ..watched() };
        assert_eq!(next(&command, &Timeouts::default()).1, TimeoutLayer::Step);
    }
}
