//! Every environment variable that agentrun itself reads or sets, in one table: the reference page is made from it, and a
//! name that is not here is read nowhere. Reading them is the caller's: the configuration has no environment.

/// A variable and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// One sentence for the reference.
    pub meaning: &'static str,
    /// Who sets it.
    pub set_by: SetBy,
}

/// Who sets a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// The user or the machine; agentrun reads it.
    Caller,
    /// agentrun, for what it starts. It reads some of them too: that is how it knows that it was started by a run.
    Agentrun,
}

macro_rules! table {
    ($($name:ident, $set_by:ident, $meaning:literal;)+) => {
        $(#[doc = $meaning] pub const $name: &str = stringify!($name);)+

        /// All of them, in the order of the reference.
        pub const ALL: &[EnvVar] = &[$(EnvVar { name: $name, meaning: $meaning, set_by: SetBy::$set_by }),+];
    };
}

table! {
    AGENTRUN_HOME, Caller, "The folder for all state, instead of `.ai-runs` in the main worktree. Everything inside a run gets it, so that `agentrun show --budget` and `agentrun action request` find the run.";
    AGENTRUN_POLICY_REF, Caller, "The commit or branch that the policy is read from, instead of the checkout; as `--policy-ref`.";
    GITHUB_BASE_REF, Caller, "On a pull request: the branch whose policy holds, unless another is named.";
    CI_MERGE_REQUEST_TARGET_BRANCH_NAME, Caller, "The same on a merge request of GitLab.";
    AGENTRUN_LOG, Caller, "What goes into agentrun's own diagnostic log; as `--log-level`.";
    CI, Caller, "Set and not empty, 0 or false: as `--ci`.";
    NO_COLOR, Caller, "Set and not empty: no colors.";
    TERM, Caller, "`dumb`: no colors and no moving progress.";
    HOME, Caller, "Where an agent's login is looked for.";
    PATH, Caller, "Where programs are looked for.";
    SSL_CERT_FILE, Caller, "The certificates that TLS trusts when a contract is carried out over HTTP, instead of those of this machine.";
    CODEX_HOME, Caller, "Codex's own folder, instead of `~/.codex`.";
    AGENTRUN_RUN_ID, Agentrun, "The run that a child belongs to; agentrun started with it knows that it is inside a run.";
    AGENTRUN_ATTEMPT, Agentrun, "The attempt's number, from 1.";
    AGENTRUN_STEP, Agentrun, "The step's key.";
    AGENTRUN_TOKEN, Agentrun, "For everything inside a run: a secret, new with each attempt, by which `agentrun action request` and `agentrun mcp` show that they belong to it. It grants nothing but asking for actions of this run and looking at them.";
    AGENTRUN_BUDGET, Agentrun, "For agents: the limits as they are at the start of the step, as `show --budget --json` tells them: limit, used, estimated, reserved, left.";
    AGENTRUN_REQUEST, Agentrun, "For commands that act and that answer: the file with the request as JSON; gone when the command has ended.";
    AGENTRUN_IDEMPOTENCY_KEY, Agentrun, "The same: the key under which this is the same for ever.";
    AGENTRUN_OPERATION, Agentrun, "The same: the operation id.";
    AGENTRUN_FENCE, Agentrun, "The same: the number of the right under which it is done; it grows.";
    AGENTRUN_REFERENCE, Agentrun, "The same: the other side's name of it, once it is known.";
    AGENTRUN_RELEASE, Agentrun, "The same, for deploy and rollback: the release.";
    AGENTRUN_ENVIRONMENT, Agentrun, "The same, for deploy and rollback: the environment.";
    AGENTRUN_REQUEST_ID, Agentrun, "The request that the run was started or resumed by, for tracing.";
}

/// Names that begin so are agentrun's: no policy or task may set or pass them.
pub const RESERVED_PREFIX: &str = "AGENTRUN_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_is_there_once_and_has_a_sentence() {
        let mut names: Vec<_> = ALL.iter().map(|v| v.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|v| v.meaning.ends_with('.')));
    }
}
