//! Prompts, conditions and what effects are told, as templates over a few named values: checked before a run, rendered the same at every try.
//! Strict: a name that is not there is an error, never an empty text. Values go in as they are; nothing is escaped,
//! because a prompt is no markup, and nothing here may reach a shell.

use std::collections::{BTreeMap, HashSet};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Word as _;
use super::step::StepState;
use super::task::Prompt;

/// What a prompt can name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptValues {
    /// `inputs.<name>`.
    pub inputs: BTreeMap<String, String>,
    /// `context.files`.
    pub context: PromptContext,
    /// `run.<name>`.
    pub run: PromptRun,
    /// `task.<name>`.
    pub task: PromptTask,
}

/// `context` in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptContext {
    /// The relevant files, relative to the repository.
    pub files: Vec<String>,
}

/// `run` in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptRun {
    /// The run's id.
    pub id: String,
    /// The first digits of the base commit.
    pub short_commit: String,
    /// The commit that the run starts from.
    pub base_commit: String,
}

impl PromptRun {
    /// The values of a run.
    pub fn of(id: &str, base_commit: &str) -> Self {
        let short_commit = base_commit.get(..12).unwrap_or(base_commit).to_owned();
        Self { id: id.to_owned(), short_commit, base_commit: base_commit.to_owned() }
    }
}

/// `task` in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PromptTask {
    /// The task's id.
    pub id: String,
    /// Its title, or nothing.
    pub title: String,
}

/// What the texts of a release, deploy, action or approval step can name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeliveryValues {
    /// `inputs.<name>`.
    pub inputs: BTreeMap<String, String>,
    /// `run.<name>`.
    pub run: DeliveryRun,
    /// `task.<name>`.
    pub task: PromptTask,
    /// `release.id`; `None` where no release step comes before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<DeliveryRelease>,
}

/// `run` in what an effect is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeliveryRun {
    /// The run's id.
    pub id: String,
    /// The commit that the run has reached.
    pub commit: String,
    /// Its first twelve digits.
    pub short_commit: String,
    /// The commit that the run started from.
    pub base_commit: String,
}

/// `release` in what an effect is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeliveryRelease {
    /// Its name.
    pub id: String,
}

impl DeliveryRun {
    /// The values of a run that has reached a commit.
    pub fn of(id: &str, commit: &str, base_commit: &str) -> Self {
        let short_commit = commit.get(..12).unwrap_or(commit).to_owned();
        Self { id: id.to_owned(), commit: commit.to_owned(), short_commit, base_commit: base_commit.to_owned() }
    }
}

impl DeliveryValues {
    /// Values for a check before there is a run: everything has a value, the inputs are the real ones.
    pub fn sample(inputs: &BTreeMap<String, String>, release: Option<&str>) -> Self {
        let task = PromptTask { id: "x".to_owned(), title: "x".to_owned() };
        let release = release.map(|id| DeliveryRelease { id: id.to_owned() });
        Self { inputs: inputs.clone(), run: DeliveryRun::of("x", "x", "x"), task, release }
    }
}

/// What a `when:` can name, beside `inputs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ConditionValues {
    /// `inputs.<name>`.
    pub inputs: BTreeMap<String, String>,
    /// `run.<name>`, as in a prompt.
    pub run: PromptRun,
    /// `steps.<key>.state`.
    pub steps: BTreeMap<String, StepFact>,
}

/// One step in a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepFact {
    /// The word of its state: `SUCCEEDED`.
    pub state: String,
}

/// Why a template or condition was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It cannot be read or rendered.
    #[error("{message}")]
    Broken {
        /// Its line in the template, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// It names something that there is not.
    #[error("unknown variable `{name}`")]
    UnknownVariable {
        /// Its line in the template, from 1.
        line: usize,
        /// The name as it was written, with dots.
        name: String,
        /// Names that it may have meant.
        near: Vec<String>,
    },
    /// A condition whose value is neither true nor false.
    #[error("the condition gives {found}, not true or false")]
    NotABool {
        /// What it gave.
        found: String,
    },
}

impl TemplateError {
    /// The line in the template, from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::Broken { line, .. } | Self::UnknownVariable { line, .. } => *line,
            Self::NotABool { .. } => 1,
        }
    }
}

impl PromptValues {
    /// Values for a check before there is a run: everything has a value, the inputs are the real ones.
    pub fn sample(inputs: &BTreeMap<String, String>) -> Self {
        let word = || "x".to_owned();
        Self {
            inputs: inputs.clone(),
            context: PromptContext { files: vec![word()] },
            run: PromptRun { id: word(), short_commit: word(), base_commit: word() },
            task: PromptTask { id: word(), title: word() },
        }
    }
}

impl ConditionValues {
    /// Values for a check before there is a run: every step is pending.
    pub fn sample<'a>(inputs: &BTreeMap<String, String>, steps: impl Iterator<Item = &'a str>) -> Self {
        let state = StepFact { state: StepState::Pending.word().to_owned() };
        let steps = steps.map(|key| (key.to_owned(), state.clone())).collect();
        Self { inputs: inputs.clone(), run: PromptValues::sample(inputs).run, steps }
    }
}

