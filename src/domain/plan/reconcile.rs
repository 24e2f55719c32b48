//! What the readings of an unknown effect prove (R-A7). An empty answer is no proof by itself: it counts once the other side
//! must have seen the effect, and when a second one agrees.

use crate::domain::action::contract::Dedupe;
use crate::domain::action::record::ReadingRecord;
use crate::domain::action::{ActionRecord, Reading};
use crate::domain::quantity::UtcMs;

/// How far apart two empty answers are at least, to count as two.
const APART_MS: i64 = 200;

/// What is proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has happened.
    Succeeded {
        /// The other side's name of it.
        reference: Option<String>,
    },
    /// It was tried and failed for good.
    Failed {
        /// In words.
        message: String,
    },
    /// It is under way.
    InProgress {
        /// The other side's name of it.
        reference: Option<String>,
    },
    /// It is not there: the same may be sent, under the same key.
    Absent,
    /// Nothing yet.
    AskAgain {
        /// When asking may bring more.
        at: UtcMs,
    },
    /// A person must look.
    Review {
        /// Why.
        why: String,
    },
}

/// Reads the readings about the last send; `late` ones are of the send that they name.
pub fn verdict(action: &ActionRecord, readings: &[ReadingRecord], present: UtcMs) -> Verdict {
    let ours = readings.iter().filter(|reading| reading.tries <= action.tries);
    // Whoever saw it, and whenever: an effect that was seen is there.
    let seen = ours.clone().rev().find_map(|reading| match &reading.reading {
        Reading::Succeeded { reference } => Some(reference.clone()),
        _ => None,
    });
    if let Some(reference) = seen {
        return Verdict::Succeeded { reference };
    }
    let of_last_send: Vec<&ReadingRecord> = ours.filter(|reading| reading.tries == action.tries).collect();
    let Some(last) = of_last_send.last() else {
        return Verdict::AskAgain { at: present };
    };
    match &last.reading {
        Reading::Succeeded { reference } => Verdict::Succeeded { reference: reference.clone() },
        Reading::Failed { message } => Verdict::Failed { message: message.clone() },
        Reading::InProgress { reference } => Verdict::InProgress { reference: reference.clone() },
        Reading::Several { matches } => Verdict::Review { why: format!("{matches} effects fit its reference") },
        Reading::Unclear { retry_after, .. } => {
            Verdict::AskAgain { at: retry_after.map_or(last.at, |wait| last.at.plus(wait)) }
        }
        Reading::NotFound => absent(action, &of_last_send),
    }
}

fn absent(action: &ActionRecord, readings: &[&ReadingRecord]) -> Verdict {
    let trusted_from = action.query_from.or(action.sent_at).unwrap_or(action.created_at);
    let empty = readings.iter().rev().take_while(|reading| reading.reading == Reading::NotFound);
    let counting: Vec<i64> = empty.map(|reading| reading.at.0).filter(|at| *at >= trusted_from.0).collect();
    let Some(last) = counting.first() else {
        return Verdict::AskAgain { at: trusted_from };
    };
    let agreed = counting.iter().any(|at| last - at >= APART_MS);
    if !agreed {
        return Verdict::AskAgain { at: UtcMs(last + APART_MS) };
    }
    let message = "it is not found, and the other side would not know a second one as the same";
    match action.contract.dedupe {
        _ if action.irreversible || action.contract.irreversible => {
            Verdict::Review { why: "it is not found, and it cannot be undone: a person decides".to_owned() }
        }
        Dedupe::None => Verdict::Review { why: message.to_owned() },
        Dedupe::Key | Dedupe::Natural => Verdict::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::action::ActionState;
    use crate::domain::action::contract::Contract;
    use crate::domain::sample::{action, at};

    fn read(seconds: u64, reading: Reading) -> ReadingRecord {
        ReadingRecord { at: at(seconds), reading, source: "query".to_owned(), tries: 1 }
    }

    fn natural() -> ActionRecord {
        let sample = action(ActionState::OutcomeUnknown);
        ActionRecord { contract: Contract { dedupe: Dedupe::Natural, ..sample.contract.clone() }, ..sample }
    }

    fn found() -> Reading {
        Reading::Succeeded { reference: Some("dep-7".to_owned()) }
    }

    #[test]
    fn f57_an_empty_answer_counts_after_the_settle_time_and_with_a_second_one() {
        let action = natural();
        let empty = |seconds: &[u64]| seconds.iter().map(|s| read(*s, Reading::NotFound)).collect::<Vec<_>>();
        assert_eq!(verdict(&action, &empty(&[2, 3]), at(3)), Verdict::AskAgain { at: at(4) });
        assert_eq!(verdict(&action, &empty(&[2, 3, 5]), at(5)), Verdict::AskAgain { at: UtcMs(at(5).0 + 200) });
        assert_eq!(verdict(&action, &empty(&[2, 5, 6]), at(6)), Verdict::Absent);
    }

    #[test]
    fn f57_two_empty_answers_with_another_in_between_do_not_agree() {
        let unclear = Reading::Unclear { message: "503".to_owned(), retry_after: None };
        let readings = [read(5, Reading::NotFound), read(6, unclear), read(7, Reading::NotFound)];
        assert!(matches!(verdict(&natural(), &readings, at(7)), Verdict::AskAgain { .. }));
    }

    #[test]
    fn r_a7_what_was_seen_once_is_there_whatever_a_later_answer_says() {
        let readings = [read(5, found()), read(6, Reading::NotFound), read(7, Reading::NotFound)];
        assert_eq!(verdict(&natural(), &readings, at(7)), Verdict::Succeeded { reference: Some("dep-7".to_owned()) });
    }

    #[test]
    fn test_6_without_a_key_or_a_natural_name_nothing_is_sent_after_an_empty_answer() {
        let readings = [read(5, Reading::NotFound), read(6, Reading::NotFound)];
        let verdict = verdict(&action(ActionState::OutcomeUnknown), &readings, at(6));
        assert!(matches!(verdict, Verdict::Review { .. }), "{verdict:?}");
    }

    #[test]
    fn r_a7_several_matches_are_a_persons() {
        let verdict = verdict(&natural(), &[read(5, Reading::Several { matches: 2 })], at(6));
        assert!(matches!(&verdict, Verdict::Review { why } if why.contains("2 effects")), "{verdict:?}");
    }

    #[test]
    fn readings_of_an_earlier_send_prove_no_absence_of_the_last() {
        let again = ActionRecord { tries: 2, sent_at: Some(at(8)), query_from: Some(at(11)), ..natural() };
        let readings = [read(5, Reading::NotFound), read(6, Reading::NotFound)];
        assert_eq!(verdict(&again, &readings, at(9)), Verdict::AskAgain { at: at(9) });
    }
}
