//! What became of the tool calls of one execution: whether one is still in progress, and whether all of them failed
//! (FR-C2). Counts for the verdict only; the budget counts events.

use std::collections::BTreeSet;

/// The tally.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    open: BTreeSet<String>,
    worked: u64,
    failed: u64,
    unsaid: u64,
}

impl Tools {
    /// A call began.
    pub(crate) fn begin(&mut self, id: &str) {
        self.open.insert(id.to_owned());
    }

    /// A call came back; `None` when the tool does not say whether it worked.
    pub(crate) fn end(&mut self, id: &str, ok: Option<bool>) {
        self.open.remove(id);
        match ok {
            Some(true) => self.worked += 1,
            Some(false) => self.failed += 1,
            None => self.unsaid += 1,
        }
    }

    /// A call came back whose outcome is told by the calls inside it.
    pub(crate) fn close(&mut self, id: &str) {
        self.open.remove(id);
    }

    /// A call inside another one came back.
    pub(crate) fn inner(&mut self, ok: bool) {
        if ok { self.worked += 1 } else { self.failed += 1 }
    }

    /// True when this call has begun and not come back.
    pub(crate) fn is_open(&self, id: &str) -> bool {
        self.open.contains(id)
    }

    /// True while a call has not come back.
    pub(crate) fn in_progress(&self) -> bool {
        !self.open.is_empty()
    }

    /// How many calls failed, when there were some and all of them did.
    pub(crate) fn all_failed(&self) -> Option<u64> {
        (self.failed > 0 && self.worked == 0 && self.unsaid == 0).then_some(self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fr_c2_all_failed_means_every_one() {
        let mut tools = Tools::default();
        assert_eq!(tools.all_failed(), None);
        tools.begin("a");
        assert!(tools.in_progress());
        tools.end("a", Some(false));
        assert_eq!((tools.in_progress(), tools.all_failed()), (false, Some(1)));
        tools.end("b", None);
        assert_eq!(tools.all_failed(), None);
    }
}
