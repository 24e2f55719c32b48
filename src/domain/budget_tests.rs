//! Limits, what is used of them, estimates, prices.

use super::*;
use crate::domain::machine::Word as _;

fn usage(input: u64, cached: u64, output: u64) -> Usage {
    Usage { input, cached, output, ..Usage::default() }
}

#[test]
fn fr_f13_cached_tokens_are_counted_apart() {
    let used = usage(6000, 3100, 180);
    assert_eq!((used.tokens(), used.total_tokens()), (3080, 6180));
}

#[test]
fn r_r4_a_breach_names_the_limit_and_the_overshoot() {
    let limits = Limits { tokens: Some(1000), ..Limits::default() };
    assert_eq!(limits.breach(Scope::Task, &usage(1000, 0, 0)), None);
    let breach = limits.breach(Scope::Task, &usage(1500, 0, 50)).unwrap();
    assert_eq!(breach.to_string(), "task.tokens is limited to 1000, used 1550, 550 over");
}

#[test]
fn fr_f11_from_a_share_on_a_limit_is_worth_a_warning_until_it_is_crossed() {
    let limits = Limits { tokens: Some(1000), time: Some(Millis(0)), ..Limits::default() };
    let near = |tokens| limits.nearly(Scope::Task, &usage(tokens, 0, 0), 800);
    assert_eq!((near(0), near(799), near(1001)), (vec![], vec![], vec![]));
    let warnings: Vec<_> = near(850).iter().map(Breach::warning).collect();
    assert_eq!(warnings, ["task.tokens: 85 % of 1000 are used (850), 150 left"]);
    assert_eq!(near(1000).len(), 1);
}

#[test]
fn an_estimate_counts_and_is_known_apart() {
    let estimated = Estimate { input: 100, cached: 40, output: 7, cost_micros: Some(9) };
    let used = Usage { estimated, ..usage(1000, 500, 3) };
    assert_eq!((used.tokens(), used.total_tokens(), used.cost()), (570, 1110, Some(9)));
    assert_eq!((used.plus(&used).tokens(), used.of(LimitKind::Cost)), (1140, 9));
    assert_eq!(LimitKind::ALL.iter().map(|k| estimated.of(*k)).sum::<u64>(), 67 + 107 + 9);
}

#[test]
fn a_task_can_only_be_stricter() {
    let policy = Limits { tokens: Some(100), time: Some(Millis(5)), ..Limits::default() };
    let task = Limits { tokens: Some(200), tool_calls: Some(3), ..Limits::default() };
    let both = policy.stricter(&task);
    assert_eq!((both.tokens, both.time, both.tool_calls), (Some(100), Some(Millis(5)), Some(3)));
    assert_eq!(task.looser_than(&policy), [LimitKind::Tokens]);
}

#[test]
fn an_unknown_cost_stays_unknown_until_somebody_says_one() {
    let known = Usage { cost_micros: Some(5), ..Usage::default() };
    assert_eq!(Usage::default().plus(&Usage::default()).cost_micros, None);
    assert_eq!(Usage::default().plus(&known).cost_micros, Some(5));
}

#[test]
fn a_price_never_rounds_down() {
    let price = Price { input: 1_250_000, cached: 125_000, output: 10_000_000 };
    assert_eq!(price.cost_micros(1_000_000, 0, 0), 1_250_000);
    assert_eq!(price.cost_micros(1, 1, 0), 1);
}
