//! What is done to jobs from outside.

use native_engine::engine::{Finished, State};

use super::Model;
use crate::steps::Deed;

impl Model {
    pub(crate) fn edit(&mut self, at: usize, payload: &[u8]) -> bool {
        let job = &mut self.jobs[at];
        if matches!(job.state, State::Processing | State::Acked) {
            return false;
        }
        job.payload = payload.to_vec();
        true
    }

    /// Does it to one job, if it is in a state that suits.
    pub(crate) fn act(&mut self, at: usize, deed: Deed) -> bool {
        if !deed.suits().contains(&self.jobs[at].state) {
            return false;
        }
        match deed {
            Deed::Retry => self.retry(at),
            Deed::RunNow => self.run_now(at),
            Deed::Delay(micros) => self.postpone(at, self.wall + micros),
            Deed::Move => self.transfer(at),
            Deed::Cancel => self.cancel(at),
            Deed::Discard => self.discard(at),
            Deed::Purge => {
                self.jobs.remove(at);
                true
            }
        }
    }

    pub(crate) fn retry(&mut self, at: usize) -> bool {
        let stamp = self.stamp();
        let job = &mut self.jobs[at];
        if job.state != State::Failed {
            return false;
        }
        (job.attempts, job.reason, job.cancelled, job.own, job.due) = (0, None, false, stamp, None);
        if let Some(last) = job.given.last_mut() {
            last.answerable = false;
        }
        job.expires = None;
        let (queue, key) = (job.queue, job.key.clone());
        self.arrive(at);
        if self.jobs[at].state == State::Ready {
            self.jobs[at].since = stamp;
        }
        if let Some(key) = key
            && self.holder(queue, &key).is_none()
        {
            self.jobs[at].holds = Some(0);
        }
        true
    }

    pub(crate) fn cancel(&mut self, at: usize) -> bool {
        match self.jobs[at].state {
            State::Acked | State::Failed => return false,
            State::Processing => self.jobs[at].cancelled = true,
            _ => self.finish(at, State::Failed, Some("cancelled")),
        }
        true
    }

    fn run_now(&mut self, at: usize) -> bool {
        self.jobs[at].own = self.stamp();
        self.make_ready(at);
        true
    }

    fn postpone(&mut self, at: usize, due: i64) -> bool {
        if self.jobs[at].state == State::Delayed && self.jobs[at].due == Some(due) {
            return false;
        }
        self.leave_turn(at);
        let job = &mut self.jobs[at];
        (job.state, job.own, job.due) = (State::Delayed, due, Some(due));
        true
    }

    /// Moves a job to the other queue, unless that has its name, or its key is held there.
    fn transfer(&mut self, at: usize) -> bool {
        self.let_go(at);
        let (from, to) = (self.jobs[at].queue, 1 - self.jobs[at].queue);
        let (name, key) = (self.jobs[at].name.clone(), self.jobs[at].key.clone());
        if name.is_some_and(|name| self.named(to, &name).is_some()) {
            return false;
        }
        if let Some(key) = key.filter(|_| self.jobs[at].holds.is_some())
            && self.holder(to, &key).is_some()
        {
            return false;
        }
        let group = self.jobs[at].group.clone().filter(|_| !self.jobs[at].is_finished());
        let Some(group) = group else {
            self.jobs[at].queue = to;
            return true;
        };
        self.leave_turn(at);
        let id = self.jobs[at].id;
        let leads = self
            .live(to, &group)
            .iter()
            .all(|other| self.jobs[*other].id > id && self.jobs[*other].state != State::Processing);
        if leads {
            // It waits as long as it has, whenever its group was served there.
            self.served.remove(&(to, group.clone()));
        }
        self.jobs[at].queue = to;
        self.arrive(at);
        self.choose_lead(from, &group);
        true
    }

    fn discard(&mut self, at: usize) -> bool {
        if self.jobs[at].state != State::Failed {
            self.finish(at, State::Failed, Some("discarded"));
            return true;
        }
        if self.jobs[at].reason == Some("discarded") {
            return false;
        }
        (self.jobs[at].reason, self.jobs[at].finished) = (Some("discarded"), self.wall);
        true
    }

    pub(crate) fn purge(&mut self, queue: usize, before: i64, kind: Finished) -> usize {
        let count = self.jobs.len();
        self.jobs.retain(|job| {
            let is_meant = match kind {
                Finished::Acked => job.state == State::Acked,
                Finished::Failed => job.state == State::Failed,
                Finished::Discarded => job.reason == Some("discarded"),
            };
            !(job.queue == queue && is_meant && job.finished <= before)
        });
        count - self.jobs.len()
    }

    /// Removes what is acked and was kept as long as it, or else the queue, asks for; and what
    /// was discarded.
    pub(crate) fn prune(&mut self, queue: usize, retention: Option<i64>) -> usize {
        let count = self.jobs.len();
        self.jobs.retain(|job| {
            let kept =
                if job.state == State::Acked { job.retention.or(retention) } else { retention };
            let is_meant = job.state == State::Acked || job.reason == Some("discarded");
            !(job.queue == queue
                && is_meant
                && kept.is_some_and(|kept| job.finished + kept <= self.wall))
        });
        count - self.jobs.len()
    }
}
