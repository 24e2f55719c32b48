//! One condition of a rule: what an attribute must be. Kept as canonical JSON in the rule; checked when the policy is read, so
//! that none is silently false. What cannot be told is said to be so, and never counted as "no".

use serde_json::Value;

use crate::words;

/// Comparisons with a number, as they are written: `{ over: 100 }`.
pub const COMPARISONS: [&str; 4] = ["over", "at_least", "under", "at_most"];

words! {
    /// What became of one condition.
    pub enum Held {
        /// It holds.
        Yes = "holds",
        /// It does not.
        No = "does_not_hold",
        /// The attribute is not told.
        NotTold = "not_told",
        /// The value, or the condition itself, cannot be compared: a text where a number is wanted.
        Unreadable = "unreadable",
    }
}

impl Held {
    /// Whether it holds for certain, or could: what a rule that says no, or that asks a person, goes by.
    pub fn may_hold(self) -> bool {
        self != Self::No
    }
}

/// How a condition is asked of an attribute with several values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// One that fits is enough: for a rule that forbids or asks.
    OneFits,
    /// All must fit: for a rule that allows.
    AllFit,
}

/// What an attribute must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// One of these: a text, true, false, a number as it is written, or a glob (`*`, `**`, `?`).
    OneOf(Vec<String>),
    /// A number between these, in billionths.
    Between {
        /// The smallest that fits, if there is one.
        from: Option<i128>,
        /// The largest that fits.
        to: Option<i128>,
    },
}

impl Condition {
    /// Reads a condition as a rule keeps it, or says what is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("`{text}` is no condition: {e}"))?;
        Self::of(&value)
    }

    /// The same of its JSON.
    pub fn of(value: &Value) -> Result<Self, String> {
        match value {
            Value::Array(items) if items.is_empty() => Err("a condition without a value never holds".to_owned()),
            Value::Array(items) => items.iter().map(one_text).collect::<Result<_, _>>().map(Self::OneOf),
            Value::Object(bounds) => between(bounds),
            one => Ok(Self::OneOf(vec![one_text(one)?])),
        }
    }

    /// Asks it of an attribute; `None` is one that is not told.
    pub fn ask(&self, value: Option<&Value>, reach: Reach) -> Held {
        match value {
            None | Some(Value::Null) => Held::NotTold,
            Some(Value::Array(values)) if values.is_empty() => Held::NotTold,
            Some(Value::Array(values)) => fold(values.iter().map(|one| self.ask_one(one)), reach),
            Some(one) => self.ask_one(one),
        }
    }

    fn ask_one(&self, value: &Value) -> Held {
        let holds = |yes: bool| if yes { Held::Yes } else { Held::No };
        match (self, value) {
            (_, Value::Null) => Held::NotTold,
            (_, Value::Array(_) | Value::Object(_)) => Held::Unreadable,
            (Self::OneOf(wanted), _) => holds(wanted.iter().any(|one| is_same(one, value))),
            (Self::Between { from, to }, _) => match number(value) {
                Some(n) => holds(from.is_none_or(|from| n >= from) && to.is_none_or(|to| n <= to)),
                None => Held::Unreadable,
            },
        }
    }
}

fn fold(all: impl Iterator<Item = Held> + Clone, reach: Reach) -> Held {
    let (strong, weak) = match reach {
        Reach::OneFits => (Held::Yes, Held::No),
        Reach::AllFit => (Held::No, Held::Yes),
    };
    let doubt = || all.clone().find(|held| matches!(held, Held::NotTold | Held::Unreadable));
    if all.clone().any(|held| held == strong) { strong } else { doubt().unwrap_or(weak) }
}

/// Numbers are compared by value; a text is compared as it is written (release 1.10 is not 1.1), or as a glob.
fn is_same(wanted: &str, value: &Value) -> bool {
    match value {
        Value::Bool(found) => wanted == if *found { "true" } else { "false" },
        Value::Number(found) => {
            let both = decimal(wanted).zip(decimal(&found.to_string()));
            both.map_or_else(|| wanted == found.to_string(), |(wanted, found)| wanted == found)
        }
        Value::String(found) => wanted == found || (is_glob(wanted) && glob(wanted, found)),
        _ => false,
    }
}

fn one_text(value: &Value) -> Result<String, String> {
    match value {
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::String(text) if text.is_empty() => Err("an empty text is no condition".to_owned()),
        Value::String(text) => Ok(text.clone()),
        other => Err(format!("`{other}` is no text, number, true or false")),
    }
}

fn between(bounds: &serde_json::Map<String, Value>) -> Result<Condition, String> {
    let (mut from, mut to) = (None::<i128>, None::<i128>);
    for (name, value) in bounds {
        let n = number(value).ok_or_else(|| format!("`{}` is no number such as 100 or 99.50", shown(value)))?;
        let (lower, bound) = match name.as_str() {
            "over" => (true, n + 1),
            "at_least" => (true, n),
            "under" => (false, n - 1),
            "at_most" => (false, n),
            _ => return Err(format!("`{name}` is no comparison; known are {}", COMPARISONS.join(", "))),
        };
        if lower {
            from = Some(from.map_or(bound, |before| before.max(bound)));
        } else {
            to = Some(to.map_or(bound, |before| before.min(bound)));
        }
    }
    match (from, to) {
        (None, None) => Err(format!("a comparison needs one of {}", COMPARISONS.join(", "))),
        (Some(from), Some(to)) if from > to => Err("no number is between these: it never holds".to_owned()),
        _ => Ok(Condition::Between { from, to }),
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

/// A number, also one that came as text, in billionths.
fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Number(n) => decimal(&n.to_string()),
        Value::String(text) => decimal(text),
        _ => None,
    }
}

