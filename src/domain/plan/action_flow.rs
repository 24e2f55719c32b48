//! The next move of a side effect (R-A1, R-A18): from its record, its contract and what was read, and from nothing else. One
//! move at a time, each committed before the next is thought of, so that whoever comes after a crash decides the same.

use crate::domain::action::contract::{Automatic, Dedupe};
use crate::domain::action::record::ReadingRecord;
use crate::domain::action::{ActionRecord, ActionState, Reading};
use crate::domain::failure::Code;
use crate::domain::lease::Holding;
use crate::domain::plan::reconcile::{self, Verdict};
use crate::domain::quantity::{Millis, UtcMs};

/// How often a question is asked that is not answered yet, at most.
const BETWEEN_QUESTIONS: Millis = Millis(1_000);

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: it is settled.
    Settled,
    /// A person must agree first.
    AwaitApproval,
    /// Ask the other side.
    Ask {
        /// Not before.
        at: UtcMs,
    },
    /// Send it.
    Send {
        /// Not before.
        at: UtcMs,
    },
    /// Send it once more under the same key, while nobody knows.
    Resend {
        /// Not before.
        at: UtcMs,
    },
    /// What was read settles it.
    Settle(Verdict),
    /// It failed and may be tried again with the same key.
    Retry {
        /// Not before.
        at: UtcMs,
    },
    /// Its sender is gone, or its time is over: nobody knows what became of it.
    Lose,
    /// Somebody else is at it.
    Held,
    /// A person must look.
    Review {
        /// Why.
        why: String,
    },
}

/// What the next move depends on beside the record.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The present.
    pub present: UtcMs,
    /// Until when agentrun goes on by itself: the action's deadline, or later where somebody asks for it anew.
    pub until: UtcMs,
    /// How it is held, as seen by whoever asks; `Free` for whoever holds it itself.
    pub holding: Holding,
    /// Readings, oldest first.
    pub readings: &'a [ReadingRecord],
    /// How often it may be sent.
    pub tries: u32,
    /// The wait before the next send.
    pub delay: Millis,
    /// Whether it can be asked about: by its contract, or by its step's own command.
    pub query: Option<Millis>,
}

/// Decides.
pub fn next(action: &ActionRecord, facts: &Facts<'_>) -> Next {
    if facts.holding == Holding::Held {
        return Next::Held;
    }
    match action.state {
        ActionState::Succeeded | ActionState::Canceled | ActionState::Compensating | ActionState::Compensated => {
            Next::Settled
        }
        ActionState::WaitingApproval => Next::AwaitApproval,
        ActionState::Ready => ready(action, facts),
        // Whoever asks holds it and has no answer: the send was cut.
        ActionState::Started => Next::Lose,
        ActionState::InProgress => in_progress(action, facts),
        ActionState::Failed => failed(action, facts),
        ActionState::OutcomeUnknown => unknown(action, facts),
    }
}

fn ready(action: &ActionRecord, facts: &Facts<'_>) -> Next {
    if action.contract.automatic == Automatic::Draft {
        return Next::Review { why: "the contract lets a person send it, not agentrun".to_owned() };
    }
    let looked_for = facts.readings.iter().rfind(|reading| reading.tries == 0);
    if action.tries == 0 && action.contract.look_first && facts.query.is_some() {
        match looked_for.map(|last| &last.reading) {
            None => return Next::Ask { at: facts.present },
            Some(Reading::NotFound) => {}
            Some(Reading::Succeeded { reference }) => {
                return Next::Settle(Verdict::Succeeded { reference: reference.clone() });
            }
            Some(Reading::Several { matches }) => {
                return Next::Review { why: format!("{matches} effects fit it before it was sent") };
            }
            Some(_) if facts.present >= facts.until => {
                return Next::Review { why: "it could not be seen whether it is there already".to_owned() };
            }
            Some(_) => return Next::Ask { at: later(action, facts) },
        }
    }
    Next::Send { at: action.retry_at.unwrap_or(facts.present) }
}

fn in_progress(action: &ActionRecord, facts: &Facts<'_>) -> Next {
    let last = facts.readings.iter().rfind(|reading| reading.tries == action.tries);
    match last.map(|last| &last.reading) {
        Some(Reading::Succeeded { reference }) => {
            return Next::Settle(Verdict::Succeeded { reference: reference.clone() });
        }
        Some(Reading::Failed { message }) => return Next::Settle(Verdict::Failed { message: message.clone() }),
        _ if facts.present >= facts.until => return Next::Lose,
        _ => {}
    }
    match facts.query {
        Some(_) => Next::Ask { at: later(action, facts) },
        None => Next::Review { why: "it was accepted, and nobody can be asked whether it is done".to_owned() },
    }
}

