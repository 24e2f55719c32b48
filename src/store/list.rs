//! Lists of runs and the ways from what a person types to a run. Made to stay fast with a hundred thousand runs: each
//! list walks an index, and reads nothing of a run that it does not show.

use super::calls::RunFilter;
use super::claim::in_list;
use super::error::Result;
use super::{Store, TENANT, rows};
use crate::domain::ids::{RunId, StepKey};
use crate::domain::machine::Word as _;
use crate::domain::quantity::UtcMs;
use crate::domain::record::RunSummary;
use crate::domain::run::RunStatus;

/// A run of these states goes on by itself or waits for somebody.
const OPEN: &[RunStatus] = &[
    RunStatus::Pending,
    RunStatus::Running,
    RunStatus::Retrying,
    RunStatus::WaitingApproval,
    RunStatus::ReviewRequired,
    RunStatus::OutcomeUnknown,
    RunStatus::Blocked,
    RunStatus::Interrupted,
    RunStatus::BudgetExceeded,
];

/// How many runs a beginning of an id may mean before it says nothing.
const CANDIDATES: u32 = 20;

impl Store {
    /// A list of runs, newest first.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>> {
        let open = in_list(OPEN);
        let list = |sql: &str, value: &dyn rusqlite::ToSql| self.summaries(sql, value);
        match filter {
            RunFilter::Overview { newest } => list(
                &format!(
                    "r.seq IN (SELECT seq FROM run WHERE tenant = ?1 AND status IN ({open})) \
                     OR r.seq IN (SELECT seq FROM run WHERE tenant = ?1 ORDER BY seq DESC LIMIT ?2)"
                ),
                newest,
            ),
            RunFilter::Open => {
                list(&format!("r.seq IN (SELECT seq FROM run WHERE tenant = ?1 AND status IN ({open})) OR ?2"), &false)
            }
            RunFilter::Newest(count) => {
                list("r.seq IN (SELECT seq FROM run WHERE tenant = ?1 ORDER BY seq DESC LIMIT ?2)", count)
            }
            RunFilter::Dead => {
                list("r.seq IN (SELECT seq FROM run WHERE tenant = ?1 AND status = ?2)", &RunStatus::DeadLetter.word())
            }
            RunFilter::All => list("r.tenant = ?1 OR ?2", &false),
            RunFilter::Task(task) => list(
                "r.seq IN (SELECT seq FROM run WHERE tenant = ?1 \
                 AND task = (SELECT seq FROM task WHERE tenant = ?1 AND folded = ?2))",
                &task.folded(),
            ),
        }
    }

    fn summaries(&self, condition: &str, value: &dyn rusqlite::ToSql) -> Result<Vec<RunSummary>> {
        let sql = format!(
            "SELECT {run}, r.title, \
             (SELECT s.key FROM step s WHERE s.run = r.seq AND s.state IN ('RUNNING', 'FAILED', 'UNKNOWN') \
              ORDER BY s.state = 'RUNNING' DESC, s.finished_at DESC, s.position DESC LIMIT 1), \
             (SELECT count(*) FROM attempt a WHERE a.run = r.seq AND a.state IN ('FAILED', 'LOST')), {usage} \
             FROM run r JOIN task t ON t.seq = r.task LEFT JOIN execution e ON e.run = r.seq \
             WHERE {condition} GROUP BY r.seq ORDER BY r.seq DESC",
            run = rows::RUN,
            usage = rows::USAGE
        );
        rows::all(&self.db, &sql, rusqlite::params![TENANT, value], |row| {
            let run = rows::run(row)?;
            let (title, step) = (row.take()?, row.take::<Option<String>>()?.map(StepKey::recorded));
            let failed_attempts = row.count()?;
            let usage = crate::domain::budget::Usage { failed_attempts, ..rows::usage(row)? };
            Ok(RunSummary { run, title, step, usage })
        })
    }

    /// The runs that a text may mean, newest first: a run's id, its support code, a task, or the beginning of an id. The
    /// first of these that fits counts.
    pub fn find_by_prefix(&self, text: &str) -> Result<Vec<RunId>> {
        let upper = text.to_ascii_uppercase();
        let lower = text.to_ascii_lowercase();
        let after = format!("{text}\u{10ffff}");
        let ways: [(&str, &str, &str); 4] = [
            ("id = ?2 AND ?3 IS NOT NULL", text, ""),
            ("support_code = ?2 AND ?3 IS NOT NULL", &upper, ""),
            ("task = (SELECT seq FROM task WHERE tenant = ?1 AND folded = ?2) AND ?3 IS NOT NULL", &lower, ""),
            ("id >= ?2 AND id < ?3", text, &after),
        ];
        for (condition, from, to) in ways {
            let sql =
                format!("SELECT id FROM run WHERE tenant = ?1 AND {condition} ORDER BY seq DESC LIMIT {CANDIDATES}");
            let found =
                rows::all(&self.db, &sql, (TENANT, from, to), |row| Ok(RunId::recorded(row.take::<String>()?)))?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The runs that came to their end before a point in time and still have their files. Reads every run; only `gc`
    /// asks.
    pub fn finished_before(&self, time: UtcMs) -> Result<Vec<RunId>> {
        let ended = [RunStatus::Succeeded, RunStatus::Failed, RunStatus::DeadLetter, RunStatus::Canceled];
        let sql = format!(
            "SELECT id FROM run WHERE tenant = ?1 AND finished_at < ?2 AND swept_at IS NULL AND status IN ({}) \
             ORDER BY seq",
            in_list(&ended)
        );
        rows::all(&self.db, &sql, (TENANT, time.0), |row| Ok(RunId::recorded(row.take::<String>()?)))
    }
}
