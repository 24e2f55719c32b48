//! Who calls and how they can be reached while a run works: what the command line needs of the engine and of processes,
//! in one place.

use super::error::OpsError;
pub use crate::config::env_vars;
pub use crate::engine::host::{Inbox, Who, now};
pub use crate::engine::observer::{Notice, Observer};
pub use crate::process::signals::{Hangup, StopSignals};

/// Hardens the process and hands every stop signal to the inbox. The listener must be kept as long as work goes on.
pub fn listen(inbox: &Inbox, hangup: Hangup) -> Result<StopSignals, OpsError> {
    crate::process::signals::harden_self()?;
    let sender = inbox.sender.clone();
    let listener = StopSignals::listen(hangup, move |signal| {
        let _ = sender.send(crate::engine::host::Message::Signal(signal));
    })?;
    Ok(listener)
}

/// The system user, never a variable (contract §5): the name of the real user id, or its number.
pub fn system_user() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = fs_err::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid {uid}"))
}
