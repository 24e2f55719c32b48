//! `junit.xml`: one test case per step, so that any CI shows which stage failed and why (R-U2).

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::input::ReportInput;
use super::phrase::reason;
use crate::domain::quantity::Millis;
use crate::domain::record::StepRecord;
use crate::domain::step::StepState;
use crate::domain::text::neutral;

/// Renders the file. A failing check or command is a failure; what says nothing about the work (a blocked or unknown
/// step) is an error; what did not run is skipped.
pub fn junit(input: &ReportInput<'_>) -> Result<String, SerializeError> {
    let run = &input.view.run;
    let mut suite = TestSuite::new(run.id.as_str());
    for step in &input.view.steps {
        suite.add_test_case(case(input, step));
    }
    suite.add_property(("status", run.status.to_string().as_str()));
    suite.add_property(("attempt", run.attempt.to_string().as_str()));
    suite.add_property(("support_code", run.support_code.as_str()));
    let mut report = Report::new("agentrun");
    report.add_test_suite(suite);
    report.to_string()
}

fn case(input: &ReportInput<'_>, step: &StepRecord) -> TestCase {
    let why = reason(step.code, step.message.as_deref());
    let mut status = match step.state {
        StepState::Succeeded => TestCaseStatus::success(),
        StepState::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        StepState::Blocked | StepState::Unknown => TestCaseStatus::non_success(NonSuccessKind::Error),
        StepState::Pending
        | StepState::Running
        | StepState::Skipped
        | StepState::Canceled
        | StepState::WaitingApproval => TestCaseStatus::skipped(),
    };
    if step.state != StepState::Succeeded {
        status.set_message(why.unwrap_or_else(|| step.state.to_string()));
        status.set_type(step.code.map_or_else(|| step.state.to_string(), |code| code.to_string()));
    }
    let mut case = TestCase::new(step.key.as_str(), status);
    case.set_classname(format!("{}.{}", input.view.run.task, step.kind));
    if let Some((from, to)) = step.started_at.zip(step.finished_at) {
        case.set_time(Duration::from_millis(Millis::between(from, to).0));
    }
    if let Some(tail) = input.tails.iter().find(|t| t.step == step.key) {
        case.set_system_out(neutral(&tail.text).as_ref());
    }
    case
}
