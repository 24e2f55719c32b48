//! "What now?" as pure functions: from the record as it stands to what may be said or done next. Nothing here reads a
//! clock or writes anything.

pub mod meaning;
pub mod verdict;
