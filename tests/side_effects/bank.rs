//! A world with an order to be placed at a provider that keeps a ledger.

use agentrun::domain::action::ActionRecord;
use agentrun::domain::action::record::ReadingRecord;
use agentrun::store::{ActionFilter, Store};
use serde_json::{Value, json};

use crate::provider::Provider;
use crate::world::World;

/// What the other side promises.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// It knows a second request by its key, and can be asked.
    KeyAndQuery,
    /// It can be asked, and knows no key.
    QueryAlone,
    /// Nothing at all.
    Nothing,
}

pub struct Bank {
    pub world: World,
    pub provider: Provider,
}

impl Bank {
    pub fn new(promise: Promise) -> Self {
        let bank = Self { world: World::new(), provider: Provider::serving() };
        bank.rules("{ id: free, allow: generic }");
        let dedupe = if promise == Promise::KeyAndQuery { "key" } else { "none" };
        let mut contract = format!(
            "version: \"1\"\nenvironment: test\ndedupe: {dedupe}\nreference: /id\n\
             send: {{ http: {{ url: \"{}\", inside: true, body: {{ key: \"{{{{ key }}}}\", amount: \"{{{{ input.amount }}}}\" }} }} }}\n",
            bank.provider.url("/orders")
        );
        if promise != Promise::Nothing {
            contract += &format!(
                "query:\n  http: {{ url: \"{}?key={{{{ key }}}}\", inside: true }}\n  settle: 300ms\n  \
                 find: {{ list: /data, equals: {{ /key: \"{{{{ key }}}}\" }} }}\n",
                bank.provider.url("/effects")
            );
        }
        bank.world.write("policies/contracts/bank.yml", &contract);
        bank.knobs(promise, json!({}));
        bank.order("t", 5, "");
        bank
    }

    /// Knobs beside the dedupe that the contract promises.
    pub fn knobs(&self, promise: Promise, mut knobs: Value) {
        knobs["dedupe"] = if promise == Promise::KeyAndQuery { "key" } else { "none" }.into();
        self.provider.knobs(knobs);
    }

    pub fn rules(&self, rules: &str) {
        let budgets = ("budgets", "{ task: { attempts: 9, time: 30m } }");
        // A process waits no longer for the next question than `max`.
        let retry = ("retry", "{ base: 10ms, max: 5s, jitter: 0, total: 20s }");
        self.world.policy(&[("rules", &format!("[ {rules} ]")), budgets, retry]);
    }

    /// A task that orders this much of document `order-7`.
    pub fn order(&self, task: &str, amount: u32, more: &str) {
        let step = format!(
            "  - {{ key: pay, kind: action, type: generic, target: shop, contract: bank, \
             subject: {{ document: order-7 }}, input: {{ amount: {amount} }}{more} }}\n"
        );
        self.world.task(task, &format!("steps:\n{step}"));
    }

    fn store(&self) -> Store {
        Store::open_read_only(&self.world.state("state/agentrun.db")).unwrap().unwrap()
    }

    pub fn actions(&self) -> Vec<ActionRecord> {
        self.store().actions(&ActionFilter::default()).unwrap()
    }

    /// The one action that there is.
    pub fn action(&self) -> ActionRecord {
        let mut actions = self.actions();
        assert_eq!(actions.len(), 1, "{actions:#?}");
        actions.pop().unwrap()
    }

    pub fn readings(&self) -> Vec<ReadingRecord> {
        self.store().readings(&self.action().id).unwrap()
    }

    pub fn wanted(&self) -> usize {
        self.store().wanted(&self.action().id).unwrap().len()
    }

    /// Writes that arrived, with an effect or without one.
    pub fn writes(&self) -> usize {
        self.provider.requests().iter().filter(|request| request["method"] == "POST").count()
    }

    pub fn effects(&self) -> usize {
        self.provider.ledger().len()
    }
}
