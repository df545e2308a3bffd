//! Settle what is done and claim what is next, in one transaction; wait where there is nothing.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::claim::{Claimed, Outlook, claim};
use super::error::{Error, LeaseLoss, Result};
use super::records::{Claim, Delivery, Settlement};
use super::settle::{Delivered, settle_all};
use super::shared::Rung;
use super::store::{Patience, SLICE, Store};

/// A missed wake-up costs at most this.
const SLOW_POLL: Duration = Duration::from_secs(1);
/// A clock that moves only when told tells nobody.
const MANUAL_POLL: Duration = Duration::from_millis(2);

impl Store {
    /// Carries out `settlements`, then claims; waits up to `timeout` for a first job.
    ///
    /// None waits for ever, or until [`Store::interrupt`]. One result for each
    /// settlement: nothing, or why its lease was lost.
    pub fn exchange(
        &self,
        settlements: &[Settlement],
        wanted: &Claim,
        timeout: Option<Duration>,
        patience: &dyn Patience,
    ) -> Result<(Vec<Option<LeaseLoss>>, Vec<Delivery>)> {
        let start = Instant::now();
        let mut results = Vec::new();
        if !settlements.is_empty() {
            let (settled, jobs) = self.settle_and_claim(settlements, wanted, patience)?;
            if wanted.want == 0 || !jobs.is_empty() {
                return Ok((settled, jobs));
            }
            results = settled;
        } else if wanted.want == 0 {
            return Ok((results, Vec::new()));
        } else if self.busy.load(Ordering::Relaxed) {
            let (_, jobs) = self.settle_and_claim(&[], wanted, patience)?;
            if !jobs.is_empty() {
                return Ok((results, jobs));
            }
        }
        let jobs = self.wait_and_claim(wanted, timeout.map(|timeout| start + timeout), patience)?;
        Ok((results, jobs))
    }

    /// Ends a waiting `exchange` of this store in this process, or the next that would wait.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        self.shared.ring_own();
    }

    /// Keeps a lease for at least `micros` from now.
    ///
    /// Returns why it was lost, whether the job is asked to stop, and the wall time of its end.
    pub fn extend_lease(
        &self,
        queue: &str,
        id: i64,
        receipt: i64,
        micros: i64,
        patience: &dyn Patience,
    ) -> Result<(Option<LeaseLoss>, bool, i64)> {
        self.write(patience, |write| {
            let job = match Delivered::load_live(write, queue, id, receipt)? {
                Ok(job) => job,
                Err(loss) => return Ok((Some(loss), false, 0)),
            };
            let end = job.lease_end().max(write.boot.saturating_add(micros));
            if end > job.lease_end() {
                write
                    .db()
                    .prepare_cached("UPDATE messages SET at = ?2 WHERE id = ?1")?
                    .execute((id, end))?;
                failpoint!("extend.moved");
            }
            Ok((None, job.cancel_requested(), write.now + (end - write.boot)))
        })
    }

    /// Keeps what a worker says of how far its job is.
    ///
    /// Returns why its lease was lost, and whether the job is asked to stop.
    pub fn progress(
        &self,
        queue: &str,
        id: i64,
        receipt: i64,
        progress: &[u8],
        patience: &dyn Patience,
    ) -> Result<(Option<LeaseLoss>, bool)> {
        self.write(patience, |write| {
            let job = match Delivered::load_live(write, queue, id, receipt)? {
                Ok(job) => job,
                Err(loss) => return Ok((Some(loss), false)),
            };
            write
                .db()
                .prepare_cached("UPDATE messages SET progress = ?2 WHERE id = ?1")?
                .execute((id, progress))?;
            Ok((None, job.cancel_requested()))
        })
    }

    fn settle_and_claim(
        &self,
        settlements: &[Settlement],
        wanted: &Claim,
        patience: &dyn Patience,
    ) -> Result<(Vec<Option<LeaseLoss>>, Vec<Delivery>)> {
        let turn = self.turn.load(Ordering::Relaxed);
        if wanted.sources.iter().any(|source| source.limits.is_some()) {
            self.limited.store(true, Ordering::Relaxed);
        }
        let (settled, mut claimed) = self.write(patience, |write| {
            let settled = settle_all(write, settlements)?;
            // What ends lets another begin, where only so many may run.
            write.ring |= !settlements.is_empty() && self.limited.load(Ordering::Relaxed);
            let claimed =
                if wanted.want == 0 { Claimed::default() } else { claim(write, wanted, turn)? };
            Ok((settled, claimed))
        })?;
        if wanted.want > 0 {
            while claimed.jobs.is_empty() && claimed.is_cut_short() {
                claimed = self.write(patience, |write| claim(write, wanted, turn))?;
            }
            self.turn.store(claimed.turn, Ordering::Relaxed);
            self.busy.store(!claimed.jobs.is_empty(), Ordering::Relaxed);
        }
        Ok((settled, claimed.jobs))
    }

    fn wait_and_claim(
        &self,
        wanted: &Claim,
        deadline: Option<Instant>,
        patience: &dyn Patience,
    ) -> Result<Vec<Delivery>> {
        let mut straight = false;
        loop {
            let seen = self.shared.bell(); // before looking, so that no put is missed
            if straight {
                let (_, jobs) = self.settle_and_claim(&[], wanted, patience)?;
                if !jobs.is_empty() {
                    return Ok(jobs);
                }
                self.looks_first.store(true, Ordering::Relaxed);
            }
            let outlook = self.outlook(wanted, patience)?;
            if outlook.ready {
                let (_, jobs) = self.settle_and_claim(&[], wanted, patience)?;
                if !jobs.is_empty() {
                    self.looks_first.store(false, Ordering::Relaxed);
                    return Ok(jobs);
                }
            }
            let look_again = Instant::now() + self.until_next(&outlook);
            loop {
                if self.is_closed() {
                    return Err(Error::Closed);
                }
                let now = Instant::now();
                if deadline.is_some_and(|deadline| now >= deadline)
                    || self.interrupted.swap(false, Ordering::SeqCst)
                {
                    return Ok(Vec::new());
                }
                if now >= look_again {
                    straight = false;
                    break;
                }
                let nap = (look_again - now).min(SLICE);
                let nap = deadline.map_or(nap, |deadline| nap.min(deadline - now));
                let rung = self.shared.wait(seen, nap);
                // Own interrupts ring too: those end the wait before the next look.
                if rung != Rung::Not && !self.interrupted.load(Ordering::SeqCst) {
                    // Nobody else was woken, so the job is most likely there for this one: to look
                    // before the write lock is taken would only cost time.
                    straight = rung == Rung::ForMe && !self.looks_first.load(Ordering::Relaxed);
                    break;
                }
                if patience.is_over() {
                    return Err(Error::Interrupted);
                }
            }
        }
    }

    /// How long nothing can become claimable by itself.
    fn until_next(&self, outlook: &Outlook) -> Duration {
        if self.clock.is_manual() {
            return MANUAL_POLL;
        }
        let until = |at: Option<i64>, now: i64| {
            let micros = at.map_or(u64::MAX, |at| u64::try_from(at - now).unwrap_or(0));
            Duration::from_micros(micros.max(100))
        };
        SLOW_POLL
            .min(until(outlook.due, self.clock.wall()))
            .min(until(outlook.lapse, self.clock.boot()))
    }
}
