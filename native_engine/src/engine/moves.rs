//! What a transaction moves from state to state, noted as it happens.
//!
//! Temporary triggers of the connection that writes see every change of `messages`,
//! whichever statement makes it, and call a function that adds it up: about a fiftieth of
//! a put's time, and no page of the file.

use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use super::store::lock;
use super::tally::Counts;

const TRIGGERS: &str = "
CREATE TEMP TRIGGER counts_insert AFTER INSERT ON main.messages BEGIN
  SELECT localqueue_moved(new.queue, -1, new.queue, new.state);
END;
CREATE TEMP TRIGGER counts_update AFTER UPDATE OF state, queue ON main.messages BEGIN
  SELECT localqueue_moved(old.queue, old.state, new.queue, new.state);
END;
CREATE TEMP TRIGGER counts_delete AFTER DELETE ON main.messages BEGIN
  SELECT localqueue_moved(old.queue, old.state, old.queue, -1);
END;
";

/// What moved since it was last cleared, by queue.
#[derive(Clone, Default)]
pub(super) struct Moves(Arc<Mutex<Vec<(i64, Counts)>>>);

impl Moves {
    /// Follows the changes that are made through `db`.
    pub(super) fn watch(db: &Connection) -> rusqlite::Result<Self> {
        let moves = Self::default();
        let noted = moves.clone();
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
        db.create_scalar_function("localqueue_moved", 4, flags, move |call| {
            let mut moves = lock(&noted.0);
            add(&mut moves, call.get(0)?, call.get(1)?, -1);
            add(&mut moves, call.get(2)?, call.get(3)?, 1);
            Ok(0)
        })?;
        db.execute_batch(TRIGGERS)?;
        Ok(moves)
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    pub(super) fn with<T>(&self, work: impl FnOnce(&[(i64, Counts)]) -> T) -> T {
        work(&lock(&self.0))
    }
}

fn add(moves: &mut Vec<(i64, Counts)>, queue: i64, state: i64, by: i64) {
    let Ok(state) = usize::try_from(state) else { return }; // none, before an insert
    let at = moves.iter().position(|(known, _)| *known == queue).unwrap_or_else(|| {
        moves.push((queue, Counts::default()));
        moves.len() - 1
    });
    if let Some(count) = moves[at].1.get_mut(state) {
        *count += by;
    }
}
