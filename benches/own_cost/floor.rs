//! What a run of steps costs at the least: a process that starts each child with its output on pipes and, because a step
//! must survive a power cut, makes two durable commits a step. No other work.

use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;

use crate::Outcome;

/// Runs `count` steps, with a database in `folder`.
pub fn steps(folder: &Path, count: u32) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let db = Connection::open(folder.join("floor.db"))?;
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.execute_batch("CREATE TABLE fact (seq INTEGER PRIMARY KEY, step INTEGER NOT NULL, what TEXT NOT NULL) STRICT")?;
    let commit = |step: u32, what: &str| {
        db.prepare_cached("INSERT INTO fact (step, what) VALUES (?1, ?2)")?.execute((step, what)).map(drop)
    };
    for step in 0..count {
        commit(step, "the step before is done, this one has begun")?;
        let mut child = Command::new("/bin/true");
        let child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        commit(step, &format!("its process is {}", child.id()))?;
        if !child.wait_with_output()?.status.success() {
            return Err("/bin/true failed".into());
        }
    }
    Ok(())
}
