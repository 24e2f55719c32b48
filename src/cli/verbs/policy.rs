//! `agentrun policy`: what the rules are, whether they say what they should, and why.

use clap::{Args, Subcommand};

use super::task::pairs;
use crate::cli::error::CliError;
use crate::cli::session::Session;
use crate::domain::failure::Exit;
use crate::domain::policy::case::Wanted;
use crate::domain::policy::decide::{Asked, ConditionReading, Decision, RuleReading};
use crate::domain::policy::kinds::KindTerms;
use crate::domain::policy::{Keep, Verdict};
use crate::domain::task::CommandLine;
use crate::ops::policy::{check, explain, test};
use crate::report::amount;
use crate::report::policy_json::{PolicyCheckDocument, policy_check_json, policy_explain_json, policy_test_json};

/// `policy`.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: PolicyVerb,
}

/// `policy …`.
#[derive(Debug, Subcommand)]
pub enum PolicyVerb {
    /// Read the policy and everything beside it; list what holds for each type of action, and what is missing.
    Check {
        /// Read the policy from this revision instead of the checkout.
        #[arg(long, value_name = "REV")]
        policy_ref: Option<String>,
    },
    /// Try the rules on the cases of `policies/cases/`; fails when one says something else.
    Test {
        /// These files of cases instead.
        files: Vec<String>,
        /// Read the policy from this revision instead of the checkout.
        #[arg(long, value_name = "REV")]
        policy_ref: Option<String>,
    },
    /// Say which rule decides about an action or a command, and why.
    Explain {
        /// The action: `deploy`, `git.push` …
        #[arg(required_unless_present = "command")]
        action: Option<String>,
        /// An attribute of the action; may be repeated.
        #[arg(long = "attr", value_name = "NAME=VALUE", conflicts_with = "command")]
        attributes: Vec<String>,
        /// A command line in the place of an action.
        #[arg(long, value_name = "LINE", conflicts_with = "action")]
        command: Option<String>,
        /// Read the policy from this revision instead of the checkout.
        #[arg(long, value_name = "REV")]
        policy_ref: Option<String>,
    },
}

/// Runs it.
pub fn run(session: &mut Session, args: &PolicyArgs) -> Result<Exit, CliError> {
    match &args.verb {
        PolicyVerb::Check { policy_ref } => run_check(session, policy_ref.as_deref()),
        PolicyVerb::Test { files, policy_ref } => run_test(session, files, policy_ref.as_deref()),
        PolicyVerb::Explain { action, attributes, command, policy_ref } => {
            let wanted = match (action, command) {
                (_, Some(line)) => Wanted::Command(CommandLine::Shell(line.clone()), std::collections::BTreeMap::new()),
                (Some(action), None) => Wanted::Action(explain::asked(action, &pairs("--attr", attributes)?)),
                (None, None) => return Err(CliError::usage("name an action, or a command with --command")),
            };
            run_explain(session, &wanted, policy_ref.as_deref())
        }
    }
}

fn run_check(session: &mut Session, policy_ref: Option<&str>) -> Result<Exit, CliError> {
    let checked = check::check(&session.place()?, policy_ref)?;
    if session.json {
        session.say.json(&policy_check_json(&PolicyCheckDocument {
            version: &checked.version,
            sha256: &checked.sha256,
            rev: checked.rev.as_deref(),
            files: &checked.files,
            rules: checked.rules,
            cases: checked.cases,
            types: &checked.types,
            remarks: &checked.remarks,
        }));
        return Ok(Exit::Ok);
    }
    let files = if checked.files.is_empty() { "built in".to_owned() } else { checked.files.join(", ") };
    let rev = checked.rev.map(|rev| format!(" at {rev}")).unwrap_or_default();
    let mut text = format!("policy {} ({files}{rev})\n  {}\n", checked.version, checked.sha256);
    text.push_str(&format!(
        "  {}, {}\n",
        amount::counted(checked.rules as u64, "rule"),
        amount::counted(checked.cases as u64, "case")
    ));
    checked.types.iter().for_each(|terms| text.push_str(&type_text(terms)));
    checked.remarks.iter().for_each(|remark| text.push_str(&format!("remark: {remark}\n")));
    session.say.result(&text);
    Ok(Exit::Ok)
}

