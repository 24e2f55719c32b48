//! Whether a model is being asked, by the records of one session file. A reply's tokens are written down when it is whole:
//! who dies before that has paid for a call that no record tells of (R-R4).

use std::collections::BTreeSet;

use super::log::Age;
use super::record::Fact;

/// The call under way, as far as the records tell.
#[derive(Debug, Default)]
pub(crate) struct ModelCall {
    /// A turn began, or a reply came in part, and no usage of it is recorded.
    is_unanswered: bool,
    /// The last tool has its answer: the next call follows at once.
    is_due: bool,
    /// Bytes written since the last reply: what the next call sends beyond the last.
    pub bytes: u64,
    tools: BTreeSet<String>,
}

impl ModelCall {
    /// The next record. One of an earlier execution tells of no call of this one.
    pub(crate) fn take(&mut self, fact: &Fact, age: Age) {
        match fact {
            Fact::TurnStarted => (self.is_unanswered, self.is_due, self.tools) = (true, false, BTreeSet::new()),
            Fact::Usage(_) => (self.is_unanswered, self.is_due, self.bytes) = (false, false, 0),
            Fact::Complete { .. } => (self.is_unanswered, self.is_due) = (false, false),
            // A part of the reply to a call that was due.
            Fact::Call { call, over: false, .. } if age == Age::New => {
                self.is_unanswered |= std::mem::take(&mut self.is_due);
                self.tools.insert(call.clone());
            }
            // A tool that a signal cut is answered for the record only.
            Fact::Output { call, text } if text.starts_with("aborted") => {
                self.tools.remove(call);
                self.is_due = false;
            }
            // That a command is over is written before its answer.
            Fact::Output { call, .. } | Fact::Done { call, .. } if self.tools.remove(call) => {
                self.is_due = self.tools.is_empty();
            }
            _ => {}
        }
        if age == Age::Old {
            (self.is_unanswered, self.is_due) = (false, false);
        }
    }

    /// Whether one is under way where the records end, when they are whole.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_unanswered || self.is_due
    }

    /// Whether one may be under way beyond the records' end: who was killed has not written what happened last, and from the
    /// end of a tool to the next call are milliseconds.
    pub(crate) fn may_be_under_way(&self) -> bool {
        self.is_under_way() || !self.tools.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Reply;
    use super::*;

    fn call(id: &str) -> Fact {
        Fact::Call { call: id.into(), name: "shell".into(), summary: String::new(), command: None, over: false }
    }

    fn output(id: &str, text: &str) -> Fact {
        Fact::Output { call: id.into(), text: text.into() }
    }

    fn reply() -> Fact {
        Fact::Usage(Reply { thread: "t".into(), response: "r".into(), usage: serde_json::Value::Null })
    }

    fn after(facts: &[Fact], age: Age) -> bool {
        let mut it = ModelCall::default();
        for fact in facts {
            it.take(fact, age);
        }
        it.is_under_way()
    }

    #[test]
    fn r_r4_a_call_is_under_way_from_what_is_sent_to_its_recorded_reply() {
        let (begun, tool) = (Fact::TurnStarted, output("a", "Chunk ID: 1"));
        let aborted = output("a", "aborted by user after 1s");
        let over = Fact::Done { call: "a".into(), ok: true };
        let done = Fact::Complete { message: None, error: None };
        let before_dispatch = output("a", "aborted before dispatch");
        let cases: [(&[Fact], bool); 12] = [
            (&[], false),
            (std::slice::from_ref(&begun), true),
            (&[begun.clone(), call("a")], true),
            (&[begun.clone(), call("a"), reply()], false),
            (&[begun.clone(), call("a"), reply(), tool.clone()], true),
            (&[begun.clone(), call("a"), reply(), over.clone()], true),
            (&[begun.clone(), call("a"), call("b"), reply(), tool.clone()], false),
            (&[begun.clone(), call("a"), reply(), over, aborted, Fact::Aborted], false),
            (&[begun.clone(), call("a"), before_dispatch.clone(), Fact::Aborted], true),
            (&[begun.clone(), call("b"), reply(), output("b", "ok"), call("a"), before_dispatch, Fact::Aborted], true),
            (&[begun.clone(), call("a"), reply(), tool.clone(), Fact::Aborted], true),
            (&[begun.clone(), call("a"), reply(), tool.clone(), reply(), done], false),
        ];
        for (facts, expected) in cases {
            assert_eq!(after(facts, Age::New), expected, "{facts:?}");
        }
        let mut killed = ModelCall::default();
        for fact in [begun.clone(), call("a"), reply()] {
            killed.take(&fact, Age::New);
        }
        assert!(killed.may_be_under_way() && !killed.is_under_way(), "the tool may have ended unwritten");
        assert!(!after(&[begun, call("a"), reply(), tool], Age::Old), "an earlier execution answers for its own");
    }
}
