//! The floor under the queue: the engine's own file, read and written by bare statements.
//!
//! A put is one INSERT, a get one UPDATE, an ack one UPDATE; no receipts are checked, no
//! leases lapse, no other process is waited for, and the payload is a constant. What
//! the queue costs above this is the price of its promises and of Python.
//!
//! `benchmarks/` starts it and writes commands to it, one a line; see benchmarks/measure.py.

#![allow(clippy::print_stdout, reason = "answering is what it does")]

use std::io::{BufRead, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension};

const PAYLOAD: &[u8] =
    br#"{"task":"send-email","to":"hello@example.com","n":0,"body":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#;
const LEASE: i64 = 60_000_000;

const PUT: &str = "
INSERT INTO messages(id, queue, state, prio, since, at, created, payload)
SELECT id, ?1, 0, 0, id, id, ?2, ?3
  FROM (SELECT max(?2, 1 + coalesce((SELECT max(id) FROM messages), 0)) AS id)";
const PUT_IN_GROUP: &str = "
INSERT INTO messages(id, queue, state, prio, since, at, created, grp, payload)
SELECT id, ?1, iif(blocked, 2, 0), 0, id, iif(blocked, 0, id), ?2, ?4, ?3
  FROM (SELECT max(?2, 1 + coalesce((SELECT max(id) FROM messages), 0)) AS id,
               EXISTS(SELECT 1 FROM messages INDEXED BY m_head
                      WHERE queue = ?1 AND grp = ?4 AND grp IS NOT NULL
                        AND state IN (0, 1, 3)) AS blocked)";
const CLAIM: &str = "
UPDATE messages SET state = 3, at = ?2 + ?3, attempts = attempts + 1, prev_receipt = receipt,
       prev_verb = verb, receipt = ?4, verb = NULL, started = ?2, worker = '',
       since = iif(grp IS NULL, since, max(since, ?2))
 WHERE id = (SELECT id FROM messages INDEXED BY m_ready
             WHERE queue = ?1 AND state = 0 AND prio >= -100
             ORDER BY prio DESC, since, id LIMIT 1)
RETURNING id, since, grp, payload";
const ACK: &str = "UPDATE messages SET state = 4, at = ?2, verb = 1 WHERE id = ?1";
const LEAD: &str = "
UPDATE messages SET state = 0, since = max(since, ?3), at = since
 WHERE id = (SELECT id FROM messages INDEXED BY m_blocked
             WHERE queue = ?1 AND state = 2 AND grp = ?2 ORDER BY id LIMIT 1)";

/// What an ack needs of a claimed row.
struct Claimed {
    id: i64,
    since: i64,
    group: Option<String>,
}

struct Bare {
    db: Connection,
    queue: i64,
    groups: usize,
    count: usize,
    held: Option<Claimed>,
}

impl Bare {
    fn open(folder: &str, durability: &str, groups: usize) -> rusqlite::Result<Self> {
        let db = Connection::open(Path::new(folder).join("localqueue.db"))?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // All but `synchronous` as the engine has it.
        db.execute_batch(&format!(
            "PRAGMA synchronous = {durability};
             PRAGMA cache_size = -16000;
             PRAGMA wal_autocheckpoint = 4000;"
        ))?;
        db.set_prepared_statement_cache_capacity(32);
        let queue =
            db.query_row("SELECT id FROM queues WHERE name = 'default'", [], |row| row.get(0))?;
        Ok(Self { db, queue, groups, count: 0, held: None })
    }

    fn put(&mut self) -> rusqlite::Result<bool> {
        self.count += 1;
        if self.groups == 0 {
            self.db.prepare_cached(PUT)?.execute((self.queue, now(), PAYLOAD))?;
        } else {
            let group = format!("g{}", self.count % self.groups);
            self.db.prepare_cached(PUT_IN_GROUP)?.execute((self.queue, now(), PAYLOAD, group))?;
        }
        Ok(true)
    }