/// The prompt as the agent gets it: a file's template rendered, a text of the command line as it is.
pub fn render_prompt(prompt: &Prompt, values: &PromptValues) -> Result<String, TemplateError> {
    if prompt.path == Prompt::COMMAND_LINE { Ok(prompt.template.clone()) } else { render(&prompt.template, values) }
}

/// Checks a template: it can be read, names only what `sample` has, and renders with it. The sample should have a value
/// for everything, so that a loop over files runs at least once.
pub fn check(template: &str, sample: &impl Serialize) -> Result<(), TemplateError> {
    let environment = environment();
    let parsed = environment.template_from_str(template).map_err(|e| broken(&e))?;
    refuse_unknown(template, &names(sample), parsed.undeclared_variables(true))?;
    render(template, sample).map(drop)
}

/// Renders a template. A missing name is an error.
pub fn render(template: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    environment().render_str(template, Serde(values)).map_err(|e| broken(&e))
}

/// Renders every text of a value, at any depth; names of fields stay as they are.
pub fn render_texts(value: &Value, values: &impl Serialize) -> Result<Value, TemplateError> {
    Ok(match value {
        Value::String(text) => Value::String(render(text, values)?),
        Value::Array(items) => items.iter().map(|item| render_texts(item, values)).collect::<Result<_, _>>()?,
        Value::Object(fields) => {
            let one = |(name, field): (&String, &Value)| Ok((name.clone(), render_texts(field, values)?));
            Value::Object(fields.iter().map(one).collect::<Result<_, TemplateError>>()?)
        }
        _ => value.clone(),
    })
}

/// Checks the expression of a `when:`: it can be read, names only what `sample` has, and gives true or false.
pub fn check_condition(expression: &str, sample: &ConditionValues) -> Result<(), TemplateError> {
    let environment = environment();
    let parsed = environment.compile_expression(expression).map_err(|e| broken(&e))?;
    refuse_unknown(expression, &names(sample), parsed.undeclared_variables(true))?;
    holds(expression, sample).map(drop)
}

/// Whether the expression of a `when:` holds. Anything but true or false is an error: a text that happens to be
/// non-empty is no decision.
pub fn holds(expression: &str, values: &ConditionValues) -> Result<bool, TemplateError> {
    let environment = environment();
    let parsed = environment.compile_expression(expression).map_err(|e| broken(&e))?;
    let value = parsed.eval(Serde(values)).map_err(|e| broken(&e))?;
    bool::try_from(value.clone()).map_err(|_| TemplateError::NotABool { found: value.to_string() })
}

/// How many characters of a text nobody sees (F95): control characters beside line ends and tabs, zero-width and
/// direction marks, tag characters, variation selectors, and what stands in an HTML comment.
pub fn invisible_chars(text: &str) -> usize {
    let (mut count, mut rest) = (0, text);
    while let Some(begin) = rest.find("<!--") {
        let end = rest[begin..].find("-->").map_or(rest.len(), |i| begin + i + 3);
        count += rest[..begin].chars().filter(|c| is_invisible(*c)).count() + rest[begin..end].chars().count();
        rest = &rest[end..];
    }
    count + rest.chars().filter(|c| is_invisible(*c)).count()
}

