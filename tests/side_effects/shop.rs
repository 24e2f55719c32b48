//! A shop that takes orders over HTTP, and an environment that is deployed to by a command: tasks, contracts and rules for both.

use crate::provider::{PROGRAM, Provider};
use crate::world::World;

/// Rules and clocks for tests: everything goes without a person, waits are short.
pub fn allow_all(world: &World) {
    world.policy(&SECTIONS);
}

pub const SECTIONS: [(&str, &str); 5] = [
    ("timeouts", "{ call: 500ms, grace: 200ms, exit: 300ms }"),
    ("rules", "[ { id: all, allow: \"*\" } ]"),
    ("retry", "{ base: 50ms, max: 2s, jitter: 0, total: 20s }"),
    ("actions", "{ answer: 2s, call: 1s, try: 2s, expire: 5s }"),
    ("send_budget", "{ default: { max: 100, per: 1m } }"),
];

/// A contract of this name over the provider's HTTP side.
pub fn http_contract(world: &World, provider: &Provider, (name, lines): (&str, &str)) {
    let send = format!(
        "send: {{ http: {{ url: \"{}\", inside: true, body: {{ amount: \"{{{{ input.amount }}}}\", key: \"{{{{ key }}}}\" }} }} }}\n",
        provider.url("/orders")
    );
    world.write(&format!("policies/contracts/{name}.yml"), &format!("version: v1\n{send}reference: /id\n{lines}"));
}

/// The query of the same.
pub fn http_query(provider: &Provider, settle: &str) -> String {
    format!(
        "query: {{ settle: {settle}, http: {{ url: \"{}\", inside: true }}, find: {{ list: /data, more: /has_more, \
         equals: {{ /key: \"{{{{ key }}}}\" }} }} }}\n",
        provider.url("/effects?key={{ key }}")
    )
}

/// A task that orders something under a contract.
pub fn order(world: &World, task: &str, (contract, amount, more): (&str, u32, &str)) {
    world.task(
        task,
        &format!(
            "steps:\n  - key: order\n    kind: action\n    type: generic\n    target: shop\n    contract: {contract}\n    \
             subject: {{ document: order-7 }}\n    input: {{ amount: {amount} }}\n{more}"
        ),
    );
}

/// The one action of a run.
pub fn action(run: &serde_json::Value) -> serde_json::Value {
    run["actions"][0].clone()
}

/// The provider as a command of a step.
pub fn command(provider: &Provider, verb: &str) -> String {
    format!("[ \"{PROGRAM}\", {verb}, \"{}\" ]", provider.folder().display())
}
