//! How deliveries end, and what their receipts are good for afterwards.

use native_engine::engine::{LeaseLoss, State, Verb};

use super::{Job, Model};

/// The answers that are right.
type Answers = Vec<Option<LeaseLoss>>;

impl Model {
    pub(super) fn finish(&mut self, at: usize, state: State, reason: Option<&'static str>) {
        self.leave_turn(at);
        let job = &mut self.jobs[at];
        (job.state, job.reason, job.finished) = (state, reason, self.wall);
        self.let_go(at);
        if let Some(group) = self.jobs[at].group.clone() {
            self.choose_lead(self.jobs[at].queue, &group);
        }
    }

    pub(super) fn give_back(&mut self, at: usize, delay: i64, max_retries: i64) {
        let stamp = self.stamp();
        let job = &mut self.jobs[at];
        if job.cancelled {
            return self.finish(at, State::Failed, Some("cancelled"));
        }
        if job.is_exhausted(max_retries) {
            return self.finish(at, State::Failed, Some("exhausted"));
        }
        (job.own, job.due) = (stamp, None);
        if job.group.is_none() {
            job.own = job.own.max(job.since);
        }
        if delay > 0 {
            job.own = self.wall + delay;
            job.due = Some(job.own);
        }
        self.arrive(at);
    }

    fn release(&mut self, at: usize) {
        self.jobs[at].attempts -= 1;
        if self.jobs[at].cancelled {
            return self.finish(at, State::Failed, Some("cancelled"));
        }
        self.jobs[at].state = State::Ready;
        if let Some(group) = self.jobs[at].group.clone() {
            self.jobs[at].since = self.jobs[at].own;
            self.choose_lead(self.jobs[at].queue, &group);
        }
    }

    /// Which answers to an old receipt are right.
    fn lost(job: &Job, receipt: i64, verb: Option<Verb>) -> Answers {
        use LeaseLoss::{Expired, Settled, Unknown};
        let Some(age) = job.given.iter().rev().position(|given| given.receipt == receipt) else {
            return vec![Some(Unknown)];
        };
        let given = &job.given[job.given.len() - 1 - age];
        if age > 1 || !given.answerable {
            return vec![Some(Expired), Some(Settled), Some(Unknown), None];
        }
        match given.ended {
            None | Some(Verb::Lapse) => vec![Some(Expired)],
            ended if ended == verb => vec![None],
            _ => vec![Some(Settled)],
        }
    }

    /// Where the job of a live receipt is, or which answers are right.
    fn live_at(
        &self,
        queue: usize,
        id: i64,
        receipt: i64,
        verb: Option<Verb>,
    ) -> Result<usize, Answers> {
        let here = self.position(id).filter(|at| self.jobs[*at].queue == queue);
        let Some(at) = here else { return Err(vec![Some(LeaseLoss::Unknown)]) };
        let job = &self.jobs[at];
        let is_live = job.state == State::Processing
            && job.given.last().is_some_and(|given| given.receipt == receipt)
            && !self.has_lapsed(job);
        if is_live { Ok(at) } else { Err(Self::lost(job, receipt, verb)) }
    }

    /// Settles, where the receipt is live; returns the answers that are right.
    pub(crate) fn settle(
        &mut self,
        (queue, id, receipt): (usize, i64, i64),
        verb: Verb,
        delay: i64,
        max_retries: i64,
    ) -> Answers {
        let at = match self.live_at(queue, id, receipt, Some(verb)) {
            Ok(at) => at,
            Err(answers) => return answers,
        };
        if let Some(last) = self.jobs[at].given.last_mut() {
            last.ended = Some(verb);
        }
        match verb {
            Verb::Ack => self.finish(at, State::Acked, None),
            Verb::Fail => self.finish(at, State::Failed, Some("failed")),
            Verb::Release => self.release(at),
            _ => self.give_back(at, delay, max_retries),
        }
        vec![None]
    }

    pub(crate) fn extend(
        &mut self,
        (queue, id, receipt): (usize, i64, i64),
        micros: i64,
    ) -> Answers {
        let at = match self.live_at(queue, id, receipt, None) {
            Ok(at) => at,
            Err(answers) => return answers,
        };
        let until = self.boot + micros;
        if let Some(last) = self.jobs[at].given.last_mut() {
            last.deadline = last.deadline.max(until);
        }
        vec![None]
    }

    pub(crate) fn progress(
        &mut self,
        (queue, id, receipt): (usize, i64, i64),
        progress: &[u8],
    ) -> Answers {
        let at = match self.live_at(queue, id, receipt, None) {
            Ok(at) => at,
            Err(answers) => return answers,
        };
        self.jobs[at].progress = Some(progress.to_vec());
        vec![None]
    }
}