/// It is certain that nothing happened. The one retry layer decides; an effect that cannot be undone is left to a person.
fn failed(action: &ActionRecord, facts: &Facts<'_>) -> Next {
    let may = action.code.is_some_and(|code| code.entry().retryable) && !is_irreversible(action);
    let in_time = action.tries < facts.tries && facts.present < action.deadline;
    if !may || !in_time {
        return Next::Settled;
    }
    Next::Retry { at: action.retry_at.unwrap_or_else(|| facts.present.plus(facts.delay)) }
}

fn unknown(action: &ActionRecord, facts: &Facts<'_>) -> Next {
    match reconcile::verdict(action, facts.readings, facts.present) {
        Verdict::AskAgain { at } if facts.query.is_some() => {
            if facts.present >= facts.until {
                return Next::Review { why: "asking has not settled it in time".to_owned() };
            }
            Next::Ask { at: at.max(later(action, facts)) }
        }
        Verdict::AskAgain { .. } => without_query(action, facts),
        // Known to be under way, for too long: to say so again would bring nobody further.
        Verdict::InProgress { .. } if facts.present >= facts.until => {
            Next::Review { why: "the other side has it, and has not done it in time".to_owned() }
        }
        verdict => Next::Settle(verdict),
    }
}

/// Nobody can be asked: the same may be sent again only where the other side makes one effect of both (F58, R-A8).
fn without_query(action: &ActionRecord, facts: &Facts<'_>) -> Next {
    let why = |text: &str| Next::Review { why: text.to_owned() };
    if is_irreversible(action) {
        return why("it cannot be undone, so it is not sent again");
    }
    match action.contract.dedupe {
        Dedupe::Key if action.code == Some(Code::KeyRetentionPassed) => why("the other side no longer keeps its key"),
        Dedupe::Key if action.tries >= facts.tries => why("it was sent as often as it may be"),
        Dedupe::Key if facts.present >= facts.until => why("its time is over"),
        Dedupe::Key => Next::Resend { at: action.retry_at.unwrap_or_else(|| facts.present.plus(facts.delay)) },
        Dedupe::Natural | Dedupe::None => {
            why("the other side knows no second one by its key, and nobody can be asked what became of the first")
        }
    }
}

fn later(action: &ActionRecord, facts: &Facts<'_>) -> UtcMs {
    let last = facts.readings.iter().filter(|reading| reading.tries == action.tries).map(|reading| reading.at).max();
    let spaced = last.map_or(facts.present, |at| at.plus(BETWEEN_QUESTIONS));
    spaced.max(action.retry_at.unwrap_or(facts.present))
}

