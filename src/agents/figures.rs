//! Usage figures are believed within reason (F46): a counter that is missing, negative, fractional or huge must neither
//! wrap nor pass for zero. What stands in for it is never less than what the agent has shown before.

use serde_json::Value;

use super::wording::one_line;
use crate::domain::budget::{Certainty, Estimate};

/// More tokens in one response are no measurement.
const MOST_TOKENS: u64 = 100_000_000;
/// Stands in for an unbelievable figure of an agent that has shown none before.
const INPUT: u64 = 20_000;
const OUTPUT: u64 = 4_000;
/// Bytes of text per token, at least: a guess is rather too high than too low.
const BYTES_PER_TOKEN: u64 = 3;

/// What one execution has shown so far.
#[derive(Debug)]
pub(crate) struct Figures {
    input: u64,
    output: u64,
    last: Option<Estimate>,
}

/// The most tokens that so much text can be.
pub(crate) fn tokens_of(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The tokens of one response, with what was wrong about them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// All input.
    pub input: u64,
    /// The cached part, at most `input`.
    pub cached: u64,
    /// All output.
    pub output: u64,
    /// Empty when all is well.
    pub wrong: Vec<String>,
}

impl Default for Figures {
    fn default() -> Self {
        Self { input: INPUT, output: OUTPUT, last: None }
    }
}

impl Figures {
    /// Judges the figures of one response.
    pub(crate) fn judge(&mut self, input: &Value, cached: &Value, output: &Value) -> Tokens {
        let mut wrong = Vec::new();
        let mut figure = |name: &str, value: &Value, estimate: u64| {
            let believable = tokens(value);
            if believable.is_none() {
                wrong.push(format!("{name} {}", one_line(&value.to_string(), 40)));
            }
            believable.unwrap_or(estimate)
        };
        let input = figure("input", input, self.input);
        let output = figure("output", output, self.output);
        // Cached tokens are cheap: a figure that is not believable counts as none.
        let mut cached = if cached.is_null() { 0 } else { figure("cached", cached, 0) };
        if cached > input {
            wrong.push(format!("cached {cached} of input {input}"));
            cached = 0;
        }
        if wrong.is_empty() {
            self.input = self.input.max(input);
            self.output = self.output.max(output);
        }
        self.last = Some(Estimate { input, cached, output, cost_micros: None });
        Tokens { input, cached, output, wrong }
    }

    /// True once a response was told.
    pub(crate) fn any(&self) -> bool {
        self.last.is_some()
    }

    /// A call whose answer nobody saw. The context of the last one is sent again, with its answer and with what came in
    /// since (`bytes`, of which no more can be new than a first call may hold); its cached part is cached again. A first
    /// call sends `bytes`. The answer is as long as the longest so far, and no shorter than a long one.
    pub(crate) fn cut_call(&self, bytes: u64) -> Estimate {
        let Some(last) = self.last else {
            return Estimate { input: tokens_of(bytes), output: self.output, ..Estimate::default() };
        };
        let more = tokens_of(bytes).min(INPUT);
        let input = last.input.saturating_add(last.output).saturating_add(more);
        Estimate { input, cached: last.cached, output: self.output, cost_micros: None }
    }
}

impl Tokens {
    /// Figures of which one was not believed are an estimate.
    pub(crate) fn certainty(wrong: &[String]) -> Certainty {
        if wrong.is_empty() { Certainty::Told } else { Certainty::Estimated }
    }
}

/// What a program cost that tells no figures: it read its prompt and wrote its answer.
pub(crate) fn whole_text(prompt_bytes: u64, answer_bytes: u64) -> Estimate {
    Estimate { input: tokens_of(prompt_bytes), output: tokens_of(answer_bytes), ..Estimate::default() }
}

/// What is told about a response whose figures were not believed.
pub(crate) fn complaint(response: &str, wrong: &[String]) -> String {
    format!("AGENT_USAGE_INVALID: usage of response {response}: {}", wrong.join(", "))
}

/// A believable number of tokens.
fn tokens(value: &Value) -> Option<u64> {
    let whole = || {
        let number = value.as_f64().filter(|n| n.fract() == 0.0 && *n >= 0.0 && *n <= 1e15)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, within 0 and 1e15")]
        Some(number as u64)
    };
    value.as_u64().or_else(whole).filter(|tokens| *tokens <= MOST_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn r_r4_a_cut_call_is_estimated_no_lower_than_what_is_sent_again() {
        let mut figures = Figures::default();
        assert_eq!(figures.cut_call(3001), Estimate { input: 1001, output: OUTPUT, ..Estimate::default() });
        figures.judge(&json!(90_000), &json!(80_000), &json!(6_000));
        let next = figures.cut_call(300);
        assert_eq!(next, Estimate { input: 96_100, cached: 80_000, output: 6_000, cost_micros: None });
        assert_eq!(figures.cut_call(u64::MAX).input, 96_000 + INPUT, "whatever a tool printed");
    }

    #[test]
    fn f46_an_unbelievable_figure_counts_no_less_than_what_was_shown_before() {
        let mut figures = Figures::default();
        let mut input = |value: Value| figures.judge(&value, &Value::Null, &json!(10)).input;
        assert_eq!(input(json!(-1)), INPUT);
        assert_eq!(input(json!(90_000.0)), 90_000);
        for odd in [Value::Null, json!(1.5), json!("7"), json!(u64::MAX), json!(1e300), json!([])] {
            assert_eq!(input(odd.clone()), 90_000, "{odd}");
        }
    }
}
