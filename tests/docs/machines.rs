//! The life cycles, drawn and listed from the same tables that the program checks and the database enforces.

use std::fmt::Write as _;

use agentrun::domain::action::state::{ACTION, APPROVAL, DEPLOYMENT};
use agentrun::domain::breaker::BREAKER;
use agentrun::domain::machine::{Machine, Word};
use agentrun::domain::run::{ATTEMPT, PHASE, RUN};
use agentrun::domain::step::STEP;

use crate::{Page, cell};

pub(crate) fn pages() -> Vec<Page> {
    vec![Page { path: "docs/state-machines.md", text: text() }]
}

fn text() -> String {
    let mut out = "# State machines\n\nEach life cycle is one closed table. The program decides by it, the database enforces it in the write itself, and this\n\
        page is made from it. A move that no row names is refused with INVALID_STATE, and the message names the state found.\n"
        .to_owned();
    machine(&mut out, "Run", "Where a run stands. SUCCEEDED and CANCELED are final.", &RUN);
    machine(&mut out, "Attempt", "One try of a run. It ends once.", &ATTEMPT);
    machine(
        &mut out,
        "Step",
        "A stage of a run. A step that succeeded is not executed again by resume or retry; the one way back is `send_back`.",
        &STEP,
    );
    machine(
        &mut out,
        "Breaker",
        "Whether a provider is called: one for each agent, and one that holds the whole provider. Back to CLOSED leads one trial alone.",
        &BREAKER,
    );
    machine(
        &mut out,
        "Action",
        "Where one side effect stands. Its state decides whether anything may be sent: from READY, and from OUTCOME_UNKNOWN where \
         the contract lets the same be sent again. A lost answer never leads to FAILED.",
        &ACTION,
    );
    machine(&mut out, "Approval", "A person's agreement counts once, for a time, for exactly one thing.", &APPROVAL);
    machine(
        &mut out,
        "Deployment",
        "One release in one environment. Executed is not DEPLOYED until it is verified.",
        &DEPLOYMENT,
    );
    machine(
        &mut out,
        "Phase",
        "Where in the delivery a run stands, beside its status. A phase without a step in the task is left out: without a check a \
         run has none until its release is made or its deployment begins.",
        &PHASE,
    );
    out
}

fn machine<S: Word, E: Word>(out: &mut String, title: &str, about: &str, machine: &Machine<S, E>) {
    let _ = write!(
        out,
        "\n## {title}\n\n{about}\n\n```mermaid\n{}```\n\n| state | meaning |\n| --- | --- |\n",
        machine.mermaid()
    );
    for state in S::ALL {
        let _ = writeln!(out, "| {} | {} |", state.word(), cell(state.meaning()));
    }
    out.push_str("\n| event | from | to | needs | meaning |\n| --- | --- | --- | --- | --- |\n");
    for row in machine.rows {
        let from: Vec<_> = row.from.iter().map(|s| s.word()).collect();
        let (event, needs) = (row.event.word(), row.needs.unwrap_or_default());
        let _ = writeln!(
            out,
            "| `{event}` | {} | {} | {needs} | {} |",
            from.join(", "),
            row.to.word(),
            cell(row.event.meaning())
        );
    }
}

#[test]
fn r_m4_every_word_of_every_machine_stands_on_the_page() {
    let page = crate::read("docs/state-machines.md");
    let words = |all: Vec<&'static str>| all.into_iter().filter(|w| !page.contains(w)).collect::<Vec<_>>();
    let missing = [
        words(
            RUN.rows
                .iter()
                .flat_map(|r| r.from.iter().map(|s| s.word()).chain([r.to.word(), r.event.word()]))
                .collect(),
        ),
        words(
            STEP.rows
                .iter()
                .flat_map(|r| r.from.iter().map(|s| s.word()).chain([r.to.word(), r.event.word()]))
                .collect(),
        ),
    ];
    assert!(missing.iter().all(Vec::is_empty), "{missing:?}");
}