fn is_irreversible(action: &ActionRecord) -> bool {
    action.irreversible || action.contract.irreversible
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::action::contract::Contract;
    use crate::domain::machine::Word as _;
    use crate::domain::sample::{action, at};

    const NO_QUERY: Option<Millis> = None;
    const QUERY: Option<Millis> = Some(Millis(3_000));

    fn facts(readings: &[ReadingRecord], query: Option<Millis>) -> Facts<'_> {
        Facts {
            present: at(10),
            until: at(900),
            holding: Holding::Free,
            readings,
            tries: 3,
            delay: Millis::secs(10),
            query,
        }
    }

    fn keyed(state: ActionState) -> ActionRecord {
        let sample = action(state);
        ActionRecord { contract: Contract { dedupe: Dedupe::Key, ..sample.contract.clone() }, ..sample }
    }

    fn is_send(next: &Next) -> bool {
        matches!(next, Next::Send { .. } | Next::Resend { .. } | Next::Retry { .. })
    }

    #[test]
    fn r_a18_nothing_is_sent_but_what_is_ready_failed_for_sure_or_known_by_its_key() {
        for state in ActionState::ALL {
            let mut failed = action(*state);
            failed.code = Some(Code::NetworkTimeout);
            let sends = is_send(&next(&failed, &facts(&[], NO_QUERY)));
            assert_eq!(sends, matches!(state, ActionState::Ready | ActionState::Failed), "{state}");
        }
        assert_eq!(next(&keyed(ActionState::OutcomeUnknown), &facts(&[], NO_QUERY)), Next::Resend { at: at(20) });
    }

    #[test]
    fn r_a6_what_somebody_else_holds_is_left_to_them() {
        for state in ActionState::ALL {
            let held = Facts { holding: Holding::Held, ..facts(&[], QUERY) };
            assert_eq!(next(&action(*state), &held), Next::Held, "{state}");
        }
    }

    #[test]
    fn r_a7_started_without_an_answer_is_unknown_and_unknown_is_asked_about() {
        assert_eq!(next(&action(ActionState::Started), &facts(&[], QUERY)), Next::Lose);
        assert_eq!(next(&action(ActionState::OutcomeUnknown), &facts(&[], QUERY)), Next::Ask { at: at(10) });
        assert_eq!(
            next(&keyed(ActionState::OutcomeUnknown), &facts(&[], QUERY)),
            Next::Ask { at: at(10) },
            "query first, even where the key would be known"
        );
    }

    #[test]
    fn f58_without_key_and_query_a_person_must_look() {
        let unknown = action(ActionState::OutcomeUnknown);
        assert!(matches!(next(&unknown, &facts(&[], NO_QUERY)), Next::Review { .. }));
    }

    #[test]
    fn r_a13_what_cannot_be_undone_is_never_tried_again() {
        let mut failed = ActionRecord { irreversible: true, ..keyed(ActionState::Failed) };
        failed.code = Some(Code::NetworkTimeout);
        assert_eq!(next(&failed, &facts(&[], NO_QUERY)), Next::Settled);
        let unknown = ActionRecord { irreversible: true, ..keyed(ActionState::OutcomeUnknown) };
        assert!(matches!(next(&unknown, &facts(&[], NO_QUERY)), Next::Review { .. }));
    }

    #[test]
    fn f66_tries_and_time_are_bounded() {
        let mut failed = keyed(ActionState::Failed);
        failed.code = Some(Code::NetworkTimeout);
        assert_eq!(next(&failed, &facts(&[], NO_QUERY)), Next::Retry { at: at(20) });
        assert_eq!(next(&ActionRecord { tries: 3, ..failed.clone() }, &facts(&[], NO_QUERY)), Next::Settled);
        let late = Facts { present: at(900), ..facts(&[], NO_QUERY) };
        assert_eq!(next(&failed, &late), Next::Settled);
        assert_eq!(next(&action(ActionState::InProgress), &late), Next::Lose);
        failed.code = Some(Code::ValidationError);
        assert_eq!(next(&failed, &facts(&[], NO_QUERY)), Next::Settled);
    }

    #[test]
    fn r_a7_what_is_under_way_for_too_long_is_a_persons_and_no_circle() {
        let reading = Reading::InProgress { reference: None };
        let readings = [ReadingRecord { at: at(899), reading, source: "query".to_owned(), tries: 1 }];
        let late = Facts { present: at(900), ..facts(&readings, QUERY) };
        assert_eq!(next(&action(ActionState::InProgress), &late), Next::Lose);
        assert!(matches!(next(&action(ActionState::OutcomeUnknown), &late), Next::Review { .. }));
    }

    #[test]
    fn f63_what_may_be_there_already_is_looked_for_before_the_first_send() {
        let sample = action(ActionState::Ready);
        let contract = Contract { look_first: true, ..sample.contract.clone() };
        let first = ActionRecord { tries: 0, contract, ..sample };
        assert_eq!(next(&first, &facts(&[], QUERY)), Next::Ask { at: at(10) });
        let read = |reading| [ReadingRecord { at: at(9), reading, source: "query".to_owned(), tries: 0 }];
        assert_eq!(next(&first, &facts(&read(Reading::NotFound), QUERY)), Next::Send { at: at(10) });
        let reference = Some("7".to_owned());
        let found = read(Reading::Succeeded { reference: reference.clone() });
        assert_eq!(next(&first, &facts(&found, QUERY)), Next::Settle(Verdict::Succeeded { reference }));
        let unclear = read(Reading::Unclear { message: "503".to_owned(), retry_after: None });
        assert!(matches!(next(&first, &facts(&unclear, QUERY)), Next::Ask { .. }), "not seen is not absent");
    }

    #[test]
    fn r_a8_a_draft_is_sent_by_a_person() {
        let sample = action(ActionState::Ready);
        let contract = Contract { automatic: Automatic::Draft, ..sample.contract.clone() };
        let draft = ActionRecord { contract, ..sample };
        assert!(matches!(next(&draft, &facts(&[], QUERY)), Next::Review { .. }));
    }
}