fn is_invisible(c: char) -> bool {
    let unseen = matches!(
        c,
        '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{3164}'
            // Without the last two, which stand in ordinary emoji.
            | '\u{FE00}'..='\u{FE0D}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    );
    unseen || (c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // The syntax is the usual one, so this cannot fail; if it did, a prompt would only lose its last line end.
    if let Ok(syntax) = SyntaxConfig::builder().keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_recursion_limit(50);
    environment
}

pub(super) fn broken(error: &minijinja::Error) -> TemplateError {
    let detail = error.detail().map(|d| format!(": {d}")).unwrap_or_default();
    TemplateError::Broken { line: error.line().unwrap_or(1), message: format!("{}{detail}", error.kind()) }
}

/// Every name that can be written, with dots: `inputs.ticket`.
pub(super) fn names(sample: &impl Serialize) -> Vec<String> {
    fn walk(at: &str, value: &serde_json::Value, out: &mut Vec<String>) {
        out.push(at.to_owned());
        for (key, value) in value.as_object().into_iter().flatten() {
            walk(&format!("{at}.{key}"), value, out);
        }
    }
    let mut out = Vec::new();
    let sample = serde_json::to_value(sample).unwrap_or_default();
    for (key, value) in sample.as_object().into_iter().flatten() {
        walk(key, value, &mut out);
    }
    out
}

/// Refuses the first name that is used and not known.
pub(super) fn refuse_unknown(source: &str, known: &[String], used: HashSet<String>) -> Result<(), TemplateError> {
    let is_known = |name: &String| known.contains(name) || BUILT_IN.contains(&name.as_str());
    let mut unknown: Vec<_> = used.into_iter().filter(|name| !is_known(name)).collect();
    unknown.sort();
    unknown.into_iter().next().map_or(Ok(()), |name| {
        let line = source.find(&name).map_or(1, |at| source[..at].matches('\n').count() + 1);
        Err(TemplateError::UnknownVariable { line, near: nearest_known(&name, known), name })
    })
}

/// The known names below the same first part, for the message.
fn nearest_known(name: &str, known: &[String]) -> Vec<String> {
    let first = name.split('.').next().unwrap_or_default();
    let below = known.iter().filter(|k| k.contains('.') && k.split('.').next() == Some(first));
    let below: Vec<_> = below.cloned().collect();
    if below.is_empty() { known.iter().filter(|k| !k.contains('.')).cloned().collect() } else { below }
}

/// Functions of the template language itself, which its analysis reports as names.
const BUILT_IN: &[&str] = &["range", "dict", "namespace"];

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> PromptValues {
        PromptValues {
            inputs: [("ticket".to_owned(), "\"; touch X; # <b>&amp;</b> {{ run.id }}".to_owned())].into(),
            context: PromptContext { files: vec!["a.rs".into(), "b.rs".into()] },
            ..PromptValues::default()
        }
    }

    #[test]
    fn the_template_of_the_contract_is_rendered() {
        let template =
            "Fix {{ inputs.ticket }}. Read these first:\n{% for file in context.files %}- {{ file }}\n{% endfor %}";
        check(template, &values()).unwrap();
        let values = PromptValues { inputs: [("ticket".into(), "LOGIN-42".into())].into(), ..values() };
        assert_eq!(render(template, &values).unwrap(), "Fix LOGIN-42. Read these first:\n- a.rs\n- b.rs\n");
    }

    #[test]
    fn f95_a_value_is_passed_as_it_is() {
        let rendered = render("{{ inputs.ticket }}\n", &values()).unwrap();
        assert_eq!(rendered, "\"; touch X; # <b>&amp;</b> {{ run.id }}\n");
    }

    #[test]
    fn f95_what_nobody_sees_is_counted() {
        for (text, count) in [
            ("plain ä 漢字 👍\r\n\t", 0),
            ("a\u{200B}b\u{202E}c", 2),
            ("\u{E0041}\u{E0042}x", 2),
            ("x\u{1b}[31m", 1),
            ("a<!-- b -->c", 10),
            ("a<!-- never closed", 17),
            ("\u{200B}<!---->\u{200B}", 9),
        ] {
            assert_eq!(invisible_chars(text), count, "{text:?}");
        }
    }

    #[test]
    fn f95_what_an_effect_is_told_is_rendered_at_any_depth_and_never_twice() {
        let inputs = [("text".to_owned(), "{{ release.id }}\"; touch X".to_owned())].into();
        let mut values = DeliveryValues::sample(&inputs, Some("release_1"));
        values.run = DeliveryRun::of("run_1_001", "0123456789abcdef", "ff");
        let input = serde_json::json!({ "{{ a }}": ["{{ inputs.text }}", 5, true], "of": { "id": "{{ release.id }} at {{ run.short_commit }}" } });
        let rendered = render_texts(&input, &values).unwrap();
        let expected = serde_json::json!({ "{{ a }}": ["{{ release.id }}\"; touch X", 5, true], "of": { "id": "release_1 at 0123456789ab" } });
        assert_eq!(rendered, expected);
        let without = DeliveryValues::sample(&inputs, None);
        assert!(matches!(check("{{ release.id }}", &without), Err(TemplateError::UnknownVariable { .. })));
        assert!(render("{{ release.id }}", &without).is_err());
    }

    #[test]
    fn an_unknown_name_is_an_error_with_its_line() {
        let error = check("a\nb {{ inputs.tikcet }}\n", &values()).unwrap_err();
        let near = vec!["inputs.ticket".to_owned()];
        assert_eq!(error, TemplateError::UnknownVariable { line: 2, name: "inputs.tikcet".into(), near });
        assert!(matches!(check("{{ x", &values()), Err(TemplateError::Broken { line: 1, .. })));
        assert!(matches!(check("\n{{ 1 | nofilter }}", &values()), Err(TemplateError::Broken { line: 2, .. })));
        assert!(render("{{ inputs.nope }}", &values()).is_err());
        assert!(render("{{ nope }}", &values()).is_err());
    }

    #[test]
    fn a_condition_is_true_or_false_or_an_error() {
        let state = StepFact { state: "FAILED".into() };
        let values = ConditionValues { steps: [("qa".to_owned(), state)].into(), ..ConditionValues::default() };
        assert_eq!(holds("steps.qa.state == 'FAILED'", &values), Ok(true));
        assert_eq!(holds("steps['qa'].state != \"FAILED\"", &values), Ok(false));
        assert!(holds("steps.qa.state", &values).is_err());
        assert!(holds("steps.gone.state == 'FAILED'", &values).is_err());
        assert!(check_condition("steps.qa.stat == 1", &values).is_err());
        assert!(check_condition("steps.qa.state", &values).is_err());
        assert!(check_condition("steps.qa.state in ['FAILED', 'BLOCKED']", &values).is_ok());
        assert!(check_condition("1 +", &values).is_err());
    }
}
