//! Every JSON document against its schema in `docs/reference/schemas/`, and the schemas' closed lists against the words of
//! the domain. Only tests.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::action_json::{Keys, ReconcileDocument, action_document, action_json, actions_json, reconcile_json};
use super::approval::{ApprovalDocument, approval_json, approvals_json};
use super::command_json::{LogName, apply_json, explain_all_json, log_json, plan_json};
use super::compare::{Side, compare};
use super::machine_json::{
    CheckState, DoctorCheck, ErrorDocument, GcDocument, GcItem, InitDocument, doctor_json, error_json, explain_json,
    gc_json, init_json,
};
use super::policy_json::{PolicyCheckDocument, policy_check_json, policy_explain_json, policy_test_json};
use super::providers::ProviderLine;
use super::record_json::{
    FingerprintDocument, ResumeDifference, ResumeDocument, artifacts_json, budget_json, diff_json, events_json,
    fingerprint_json, resume_json,
};
use super::requested::{Requested, action_json as requested_json};
use super::run_json::{Extras, StatusEntry, Via, run_json, status_json};
use crate::domain::action::approval::{ApprovalRecord, Subject};
use crate::domain::action::record::{ReadingRecord, WantedAnswer, WantedBy, WantedRecord};
use crate::domain::action::state::ApprovalState;
use crate::domain::action::told::{Told, told};
use crate::domain::action::{ActionState, Reading as ActionReading};
use crate::domain::artifact::{ArtifactFault, FaultKind};
use crate::domain::breaker::{BreakerState, Cause};
use crate::domain::budget::{Budget, LimitKind, Limits, Scope};
use crate::domain::event::{ChainFault, EventKind};
use crate::domain::failure::{Code, Effect, Retry};
use crate::domain::hash::encoding::Sha256Hash;
use crate::domain::ids::ApprovalId;
use crate::domain::machine::Word;
use crate::domain::outcome::{ProcessFact, Verification};
use crate::domain::plan::meaning::{MeaningWord, Reading};
use crate::domain::policy::case::{PolicyCase, Wanted, verdict};
use crate::domain::policy::command::read_command;
use crate::domain::policy::condition::Held;
use crate::domain::policy::decide::readings;
use crate::domain::policy::kinds::ActionClass;
use crate::domain::policy::{ActionType, ApprovalTerms, Policy, Rule, Verdict};
use crate::domain::record::ArtifactType;
use crate::domain::run::{AttemptState, OpenedBy, Phase, RunStatus};
use crate::domain::sample::{T0, action, at, breaker, event, key, meaning_of, view};
use crate::domain::step::StepState;
use crate::domain::task::{CommandLine, StepKind};

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/reference/schemas/{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Valid as it is; and every required field is really required, so that the schema cannot pass by saying nothing.
fn check(document: &Value) {
    let name = document["schema"].as_str().unwrap().split('/').nth(1).unwrap();
    let schema = schema(name);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<_> = validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert_eq!(errors, [""; 0], "{name}: {document:#}");
    let fields = document.as_object().unwrap();
    for field in fields.keys() {
        let mut less = fields.clone();
        less.remove(field);
        assert!(!validator.is_valid(&Value::Object(less)), "{name}: {field} is not in the schema");
    }
    let mut more = fields.clone();
    more.insert("a_field_of_tomorrow".into(), json!(1));
    assert!(validator.is_valid(&Value::Object(more)), "{name}: unknown fields are allowed");
}

fn run_document(status: RunStatus, via: Option<Via>) -> Value {
    let view = view(status);
    let meaning = meaning_of(&view.run);
    run_json(
        &view,
        &Extras { via, meaning: &meaning, branch: Some("agentrun/run_182_001"), warnings: &[], keys: Keys::Shown },
    )
}

#[test]
fn r_u2_a_run_is_what_the_contract_says_in_every_status() {
    for status in RunStatus::ALL {
        for via in Via::ALL.iter().copied().map(Some).chain([None]) {
            check(&run_document(*status, via));
        }
        let view = view(*status);
        let meaning = meaning_of(&view.run);
        check(&status_json(&[StatusEntry { view: &view, meaning: &meaning, branch: None }], &[]));
    }
    check(&status_json(&[], &[]));
    for breaker in [None, Some(breaker())] {
        let line = ProviderLine { provider: "openai".into(), breaker, waiting: 1, calls: 2 };
        check(&status_json(&[], &[line]));
    }
    insta::assert_snapshot!(super::document::pretty(&run_document(RunStatus::Succeeded, Some(Via::New))));
}

#[test]
fn r_u2_the_fields_of_the_contracts_example_are_all_there() {
    let document = run_document(RunStatus::Succeeded, Some(Via::Reused));
    let top = "schema run task status phase attempt fingerprint via reused code exit base_commit prompt_version \
               context_hash policy_version mode outcome usage steps actions artifacts attempts checkpoints request_id \
               support_code created_at started_at finished_at last_heartbeat_at branch retry_at next";
    let inner = [
        ("/outcome", "process verification success"),
        ("/usage", "tokens total_tokens tool_calls cost_usd wall_ms task_tokens"),
        ("/steps/0", "key kind state attempt runs duration_ms code"),
        ("/artifacts/0", "type path sha256 size"),
        ("/attempts/0", "attempt state code opened_by started_at finished_at"),
        ("/checkpoints/0", "name step commit policy_version"),
    ];
    for (pointer, names) in [("", top)].into_iter().chain(inner) {
        let object = document.pointer(pointer).unwrap().as_object().unwrap();
        for name in names.split_whitespace() {
            assert!(object.contains_key(name), "{pointer}/{name}");
        }
    }
    assert_eq!((&document["via"], &document["reused"]), (&json!("reused"), &json!(true)));
    assert_eq!(document["usage"]["cost_usd"], Value::Null, "an unknown cost is null, never 0");
    assert_eq!(document["usage"]["tokens"], 12_345, "uncached input plus output");
    assert_eq!(document["usage"]["total_tokens"], 98_765);
    assert_eq!(run_document(RunStatus::Succeeded, Some(Via::Attached))["reused"], false);
}

#[test]
fn fr_c5_every_final_state_has_its_exit_code_in_the_json() {
    let exits = RunStatus::ALL.iter().map(|s| run_document(*s, None)["exit"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(exits, [7, 7, 18, 3, 17, 4, 17, 130, 6, 0, 1, 1, 9]);
}

#[test]
fn r_u2_errors_have_a_schema_for_every_code() {
    let support_code = crate::domain::ids::SupportCode::from_bits(3);
    let run = view(RunStatus::Failed).run.id;
    for code in Code::ALL {
        check(&explain_json(*code, None));
        check(&error_json(&ErrorDocument {
            code: *code,
            exit: code.entry().exit,
            message: "task file tasks/182.yml: unknown key `stepz`",
            run: Some(&run),
            action: None,
            hint: Some("did you mean `steps`"),
            causes: &["line 3".into()],
            retry_at: Some(T0),
            support_code: &support_code,
        }));
    }
}

#[test]
fn r_s7_records_have_schemas() {
    let (left, right) = (view(RunStatus::Succeeded), view(RunStatus::Failed));
    let whole = |view| Side { view, attempt: None };
    check(&diff_json(&compare(whole(&left), whole(&right))));
    check(&diff_json(&compare(whole(&left), Side { view: &right, attempt: Some(7) })));
    let changed = FaultKind::Changed { old: Sha256Hash::of(b"a"), new: Sha256Hash::of(b"b") };
    let faults = [("a", FaultKind::Missing), ("b", changed)].map(|(p, what)| ArtifactFault { path: p.into(), what });
    for faults in [None, Some(&[][..]), Some(&faults[..])] {
        check(&artifacts_json(&left.run.id, &left.artifacts, faults));
    }
    let events: Vec<_> = EventKind::ALL.iter().map(|kind| event(*kind, "why")).collect();
    let fault = ChainFault { chain: "run_182_001".into(), n: 3, what: "an event was changed".into() };
    for faults in [None, Some(&[][..]), Some(&[fault][..])] {
        check(&events_json(&events, faults));
    }
    let limits = Budget {
        task: Limits { tokens: Some(500_000), cost_micros: Some(1), ..Limits::default() },
        ..Budget::default()
    };
    check(&budget_json(&left, &limits));
}

#[test]
fn r_f6_r_s5_fingerprints_and_verdicts_have_schemas() {
    let view = view(RunStatus::Failed);
    let components = &view.run.components;
    let mut earlier = components.clone();
    (earlier.mode, earlier.prompt_version) = ("review".into(), None);
    let differences = components.differences(&earlier);
    for against in [None, Some((&view.run.id, &differences[..]))] {
        let (files, rules) = (&view.inputs.files, &view.inputs.rules);
        let meaning = view.inputs.spec.meaning();
        check(&fingerprint_json(&FingerprintDocument { components, task_meaning: &meaning, files, rules, against }));
    }
    let codes = "BASE_COMMIT_CHANGED TASK_SPEC_CHANGED PROMPT_VERSION_CHANGED CONTEXT_CHANGED POLICY_CHANGED \
                 WORKTREE_CHANGED ARTIFACT_MISSING ARTIFACT_CHANGED APPROVAL_INVALID RELEASE_CHANGED \
                 ENVIRONMENT_CHANGED LOCKFILE_CHANGED";
    let difference = |code: &str| ResumeDifference {
        code: code.into(),
        old: Some("a".into()),
        new: None,
        verdict: "REVIEW_REQUIRED".into(),
        note: "why".into(),
    };
    let differences: Vec<_> = codes.split_whitespace().map(difference).collect();
    for verdict in ["VALID", "REVIEW_REQUIRED", "RESUME_BLOCKED"] {
        let (run, next_step, next) = (&view.run.id, Some(&key("qa")), Some("agentrun resume run_182_001"));
        check(&resume_json(&ResumeDocument {
            run,
            verdict,
            next_step,
            policy_ref: Some("main"),
            differences: &differences,
            next,
        }));
    }
}

#[test]
fn r_u2_the_machine_has_schemas() {
    let doctor = |state| DoctorCheck { name: "git".into(), state, message: "2.47".into(), hint: None };
    let checks: Vec<_> = CheckState::ALL.iter().map(|s| doctor(*s)).collect();
    check(&doctor_json("0.1.0", &checks));
    assert_eq!(doctor_json("0.1.0", &checks)["fit"], false);
    assert_eq!(doctor_json("0.1.0", &checks[..2])["fit"], true, "a warning is no failure");
    let item = GcItem { run: None, what: "temporary".into(), path: "x".into(), size: 7, reason: "old".into() };
    check(&gc_json(&GcDocument { dry_run: true, removed: &[item.clone(), item], kept: &[] }));
    let written = ["automation-policy.yml".to_owned()];
    check(&init_json(&InitDocument {
        root: "/r",
        written: &written,
        kept: &[],
        commit: None,
        next: Some("agentrun start"),
    }));
}

#[test]
fn r_u2_commands_without_a_record_have_schemas() {
    let view = view(RunStatus::Failed);
    let components = &view.run.components;
    let steps = [("qa".to_owned(), StepKind::Qa, "cargo test".to_owned())];
    check(&plan_json(components, &steps, None));
    check(&plan_json(components, &steps, Some((&view.run.id, "resume it"))));
    check(&apply_json(&view.run.id, "agentrun/run_182_001", &["src/auth.rs".into()]));
    for stream in ["stdout", "stderr", "events"] {
        check(&log_json(&LogName { step: "qa", attempt: 1, stream }, "running 3 tests"));
    }
    check(&explain_all_json(&|code| format!("hint of {code}")));
}

#[test]
fn r_a16_side_effects_have_schemas_and_no_key_outside_the_local_documents() {
    let action = action(ActionState::OutcomeUnknown);
    let reading = ActionReading::Unclear { message: "503".into(), retry_after: None };
    let readings = [ReadingRecord { at: at(5), reading, source: "query".into(), tries: 1 }];
    let by = WantedBy {
        run: action.run.clone(),
        attempt: 1,
        step: action.step.clone(),
        call: None,
        conversation: None,
        request_id: action.request_id.clone(),
    };
    let wanted = [WantedRecord { by, at: at(1), answer: WantedAnswer::New }];
    check(&actions_json(std::slice::from_ref(&action), at(60)));
    check(&action_document(&action, &readings, &wanted));
    let asked = [(ActionState::OutcomeUnknown, &action, None)];
    let nameless = [action.clone()];
    check(&reconcile_json(&ReconcileDocument { asked: &asked, expired: 1, nameless: &nameless }));
    assert!(!action_json(&action, Keys::Hashed).to_string().contains(&action.key));
}

#[test]
fn r_p3_what_a_policy_says_has_schemas() {
    let rule = |id: &str, verdict, action: &str| Rule {
        id: id.to_owned(),
        verdict,
        action: action.to_owned(),
        when: [("force".to_owned(), "true".to_owned())].into(),
        approval: None,
    };
    let rules = vec![rule("a", Verdict::Deny, "git.push"), rule("b", Verdict::Approve, "deploy")];
    let policy = Policy { version: "v1".to_owned(), rules, ..Policy::default() };
    let types: Vec<_> = ActionType::ALL.iter().map(|kind| policy.terms(*kind)).collect();
    let (files, remarks) = (["automation-policy.yml".to_owned()], ["worth a look".to_owned()]);
    for rev in [None, Some("main")] {
        let sha256 = "00".repeat(32);
        check(&policy_check_json(&PolicyCheckDocument {
            version: "v1",
            sha256: &sha256,
            rev,
            files: &files,
            rules: 2,
            cases: 1,
            types: &types,
            remarks: &remarks,
        }));
    }
    for line in ["git push -f", "git push $X", "true"] {
        let wanted = Wanted::Command(CommandLine::Shell(line.to_owned()), std::collections::BTreeMap::new());
        let effects = read_command(&CommandLine::Shell(line.to_owned()), &std::collections::BTreeMap::new()).effects;
        let read: Vec<_> = effects.into_iter().map(|asked| (asked.clone(), readings(&policy, &asked))).collect();
        check(&policy_explain_json("v1", &verdict(&policy, &wanted), &read));
        let (name, place) = (line.to_owned(), "policies/cases/x.yml:3".to_owned());
        let case = PolicyCase { name, place, wanted, verdict: Verdict::Deny, rule: Some("a".to_owned()) };
        let failure = case.failure(&policy);
        check(&policy_test_json("v1", &[(case, failure)]));
    }
}

#[test]
fn what_was_asked_for_inside_a_run_is_as_its_schema_says_in_every_state() {
    for state in ActionState::ALL {
        let action = action(*state);
        let requested = Requested { action: &action, told: told(&action), duplicate: true, look_again: Some(T0) };
        check(&requested_json(&requested));
    }
}

#[test]
fn closed_lists_are_those_of_the_domain() {
    fn words<W: Word>() -> Value {
        W::ALL.iter().map(|w| w.word()).collect()
    }
    let known = [
        ("RunStatus", words::<RunStatus>()),
        ("Phase", words::<Phase>()),
        ("Code", words::<Code>()),
        ("Retry", words::<Retry>()),
        ("Effect", words::<Effect>()),
        ("StepState", words::<StepState>()),
        ("StepKind", words::<StepKind>()),
        ("AttemptState", words::<AttemptState>()),
        ("OpenedBy", words::<OpenedBy>()),
        ("ArtifactType", words::<ArtifactType>()),
        ("ProcessFact", words::<ProcessFact>()),
        ("Verification", words::<Verification>()),
        ("Via", words::<Via>()),
        ("MeaningWord", words::<MeaningWord>()),
        ("Reading", words::<Reading>()),
        ("EventKind", words::<EventKind>()),
        ("LimitKind", words::<LimitKind>()),
        ("Scope", words::<Scope>()),
        ("CheckState", words::<CheckState>()),
        ("BreakerState", words::<BreakerState>()),
        ("BreakerCause", words::<Cause>()),
        ("Verdict", words::<Verdict>()),
        ("Held", words::<Held>()),
        ("ActionType", words::<ActionType>()),
        ("ActionState", words::<ActionState>()),
        ("ApprovalState", words::<ApprovalState>()),
        ("ActionClass", words::<ActionClass>()),
        ("Told", words::<Told>()),
    ];
    let mut seen = std::collections::BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/schemas");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned();
        for (definition, body) in schema(&name)["$defs"].as_object().unwrap() {
            if let Some((_, words)) = known.iter().find(|(known, _)| known == definition) {
                assert_eq!(&body["enum"], words, "{name}: {definition}");
                seen.insert(definition.clone());
            }
        }
    }
    assert_eq!(seen.len(), known.len(), "each list is used by a schema: {seen:?}");
}

#[test]
fn every_exit_code_is_in_the_schema() {
    for code in Code::ALL {
        let exits = &schema("error")["$defs"]["Exit"]["enum"];
        assert!(exits.as_array().unwrap().contains(&json!(code.entry().exit.code())), "{code}");
    }
}

#[test]
fn r_u2_what_a_person_is_asked_for_is_what_the_contract_says() {
    let subject = Subject {
        title: "deploy v1 to production".to_owned(),
        kind: "deploy".to_owned(),
        target: Some("production".to_owned()),
        account: None,
        environment: Some("live".to_owned()),
        request: Some(Sha256Hash::of(b"request")),
        command: Some(vec!["sh".to_owned()]),
        programs: BTreeMap::new(),
        commit: None,
        release: None,
        artifacts: BTreeMap::new(),
        contract: None,
        environment_state: BTreeMap::new(),
        policy: "1".to_owned(),
    };
    for state in ApprovalState::ALL {
        let approval = ApprovalRecord {
            id: ApprovalId::recorded("apr_AAAAAAAA"),
            action: None,
            run: view(RunStatus::WaitingApproval).run.id,
            step: Some(key("deploy")),
            state: *state,
            digest: subject.digest(),
            subject: subject.clone(),
            terms: ApprovalTerms { expires: None, approvers: Vec::new() },
            rule: None,
            asked_at: T0,
            expires_at: Some(T0),
            decided_at: None,
            decided_by: None,
            reason: None,
        };
        let document = ApprovalDocument { approval: &approval, action: None, input: None, may: &[] };
        check(&approval_json(&document));
        check(&approvals_json(&[approval]));
    }
}
