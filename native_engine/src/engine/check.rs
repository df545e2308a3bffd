//! Looking for damage: SQLite's own check, and what must hold among the jobs.

use rusqlite::Connection;

use super::error::Result;
use super::stats::count_all;
use super::store::{Patience, Store};
use super::tally::{Counts, Tally};
use super::wal_index;

/// Faults of one kind that are named.
const NAMED: usize = 10;

/// What is wrong, and a query that finds the jobs.
const RULES: [(&str, &str); 9] = [
    ("is in no known state", "SELECT id FROM messages WHERE state NOT IN (0, 1, 2, 3, 4, 5)"),
    (
        "belongs to a queue that has no name",
        "SELECT id FROM messages WHERE queue NOT IN (SELECT id FROM queues)",
    ),
    ("waits for a group and is in none", "SELECT id FROM messages WHERE state = 2 AND grp IS NULL"),
    (
        "waits in a group that no job leads",
        "SELECT id FROM messages AS job WHERE state = 2 AND grp IS NOT NULL AND NOT EXISTS (
           SELECT 1 FROM messages WHERE queue = job.queue AND grp = job.grp
             AND grp IS NOT NULL AND state IN (0, 1, 3))",
    ),
    (
        "leads its group before an older one, though nobody runs it",
        "SELECT id FROM messages AS lead WHERE state IN (0, 1) AND grp IS NOT NULL AND EXISTS (
           SELECT 1 FROM messages INDEXED BY m_blocked
           WHERE queue = lead.queue AND state = 2 AND grp = lead.grp AND id < lead.id)",
    ),
    (
        "is running and has no receipt",
        "SELECT id FROM messages WHERE state = 3 AND (receipt IS NULL OR verb IS NOT NULL)",
    ),
    (
        "has a receipt that another job has too",
        "SELECT id FROM messages WHERE receipt IN (
           SELECT receipt FROM messages WHERE receipt IS NOT NULL GROUP BY 1 HAVING count(*) > 1)",
    ),
    (
        "is a dead letter without a reason, or has a reason and is none",
        "SELECT id FROM messages WHERE (state = 5) <> (reason IS NOT NULL)",
    ),
    ("has fewer than no deliveries", "SELECT id FROM messages WHERE attempts < 0"),
];

impl Store {
    /// What is wrong with the file, in words; nothing where it is sound.
    ///
    /// Reads the whole file, as of one moment, while everybody goes on.
    pub fn check(&self, patience: &dyn Patience) -> Result<Vec<String>> {
        let tally = self.path.as_ref().map(|_| self.shared.tally());
        self.aside(patience, |db| {
            let transaction = db.unchecked_transaction()?;
            let faults = faults(&transaction, tally)?;
            transaction.finish()?;
            Ok(faults)
        })
    }
}

fn faults(db: &Connection, tally: Option<&Tally>) -> rusqlite::Result<Vec<String>> {
    let counts = match tally {
        Some(tally) => shared_counts(db, tally)?,
        None => Vec::new(),
    };
    // SQLite's first: a damaged file may answer the other questions wrongly.
    let mut faults = Vec::new();
    for text in db.prepare("PRAGMA integrity_check")?.query_map([], |row| row.get(0))? {
        let text: String = text?;
        if text != "ok" {
            faults.push(format!("SQLite: {text}"));
        }
    }
    for (what, query) in RULES {
        let found: Vec<i64> =
            db.prepare(query)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        for id in found.iter().take(NAMED) {
            faults.push(format!("The job with key {id} {what}."));
        }
        if found.len() > NAMED {
            faults.push(format!("And {} further jobs: each {what}.", found.len() - NAMED));
        }
    }
    for (queue, name, shared) in counts {
        let counted = count_all(db, queue)?;
        if shared != counted {
            faults.push(format!(
                "The counts of the queue {name:?} are {shared:?}, and its jobs are {counted:?}."
            ));
        }
    }
    Ok(faults)
}

/// The counts that are known as of this very snapshot; none where a commit came between.
fn shared_counts(db: &Connection, tally: &Tally) -> rusqlite::Result<Vec<(i64, String, Counts)>> {
    let before = tally.commit();
    let queues: Vec<(i64, String)> = db
        .prepare("SELECT id, name FROM queues")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let known = queues.into_iter().filter_map(|(queue, name)| {
        let known = tally.known(queue).filter(|known| Some(known.commit) == before)?;
        Some((queue, name, known.counts()?))
    });
    let known: Vec<_> = known.collect();
    let still = before.is_some() && wal_index::latest(db) == before;
    Ok(if still { known } else { Vec::new() })
}
