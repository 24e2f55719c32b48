//! Lists of runs and the ways from what a person types to a run. Made to stay fast with a hundred thousand runs: each
//! list walks an index, and reads nothing of a run that it does not show.

use rusqlite::params_from_iter;
use rusqlite::types::Value;

use super::calls::RunFilter;
use super::claim::in_list;
use super::error::Result;
use super::{Store, TENANT, rows};
use crate::domain::budget::Usage;
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
        let (sql, values) = statement(filter);
        rows::all(&self.db, &sql, params_from_iter(values), |row| {
            let run = rows::run(row)?;
            let (title, step) = (row.take()?, row.take::<Option<String>>()?.map(StepKey::recorded));
            let failed_attempts = row.count()?;
            let usage = Usage { failed_attempts, ..rows::usage(row)? };
            Ok(RunSummary { run, title, step, usage })
        })
    }

    /// The runs that a text may mean, newest first: a run's id, its support code, a task, or the beginning of an id. The
    /// first of these that fits counts.
    pub fn find_by_prefix(&self, text: &str) -> Result<Vec<RunId>> {
        let upper = text.to_ascii_uppercase();
        let lower = text.to_ascii_lowercase();
        let after = format!("{text}\u{10ffff}");
        let of_task = "SELECT seq FROM task WHERE tenant = ?1 AND folded = ?2";
        let ways: [(String, &[&str]); 4] = [
            ("id = ?2".to_owned(), &[text]),
            ("support_code = ?2 ORDER BY seq DESC".to_owned(), &[&upper]),
            (format!("task = ({of_task}) ORDER BY number DESC"), &[&lower]),
            ("id >= ?2 AND id < ?3 ORDER BY seq DESC".to_owned(), &[text, &after]),
        ];
        for (condition, values) in ways {
            let sql = format!("SELECT id FROM run WHERE tenant = ?1 AND {condition} LIMIT {CANDIDATES}");
            let params = params_from_iter([&[TENANT], values].concat());
            let found = rows::all(&self.db, &sql, params, |row| Ok(RunId::recorded(row.take::<String>()?)))?;
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

/// The statement of a list, and its values.
pub(super) fn statement(filter: &RunFilter) -> (String, Vec<Value>) {
    let open = format!("SELECT seq FROM run WHERE tenant = ?1 AND status IN ({})", in_list(OPEN));
    let newest = "SELECT seq FROM run WHERE tenant = ?1 ORDER BY seq DESC LIMIT ?2";
    let number = |count: &u32| Some(Value::from(i64::from(*count)));
    let word = |text: &str| Some(Value::from(text.to_owned()));
    let (chosen, value) = match filter {
        RunFilter::Overview { newest: count } => {
            (format!("{open} UNION ALL SELECT seq FROM ({newest})"), number(count))
        }
        RunFilter::Open => (open, None),
        RunFilter::Newest(count) => (newest.to_owned(), number(count)),
        RunFilter::Dead => {
            ("SELECT seq FROM run WHERE tenant = ?1 AND status = ?2".to_owned(), word(RunStatus::DeadLetter.word()))
        }
        RunFilter::All => ("SELECT seq FROM run WHERE tenant = ?1".to_owned(), None),
        RunFilter::Task(task) => {
            let of_task = "SELECT seq FROM task WHERE tenant = ?1 AND folded = ?2";
            (format!("SELECT seq FROM run WHERE tenant = ?1 AND task = ({of_task})"), word(&task.folded()))
        }
    };
    let values = std::iter::once(Value::from(TENANT.to_owned())).chain(value).collect();
    let sql = format!(
        "SELECT {run}, r.title, \
         coalesce((SELECT s.key FROM step s WHERE s.run = r.seq AND s.state = \
           CASE r.status WHEN 'WAITING_APPROVAL' THEN 'WAITING_APPROVAL' WHEN 'OUTCOME_UNKNOWN' THEN 'UNKNOWN' END \
          ORDER BY s.position LIMIT 1), \
         (SELECT s.key FROM step s WHERE s.run = r.seq AND s.state IN ('RUNNING', 'FAILED', 'UNKNOWN') \
          ORDER BY s.state = 'RUNNING' DESC, s.finished_at DESC, s.position DESC LIMIT 1)), \
         (SELECT count(*) FROM attempt a WHERE a.run = r.seq AND a.state IN ('FAILED', 'LOST')), {usage} \
         FROM run r JOIN task t ON t.seq = r.task LEFT JOIN execution e ON e.run = r.seq \
         WHERE r.tenant = ?1 AND r.seq IN ({chosen}) GROUP BY r.seq ORDER BY r.seq DESC",
        run = rows::RUN,
        usage = rows::USAGE
    );
    (sql, values)
}
