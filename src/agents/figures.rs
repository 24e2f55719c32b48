//! Usage figures are believed within reason (F46): a counter that is missing, negative, fractional or huge must neither
//! wrap nor pass for zero. What stands in for it is never less than what the agent has shown before.

use serde_json::Value;

use super::wording::one_line;

/// More tokens in one response are no measurement.
const MOST_TOKENS: u64 = 100_000_000;
/// Stands in for an unbelievable figure of an agent that has shown none before.
const INPUT: u64 = 20_000;
const OUTPUT: u64 = 4_000;

/// What one execution has shown so far.
#[derive(Debug)]
pub(crate) struct Figures {
    input: u64,
    output: u64,
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
        Self { input: INPUT, output: OUTPUT }
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
        Tokens { input, cached, output, wrong }
    }
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