fn type_text(terms: &KindTerms) -> String {
    let clocks = &terms.clocks;
    let retention = match terms.retention {
        Some(Keep::For(time)) => time.to_string(),
        Some(Keep::Release) => "as long as its release is in use".to_owned(),
        None => "without end".to_owned(),
    };
    let sends = terms.sends.map_or("no limit".to_owned(), |limit| format!("{} in {}", limit.max, limit.per));
    let mut text = format!("{} ({})\n", terms.kind, terms.class);
    let lines = [
        (
            "timeouts",
            format!("answer {}, call {}, try {}, expire {}", clocks.answer, clocks.call, clocks.one_try, clocks.expire),
        ),
        ("key", terms.key.clone()),
        ("tries", format!("{}; again only where it is proved that nothing happened", terms.tries)),
        ("sends", sends),
        ("approval", format!("{}: {}", terms.approval.verdict, terms.approval.why)),
        ("retention", retention),
        ("unknown", terms.unknown.to_owned()),
    ];
    for (name, value) in lines {
        text.push_str(&format!("  {name:<10} {value}\n"));
    }
    for missing in &terms.missing {
        text.push_str(&format!("  missing    {}: {}\n", missing.key, missing.instead));
    }
    text
}

fn run_test(session: &mut Session, files: &[String], policy_ref: Option<&str>) -> Result<Exit, CliError> {
    let tested = test::test(&session.place()?, policy_ref, files)?;
    let failed = tested.failed();
    let exit = if failed == 0 { Exit::Ok } else { Exit::RunFailed };
    if session.json {
        session.say.json(&policy_test_json(&tested.version, &tested.cases));
        return Ok(exit);
    }
    let mut text = String::new();
    for (case, failure) in &tested.cases {
        if let Some(failure) = failure {
            text.push_str(&format!("{}: {}: {failure}\n", case.place, case.name));
        }
    }
    let passed = tested.cases.len() - failed;
    text.push_str(&format!("{} passed, {failed} failed\n", amount::counted(passed as u64, "case")));
    session.say.result(&text);
    Ok(exit)
}

fn run_explain(session: &mut Session, wanted: &Wanted, policy_ref: Option<&str>) -> Result<Exit, CliError> {
    let explained = explain::explain(&session.place()?, policy_ref, wanted)?;
    if session.json {
        session.say.json(&policy_explain_json(&explained.version, &explained.decision, &explained.effects));
        return Ok(Exit::Ok);
    }
    let mut text = decision_text(&explained.decision);
    for (asked, rules) in &explained.effects {
        text.push_str(&effect_text(asked, rules));
    }
    session.say.result(&text);
    Ok(Exit::Ok)
}

fn decision_text(decision: &Decision) -> String {
    let mut text = format!("{}: {}\n", decision.verdict, decision.why);
    if decision.verdict == Verdict::Approve {
        let who = &decision.terms.approvers;
        let who = if who.is_empty() { "anybody who may approve".to_owned() } else { who.join(", ") };
        let time = decision.terms.expires.map(|time| format!(", within {time}")).unwrap_or_default();
        text.push_str(&format!("  by {who}{time}\n"));
    }
    text
}

fn effect_text(asked: &Asked, rules: &[RuleReading]) -> String {
    let values: Vec<_> = asked.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = format!("{} {}\n", asked.action, values.join(" "));
    for rule in rules {
        let fits = if rule.fits { "fits" } else { "does not fit" };
        text.push_str(&format!("  {} `{}` {fits}\n", rule.verdict, rule.rule));
        rule.conditions.iter().for_each(|condition| text.push_str(&condition_text(condition)));
    }
    if rules.is_empty() {
        text.push_str("  no rule names it\n");
    }
    text
}

fn condition_text(condition: &ConditionReading) -> String {
    let found = condition.found.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
    let held = condition.held.to_string().replace('_', " ");
    format!("    {} is to be {}, is {found}: {held}\n", condition.attribute, condition.wanted)
}
