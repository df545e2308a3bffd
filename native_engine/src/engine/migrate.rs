//! The tables, as steps from one version of the schema to the next.
//!
//! A new file goes through all of them, so there is one way to come to a schema. A
//! step only adds: columns by `ALTER TABLE … ADD COLUMN`, tables and partial indexes by
//! `CREATE`, which an old file takes in place and an older process that still has it
//! open doesn't notice.

use rusqlite::Connection;

/// The version that the steps lead to.
pub(super) const VERSION: i64 = 2;

/// Version 1. One table is the whole state machine. `at` is the due time, lease end (boot
/// clock) or finish time by state, and a waiting job's own time otherwise; `since`
/// orders claims. Each index that a claim reads holds one state only, so that it reads
/// the head and nothing else. A job that is claimed and acked stays in one index: the
/// leases stand behind the latest acks, so an ack mostly changes one page of it.
const VERSION_1: &str = "
CREATE TABLE meta(key INTEGER PRIMARY KEY, value ANY) STRICT;
INSERT INTO meta VALUES (1, 0);
CREATE TABLE queues(
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  paused INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE messages(
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  state INTEGER NOT NULL,
  prio INTEGER NOT NULL,
  since INTEGER NOT NULL,
  at INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  receipt INTEGER,
  verb INTEGER,
  prev_receipt INTEGER,
  prev_verb INTEGER,
  max_retries INTEGER,
  cancel INTEGER NOT NULL DEFAULT 0,
  created INTEGER NOT NULL,
  started INTEGER,
  grp TEXT,
  job_id TEXT,
  task TEXT,
  worker TEXT,
  reason TEXT,
  err_class TEXT,
  err_message TEXT,
  err_place TEXT,
  headers BLOB,
  result BLOB,
  payload BLOB NOT NULL
) STRICT;
CREATE INDEX m_ready ON messages(queue, prio DESC, since) WHERE state = 0;
CREATE INDEX m_due ON messages(queue, at) WHERE state = 1;
CREATE INDEX m_blocked ON messages(queue, grp, id) WHERE state = 2;
CREATE INDEX m_taken ON messages(queue, state DESC, at) WHERE state = 3 OR state = 4;
CREATE INDEX m_failed ON messages(queue, at) WHERE state = 5;
CREATE UNIQUE INDEX m_head ON messages(queue, grp) WHERE grp IS NOT NULL AND state IN (0, 1, 3);
CREATE UNIQUE INDEX m_job_id ON messages(queue, job_id) WHERE job_id IS NOT NULL;
CREATE TABLE history(
  message INTEGER NOT NULL,
  n INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  worker TEXT NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  err_class TEXT,
  err_message TEXT,
  err_place TEXT,
  traceback TEXT,
  PRIMARY KEY(message, n)
) STRICT, WITHOUT ROWID;
";

/// Version 2, a part for each thing that it brings.
const VERSION_2: &[&str] = &[DISCARDED, FAILURES, WORKERS, JOB_OPTIONS, ONCE];

/// Counters of what went wrong, and of what was done by the minute, for an operator's pages;
/// and the blocked jobs in the order of their ids, which only a grouped job enters.
const FAILURES: &str = "
ALTER TABLE messages ADD COLUMN failure INTEGER;
ALTER TABLE queues ADD COLUMN rolled INTEGER NOT NULL DEFAULT 0;
CREATE INDEX m_behind ON messages(queue) WHERE state = 2;
CREATE INDEX m_failure ON messages(failure, at) WHERE failure IS NOT NULL;
CREATE TABLE failures(
  id INTEGER PRIMARY KEY,
  queue INTEGER NOT NULL,
  err_class TEXT NOT NULL,
  place TEXT NOT NULL,
  task TEXT NOT NULL,
  total INTEGER NOT NULL,
  first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  UNIQUE(queue, err_class, place, task)
) STRICT;
CREATE TABLE failure_counts(
  failure INTEGER NOT NULL,
  slot INTEGER NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY(failure, slot)
) STRICT, WITHOUT ROWID;
CREATE TABLE activity(
  queue INTEGER NOT NULL,
  minute INTEGER NOT NULL,
  acked INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY(queue, minute)
) STRICT, WITHOUT ROWID;
INSERT INTO failures(queue, err_class, place, task, total, first_at, last_at)
  SELECT queue, coalesce(err_class, ''), coalesce(err_place, ''), coalesce(task, ''),
    count(*), min(at), max(at)
  FROM messages WHERE state = 5 AND reason NOT IN ('cancelled', 'discarded') GROUP BY 1, 2, 3, 4;
UPDATE messages SET failure = (SELECT f.id FROM failures f WHERE f.queue = messages.queue
    AND f.err_class = coalesce(messages.err_class, '')
    AND f.place = coalesce(messages.err_place, '') AND f.task = coalesce(messages.task, ''))
  WHERE state = 5 AND reason NOT IN ('cancelled', 'discarded');
INSERT INTO failure_counts SELECT failure, at / 300000000, count(*) FROM messages
  WHERE failure IS NOT NULL GROUP BY 1, 2;
INSERT INTO activity(queue, minute, failed) SELECT queue, at / 60000000, count(*) FROM messages
  WHERE failure IS NOT NULL GROUP BY 1, 2;
";

/// Discarded jobs are pruned after the retention; other dead letters are not.
const DISCARDED: &str = "
CREATE INDEX m_discarded ON messages(queue, at) WHERE reason = 'discarded';
";

/// What workers share. `duties.until` and `rates.next` are times on the boot clock.
const WORKERS: &str = "
CREATE TABLE workers(
  name TEXT PRIMARY KEY,
  slot INTEGER NOT NULL,
  seen INTEGER NOT NULL,
  command TEXT,
  record BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE duties(
  name TEXT PRIMARY KEY,
  until INTEGER NOT NULL,
  worker TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE rates(
  queue INTEGER PRIMARY KEY,
  next INTEGER NOT NULL
) STRICT;
CREATE TABLE schedules(
  name TEXT PRIMARY KEY,
  queue TEXT NOT NULL,
  next INTEGER NOT NULL,
  paused INTEGER NOT NULL DEFAULT 0,
  last INTEGER,
  last_id TEXT,
  seen INTEGER NOT NULL,
  timing TEXT NOT NULL,
  record BLOB NOT NULL
) STRICT, WITHOUT ROWID;
";

/// What a job may carry beside its payload. A unique key holds while `unique_until` is not
/// NULL: it is until when the key holds though the job has finished. Both indexes are empty
/// unless such options are used.
const JOB_OPTIONS: &str = "
ALTER TABLE messages ADD COLUMN expires INTEGER;
ALTER TABLE messages ADD COLUMN unique_key TEXT;
ALTER TABLE messages ADD COLUMN unique_until INTEGER;
ALTER TABLE messages ADD COLUMN retention INTEGER;
ALTER TABLE messages ADD COLUMN progress BLOB;
ALTER TABLE messages ADD COLUMN original BLOB;
CREATE UNIQUE INDEX m_unique ON messages(queue, unique_key) WHERE unique_until IS NOT NULL;
CREATE INDEX m_kept ON messages(queue, at + retention) WHERE state = 4 AND retention IS NOT NULL;
";

/// Ids of jobs that were put at most once, remembered when the jobs are gone.
const ONCE: &str = "
CREATE TABLE once(
  queue INTEGER NOT NULL,
  job_id TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY(queue, job_id)
) STRICT, WITHOUT ROWID;
";

/// Brings the tables from whatever version they have to [`VERSION`].
///
/// The caller holds the write lock and commits; what fails leaves the file as it was.
pub(super) fn migrate(db: &Connection) -> rusqlite::Result<()> {
    let found: i64 = db.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let steps: [&[&str]; 2] = [&[VERSION_1], VERSION_2];
    for (version, parts) in (1..).zip(steps) {
        if found < version {
            for part in parts {
                db.execute_batch(part)?;
            }
        }
    }
    db.pragma_update(None, "user_version", VERSION)
}
