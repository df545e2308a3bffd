//! Taking jobs, and what bounds it.

use native_engine::engine::{State, Verb};

use super::{Given, Job, Model};
use crate::steps::Wanted;

const AT_A_TIME: usize = 64;

impl Model {
    pub(super) fn has_lapsed(&self, job: &Job) -> bool {
        job.state == State::Processing
            && job.given.last().is_some_and(|given| given.deadline <= self.boot)
    }

    pub(crate) fn reclaim(&mut self, queue: usize, max_retries: i64, limit: usize) -> usize {
        let late = self.sorted(queue, |job| {
            self.has_lapsed(job).then(|| job.given.last().map_or(0, |given| given.deadline))
        });
        for at in late.iter().take(limit) {
            if let Some(last) = self.jobs[*at].given.last_mut() {
                last.ended = Some(Verb::Lapse);
            }
            self.give_back(*at, 0, max_retries);
        }
        late.len().min(limit)
    }

    /// Hands out jobs, in order; the caller notes their receipts.
    pub(crate) fn claim(&mut self, wanted: &Wanted) -> Vec<usize> {
        let mut taken = Vec::new();
        if wanted.want == 0 {
            return taken;
        }
        let mut open: Vec<(usize, usize)> = wanted.sources.iter().copied().enumerate().collect();
        open.retain(|(_, queue)| !self.paused[*queue]);
        for (_, queue) in &open {
            self.make_claimable(*queue, wanted.max_retries);
        }
        if !wanted.round_robin || open.len() < 2 {
            for (_, queue) in open {
                let more = self.take(queue, wanted.want - taken.len(), wanted);
                taken.extend(more);
            }
            return taken;
        }
        let mut next = open.iter().position(|(index, _)| *index >= self.turn).unwrap_or(0);
        while !open.is_empty() && taken.len() < wanted.want {
            next %= open.len();
            let (index, queue) = open[next];
            match self.take(queue, 1, wanted).first() {
                Some(at) => {
                    taken.push(*at);
                    self.turn = index + 1;
                    next += 1;
                }
                None => {
                    open.remove(next);
                }
            }
        }
        taken
    }

    /// Lets leases lapse, and makes ready what is due.
    fn make_claimable(&mut self, queue: usize, max_retries: i64) {
        self.reclaim(queue, max_retries, AT_A_TIME);
        let due = self.sorted(queue, |job| self.is_due(job).then_some(job.own));
        for at in due.into_iter().take(AT_A_TIME) {
            self.make_ready(at);
        }
    }

    fn take(&mut self, queue: usize, want: usize, wanted: &Wanted) -> Vec<usize> {
        let want = want.min(self.allowed(queue, wanted));
        let mut taken = Vec::new();
        while taken.len() < want {
            let line = self.line(queue, want - taken.len(), wanted.floor);
            if line.is_empty() {
                break;
            }
            for at in line {
                let job = &self.jobs[at];
                if job.is_exhausted(wanted.max_retries) {
                    self.finish(at, State::Failed, Some("exhausted"));
                } else if job.attempts == 0 && job.expires.is_some_and(|until| until <= self.wall) {
                    self.finish(at, State::Failed, Some("expired"));
                } else {
                    self.hand_out(at);
                    taken.push(at);
                }
            }
        }
        if let Some(rate) = self.rates[queue].as_mut().filter(|_| wanted.rated) {
            rate.level -= rate.interval * i64::try_from(taken.len()).unwrap_or(0);
        }
        taken
    }

    /// How many jobs the limits allow.
    fn allowed(&self, queue: usize, wanted: &Wanted) -> usize {
        let running = |job: &&Job| job.queue == queue && job.state == State::Processing;
        let running = i64::try_from(self.jobs.iter().filter(running).count()).unwrap_or(0);
        let by_number = wanted.most.map_or(i64::MAX, |most| most - running);
        let rate = self.rates[queue].as_ref().filter(|_| wanted.rated);
        let by_rate = rate.map_or(i64::MAX, |rate| rate.level.max(0) / rate.interval);
        usize::try_from(by_number.min(by_rate)).unwrap_or(0)
    }

    /// The first `count` jobs that are ready, in their order.
    fn line(&self, queue: usize, count: usize, floor: i64) -> Vec<usize> {
        let mut line = self.sorted(queue, |job| {
            (job.state == State::Ready && job.priority >= floor)
                .then_some((-job.priority, job.since))
        });
        line.truncate(count);
        line
    }

    fn hand_out(&mut self, at: usize) {
        let stamp = self.stamp();
        let job = &mut self.jobs[at];
        job.state = State::Processing;
        job.attempts += 1;
        job.given.push(Given {
            receipt: 0,
            deadline: self.boot + self.lease,
            ended: None,
            answerable: true,
        });
        if let Some(group) = &job.group {
            job.own = stamp;
            self.served.insert((job.queue, group.clone()), stamp);
        }
    }
}
