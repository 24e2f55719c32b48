//! Faults that are put in on purpose, each where the program is known to be right. A harness that stays green with one of
//! them is the bug.

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// A holder that was replaced writes under its successor's fence: the predicate is gone.
    NoFence,
    /// A live lease is taken over.
    LiveLeaseTaken,
    /// A failed attempt is recorded as parked.
    FailureUncounted,
    /// Attempts have no limit.
    RetryWithoutEnd,
    /// What a killed holder's agent used is not counted.
    UsageForgotten,
    /// It is counted under a second name.
    UsageTwice,
    /// Children of a killed holder live on.
    LeftoversStay,
    /// SUCCEEDED becomes PENDING by take-over.
    DoneIsRepeated,
    /// A finished run is set back to INTERRUPTED.
    FinalIsReopened,
    /// A counter of an execution falls.
    CounterFalls,
    /// An event of the log is changed afterwards.
    LogIsEdited,
    /// A check sends its agent back as often as it likes.
    RoundsWithoutEnd,
    /// An agent that had finished unseen is taken as it was, without a checkpoint.
    CheckpointForgotten,
    /// A commit that was acknowledged is gone after a crash.
    AckIsLost,
}

/// All of them, and the laws of which each must break one.
pub(crate) const ALL: &[(Planted, &[&str])] = &[
    (Planted::NoFence, &["R-R7"]),
    (Planted::LiveLeaseTaken, &["R-R6"]),
    (Planted::FailureUncounted, &["R-R4"]),
    (Planted::RetryWithoutEnd, &["R-R3"]),
    (Planted::UsageForgotten, &["R-R4"]),
    (Planted::UsageTwice, &["R-R4"]),
    (Planted::LeftoversStay, &["I5", "R-R4"]),
    (Planted::DoneIsRepeated, &["I7"]),
    (Planted::FinalIsReopened, &["I6", "R-R6"]),
    (Planted::CounterFalls, &["I9"]),
    (Planted::LogIsEdited, &["I8"]),
    (Planted::RoundsWithoutEnd, &["R-R2"]),
    (Planted::CheckpointForgotten, &["R-S3"]),
    (Planted::AckIsLost, &["I1"]),
];