    fn claim(&mut self) -> rusqlite::Result<Option<Claimed>> {
        self.count += 1;
        self.db
            .prepare_cached(CLAIM)?
            .query_row((self.queue, now(), LEASE, self.count), |row| {
                let payload: Vec<u8> = row.get(3)?;
                std::hint::black_box(payload);
                Ok(Claimed { id: row.get(0)?, since: row.get(1)?, group: row.get(2)? })
            })
            .optional()
    }

    fn ack(&self, job: &Claimed) -> rusqlite::Result<()> {
        self.db.prepare_cached(ACK)?.execute((job.id, now()))?;
        if let Some(group) = &job.group {
            self.db.prepare_cached(LEAD)?.execute((self.queue, group, job.since))?;
        }
        Ok(())
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let result = work(self)?;
        self.db.prepare_cached("COMMIT")?.execute([])?;
        Ok(result)
    }

    fn get_ack(&mut self) -> rusqlite::Result<bool> {
        let Some(job) = self.claim()? else { return Ok(false) };
        if job.group.is_some() {
            self.in_transaction(|bare| bare.ack(&job))?;
        } else {
            self.ack(&job)?;
        }
        Ok(true)
    }

    fn exchange(&mut self) -> rusqlite::Result<bool> {
        self.in_transaction(|bare| {
            if let Some(job) = bare.held.take() {
                bare.ack(&job)?;
            }
            bare.held = bare.claim()?;
            Ok(bare.held.is_some())
        })
    }

    fn settle_held(&mut self) -> rusqlite::Result<()> {
        match self.held.take() {
            Some(job) => self.in_transaction(|bare| bare.ack(&job)),
            None => Ok(()),
        }
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(unix)]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(not(unix))]
fn cpu_time() -> Duration {
    Duration::ZERO
}

/// Does `step` up to `count` times within about `limit`, and reports how long it took.
fn measure(
    bare: &mut Bare,
    step: fn(&mut Bare) -> rusqlite::Result<bool>,
    count: usize,
    limit: Duration,
) -> rusqlite::Result<String> {
    let (cpu, start) = (cpu_time(), Instant::now());
    let mut done = 0;
    while done < count && start.elapsed() < limit && step(bare)? {
        done += 1;
    }
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_time().saturating_sub(cpu).as_secs_f64());
    Ok(format!(r#"{{"ops": {done}, "wall": {wall}, "cpu": {cpu}}}"#))
}

fn answer(bare: &mut Bare, command: &str) -> Result<String, String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let [verb, count, limit] = words[..] else { return Err(format!("not a command: {command}")) };
    let count = count.parse().map_err(|error| format!("{count}: {error}"))?;
    let limit = limit.parse().map_err(|error| format!("{limit}: {error}"))?;
    let limit = Duration::try_from_secs_f64(limit).map_err(|error| error.to_string())?;
    let step: fn(&mut Bare) -> rusqlite::Result<bool> = match verb {
        "put" => Bare::put,
        "get_ack" => Bare::get_ack,
        "exchange" => Bare::exchange,
        other => return Err(format!("not a command: {other}")),
    };
    let report = measure(bare, step, count, limit).map_err(|error| error.to_string())?;
    bare.settle_held().map_err(|error| error.to_string())?;
    Ok(report)
}

fn serve(bare: &mut Bare) -> Result<(), String> {
    for line in std::io::stdin().lock().lines() {
        let report = answer(bare, &line.map_err(|error| error.to_string())?)?;
        println!("{report}");
        std::io::stdout().flush().map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let [folder, durability, groups] = &arguments[..] else {
        println!("bare: started by benchmarks/, with FOLDER DURABILITY GROUPS; nothing to do");
        return ExitCode::SUCCESS;
    };
    let outcome = groups
        .parse()
        .map_err(|error| format!("{groups}: {error}"))
        .and_then(|groups| {
            Bare::open(folder, durability, groups).map_err(|error| error.to_string())
        })
        .and_then(|mut bare| serve(&mut bare));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{{\"error\": {error:?}}}");
            ExitCode::FAILURE
        }
    }
}