/// A plain decimal number in billionths; `None` for anything else. An amount is never a float.
fn decimal(text: &str) -> Option<i128> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let part = if part.len() > 9 { part.trim_end_matches('0') } else { part };
    if !is_digits(whole) || whole.len() > 20 || part.len() > 9 || !(part.is_empty() || is_digits(part)) {
        return None;
    }
    let n: i128 = format!("{whole}{part:0<9}").parse().ok()?;
    Some(if negative { -n } else { n })
}

/// Whether a text of a condition is a pattern.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// `*` and `?` stay within one part between slashes, as in paths; `**` does not.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Which ends of the text the pattern so far can reach: no backtracking, whatever the pattern.
    let mut reached = vec![false; text.len() + 1];
    reached[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let deep = pattern[at] == '*' && pattern.get(at + 1) == Some(&'*');
        let next = match pattern[at] {
            '*' => {
                let mut open = false;
                let spread = (0..=text.len()).map(|i| {
                    let crosses = i > 0 && (deep || text[i - 1] != '/');
                    open = reached[i] || (open && crosses);
                    open
                });
                spread.collect()
            }
            c => {
                let fits = |i: usize| i > 0 && reached[i - 1] && (text[i - 1] == c || (c == '?' && text[i - 1] != '/'));
                (0..=text.len()).map(fits).collect::<Vec<bool>>()
            }
        };
        reached = next;
        at += if deep { 2 } else { 1 };
    }
    reached[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(wanted: &Value, value: &Value) -> Held {
        Condition::of(wanted).unwrap().ask(Some(value), Reach::OneFits)
    }

    #[test]
    fn r_p2_conditions_over_texts_truth_values_lists_and_globs() {
        for (wanted, value, held) in [
            (json!("production"), json!("production"), Held::Yes),
            (json!("production"), json!("staging"), Held::No),
            (json!(true), json!(true), Held::Yes),
            (json!("true"), json!(true), Held::Yes),
            (json!(true), json!(false), Held::No),
            (json!(["a", "b"]), json!("b"), Held::Yes),
            (json!(["a", "b"]), json!("c"), Held::No),
            (json!("release/*"), json!("release/1"), Held::Yes),
            (json!("release/*"), json!("release/1/2"), Held::No),
            (json!("release/**"), json!("release/1/2"), Held::Yes),
            (json!("v?.0"), json!("v1.0"), Held::Yes),
            (json!("100"), json!(100), Held::Yes),
            (json!("100.0"), json!(100), Held::Yes),
            // Texts are no numbers: another release is another release.
            (json!("1.1"), json!("1.10"), Held::No),
            (json!("a"), json!({ "b": 1 }), Held::Unreadable),
            (json!("a"), json!(null), Held::NotTold),
            (json!("a"), json!([]), Held::NotTold),
        ] {
            assert_eq!(ask(&wanted, &value), held, "{wanted} {value}");
        }
    }

    #[test]
    fn r_p2_amounts_are_compared_exactly() {
        for (wanted, value, held) in [
            (json!({ "over": "100" }), json!(100), Held::No),
            (json!({ "over": "100" }), json!("100.01"), Held::Yes),
            (json!({ "over": "0.1" }), json!(0.3), Held::Yes),
            (json!({ "at_least": "100" }), json!(100.0), Held::Yes),
            (json!({ "at_most": "100" }), json!("100"), Held::Yes),
            (json!({ "at_most": "100" }), json!("100.000000001"), Held::No),
            (json!({ "under": "0" }), json!(-5), Held::Yes),
            (json!({ "over": "10", "at_most": "20" }), json!(20), Held::Yes),
            (json!({ "over": "10", "at_most": "20" }), json!(10), Held::No),
            (json!({ "over": "100" }), json!("1,000"), Held::Unreadable),
            (json!({ "over": "100" }), json!("1e9"), Held::Unreadable),
            (json!({ "over": "100" }), json!(true), Held::Unreadable),
        ] {
            assert_eq!(ask(&wanted, &value), held, "{wanted} {value}");
        }
    }

    #[test]
    fn several_values_forbid_by_one_and_allow_by_all() {
        let condition = Condition::of(&json!("docs/**")).unwrap();
        let both = json!(["docs/a", "src/b"]);
        assert_eq!(condition.ask(Some(&both), Reach::OneFits), Held::Yes);
        assert_eq!(condition.ask(Some(&both), Reach::AllFit), Held::No);
        let doubt = json!(["docs/a", null]);
        assert_eq!(condition.ask(Some(&doubt), Reach::AllFit), Held::NotTold);
    }

    #[test]
    fn r_p2_a_condition_that_can_never_be_read_is_refused() {
        for bad in [
            json!([]),
            json!(""),
            json!({}),
            json!({ "ovr": "1" }),
            json!({ "over": "much" }),
            json!({ "over": "5", "under": "5" }),
            json!([["a"]]),
            json!(null),
        ] {
            assert!(Condition::of(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pattern_never_takes_long() {
        assert!(!glob(&"*a".repeat(200), &"a".repeat(3000).replace("aaa", "aab")));
    }
}
