//! Long looks at the whole file, on a connection of their own: nobody waits for them.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::error::{Error, Result};
use super::fork::FORKING;
use super::schema;
use super::store::{Patience, SLICE, Store, lock};

impl Store {
    /// Runs `look` on a connection of its own; on the one that writes, in memory.
    ///
    /// `patience` may end it. A fork of this process interrupts it, and it begins anew: a
    /// child must not inherit the connection.
    pub(super) fn aside<T: Send>(
        &self,
        patience: &dyn Patience,
        look: impl Fn(&Connection) -> rusqlite::Result<T> + Sync,
    ) -> Result<T> {
        let start = Instant::now();
        let Some(path) = &self.path else {
            let held = self.acquire(patience)?;
            let Some(writer) = &held.writer else { return Err(Error::Closed) };
            return look(&writer.db).map_err(|error| self.error(&error, start));
        };
        loop {
            self.check_usable()?;
            if FORKING.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let found = {
                let _alone = lock(&self.aside);
                if FORKING.load(Ordering::SeqCst) {
                    continue;
                }
                self.watched(path, patience, &look)?
            };
            match found {
                Err(error)
                    if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) =>
                {
                    if patience.is_over() {
                        return Err(Error::Interrupted);
                    }
                }
                found => return found.map_err(|error| self.error(&error, start)),
            }
        }
    }

    /// Runs `look` on a thread, and interrupts it where somebody asks for that.
    fn watched<T: Send>(
        &self,
        path: &Path,
        patience: &dyn Patience,
        look: &(impl Fn(&Connection) -> rusqlite::Result<T> + Sync),
    ) -> Result<rusqlite::Result<T>> {
        let connection = schema::open_reader(path)?;
        let interrupt = connection.get_interrupt_handle();
        let found = thread::scope(|scope| {
            let looking = scope.spawn(move || look(&connection));
            let mut asked = Instant::now();
            while !looking.is_finished() {
                thread::park_timeout(Duration::from_millis(1));
                let over = asked.elapsed() >= SLICE && {
                    asked = Instant::now();
                    patience.is_over()
                };
                if over || FORKING.load(Ordering::SeqCst) || self.is_closed() {
                    interrupt.interrupt();
                }
            }
            looking.join()
        });
        found.map_err(|_| Error::Unavailable(format!("A look at {} failed.", path.display())))
    }

    /// Returns once no such look has the file open.
    pub(super) fn wait_for_asides(&self) {
        drop(lock(&self.aside));
    }
}
