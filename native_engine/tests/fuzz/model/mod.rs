//! The queue's rules in plain Rust, without a file: what the engine is held against.

use std::collections::{HashMap, HashSet};

use native_engine::engine::{LeaseLoss, State, Verb};

pub(crate) const MAX_RETRIES: i64 = 2;
const AT_A_TIME: usize = 64;

#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) receipt: i64,
    deadline: i64,
    ended: Option<Verb>,
    answerable: bool,
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: i64,
    /// Its `job_id`.
    pub(crate) name: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) state: State,
    pub(crate) attempts: i64,
    pub(crate) reason: Option<&'static str>,
    pub(crate) given: Vec<Given>,
    pub(crate) progress: Option<Vec<u8>>,
    priority: i64,
    group: Option<String>,
    /// Since when it waits by itself, without regard to its group.
    own: i64,
    due: Option<i64>,
    since: i64,
    finished: i64,
    cancelled: bool,
    expires: Option<i64>,
    /// Its unique key, and until when it holds it, where it does.
    key: Option<String>,
    holds: Option<i64>,
    retention: Option<i64>,
}

/// What is put.
#[derive(Debug, Clone, Default)]
pub(crate) struct Put {
    pub(crate) payload: Vec<u8>,
    pub(crate) name: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) priority: i64,
    pub(crate) delay: i64,
    pub(crate) once: bool,
    pub(crate) expires: Option<i64>,
    pub(crate) key: Option<String>,
    pub(crate) key_for: i64,
    pub(crate) retention: Option<i64>,
}

/// One queue; its jobs in the order of their ids.
pub(crate) struct Model {
    pub(crate) jobs: Vec<Job>,
    pub(crate) paused: bool,
    wall: i64,
    boot: i64,
    lease: i64,
    last: i64,
    /// When each group was last served, as its leads hand it on.
    served: HashMap<String, i64>,
    /// The names that were put once.
    once: HashSet<String>,
}

impl Model {
    pub(crate) fn new(wall: i64, lease: i64) -> Self {
        Self {
            jobs: Vec::new(),
            paused: false,
            wall,
            boot: 1,
            lease,
            last: 0,
            served: HashMap::new(),
            once: HashSet::new(),
        }
    }

    pub(crate) fn advance(&mut self, micros: i64) {
        self.wall += micros;
        self.boot += micros;
    }

    pub(crate) fn step_wall(&mut self, micros: i64) {
        self.wall += micros;
    }

    /// Every lease of the boot before has lapsed.
    pub(crate) fn reboot(&mut self) {
        self.boot = 1;
        for job in &mut self.jobs {
            if job.state == State::Processing
                && let Some(last) = job.given.last_mut()
            {
                last.deadline = 0;
            }
        }
    }

    fn stamp(&self) -> i64 {
        self.wall.max(self.last)
    }

    pub(crate) fn position(&self, id: i64) -> Option<usize> {
        self.jobs.iter().position(|job| job.id == id)
    }

    /// The id of the job, and whether it is new.
    pub(crate) fn put(&mut self, put: &Put) -> (i64, bool) {
        if let Some(name) = &put.name {
            let was_put = put.once && !self.once.insert(name.clone());
            if let Some(job) = self.jobs.iter().find(|job| job.name == put.name) {
                return (job.id, false);
            }
            if was_put {
                return (0, false);
            }
        }
        if let Some(id) = put.key.as_deref().and_then(|key| self.holder(key)) {
            return (id, false);
        }
        self.last = self.wall.max(self.last + 1);
        let due = (put.delay > 0).then_some(self.wall + put.delay);
        self.jobs.push(Job {
            id: self.last,
            name: put.name.clone(),
            payload: put.payload.clone(),
            state: State::Blocked,
            attempts: 0,
            reason: None,
            given: Vec::new(),
            priority: put.priority,
            group: put.group.clone(),
            own: due.unwrap_or(self.last),
            due,
            since: 0,
            finished: 0,
            cancelled: false,
            progress: None,
            expires: put.expires.map(|expires| self.wall + expires),
            key: put.key.clone(),
            holds: put.key.as_ref().map(|_| self.wall + put.key_for),
            retention: put.retention,
        });
        self.arrive(self.jobs.len() - 1);
        (self.last, true)
    }

    /// Who holds a key; a finished job lets it go once its time is over.
    fn holder(&mut self, key: &str) -> Option<i64> {
        let job = self
            .jobs
            .iter_mut()
            .find(|job| job.holds.is_some() && job.key.as_deref() == Some(key))?;
        let is_finished = matches!(job.state, State::Acked | State::Failed);
        if is_finished && job.holds.is_some_and(|until| until <= self.wall) {
            job.holds = None;
            return None;
        }
        Some(job.id)
    }

    fn arrive(&mut self, at: usize) {
        self.jobs[at].state = State::Blocked;
        match self.jobs[at].group.clone() {
            None => self.place(at),
            Some(group) => self.choose_lead(&group),
        }
    }

    fn choose_lead(&mut self, group: &str) {
        let live: Vec<usize> = (0..self.jobs.len())
            .filter(|at| {
                let job = &self.jobs[*at];
                job.group.as_deref() == Some(group)
                    && !matches!(job.state, State::Acked | State::Failed)
            })
            .collect();
        let Some(lead) = live.first() else {
            self.served.remove(group);
            return;
        };
        if live.iter().any(|at| self.jobs[*at].state == State::Processing) {
            return;
        }
        for at in &live[1..] {
            self.jobs[*at].state = State::Blocked;
        }
        if self.jobs[*lead].state == State::Blocked {
            self.place(*lead);
        }
    }

    fn place(&mut self, at: usize) {
        if self.jobs[at].due.is_some_and(|due| due > self.wall) {
            self.jobs[at].state = State::Delayed;
        } else {
            self.make_ready(at);
        }
    }

    fn make_ready(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        (job.state, job.due, job.since) = (State::Ready, None, job.own);
        if let Some(group) = &job.group {
            job.since = job.own.max(self.served.get(group).copied().unwrap_or(0));
        }
    }

    fn finish(&mut self, at: usize, state: State, reason: Option<&'static str>) {
        let job = &mut self.jobs[at];
        if let (Some(group), State::Ready) = (&job.group, job.state) {
            self.served.insert(group.clone(), job.since);
        }
        (job.state, job.reason, job.finished) = (state, reason, self.wall);
        job.holds = job.holds.filter(|until| *until > self.wall);
        if let Some(group) = job.group.clone() {
            self.choose_lead(&group);
        }
    }

    fn give_back(&mut self, at: usize, delay: i64) {
        let stamp = self.stamp();
        let job = &mut self.jobs[at];
        if job.cancelled {
            return self.finish(at, State::Failed, Some("cancelled"));
        }
        if job.attempts > MAX_RETRIES {
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

    fn has_lapsed(&self, job: &Job) -> bool {
        job.state == State::Processing
            && job.given.last().is_some_and(|given| given.deadline <= self.boot)
    }

    /// Due though nobody has promoted it yet: it is shown as ready.
    pub(crate) fn is_due(&self, job: &Job) -> bool {
        job.state == State::Delayed && job.due.is_some_and(|due| due <= self.wall)
    }

    fn sorted(&self, of: impl Fn(&Job) -> Option<i64>) -> Vec<usize> {
        let mut found: Vec<_> = (0..self.jobs.len())
            .filter_map(|at| of(&self.jobs[at]).map(|key| (key, self.jobs[at].id, at)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, at)| at).collect()
    }

    pub(crate) fn reclaim(&mut self, limit: usize) -> usize {
        let late = self.sorted(|job| {
            self.has_lapsed(job).then(|| job.given.last().map_or(0, |given| given.deadline))
        });
        for at in late.iter().take(limit) {
            if let Some(last) = self.jobs[*at].given.last_mut() {
                last.ended = Some(Verb::Lapse);
            }
            self.give_back(*at, 0);
        }
        late.len().min(limit)
    }

    /// Hands out up to `want` jobs, in order, so that `most` run; the caller notes their receipts.
    pub(crate) fn claim(&mut self, want: usize, floor: i64, most: Option<usize>) -> Vec<usize> {
        if self.paused || want == 0 {
            return Vec::new();
        }
        self.reclaim(AT_A_TIME);
        for at in self.sorted(|job| self.is_due(job).then_some(job.own)).into_iter().take(AT_A_TIME)
        {
            self.make_ready(at);
        }
        let running = self.jobs.iter().filter(|job| job.state == State::Processing).count();
        let want = most.map_or(want, |most| want.min(most.saturating_sub(running)));
        let mut taken = Vec::new();
        while taken.len() < want {
            let line = self.line(want - taken.len(), floor);
            if line.is_empty() {
                break;
            }
            for at in line {
                let job = &self.jobs[at];
                if job.attempts == 0 && job.expires.is_some_and(|until| until <= self.wall) {
                    self.finish(at, State::Failed, Some("expired"));
                } else {
                    self.hand_out(at);
                    taken.push(at);
                }
            }
        }
        taken
    }

    /// The first `count` jobs that are ready, in their order.
    fn line(&self, count: usize, floor: i64) -> Vec<usize> {
        let mut line: Vec<usize> = (0..self.jobs.len())
            .filter(|at| self.jobs[*at].state == State::Ready && self.jobs[*at].priority >= floor)
            .collect();
        line.sort_by_key(|at| {
            let job = &self.jobs[*at];
            (-job.priority, job.since, job.id)
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
            self.served.insert(group.clone(), stamp);
        }
    }

    /// Which answers to an old receipt are right.
    fn lost(job: &Job, receipt: i64, verb: Option<Verb>) -> Vec<Option<LeaseLoss>> {
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

    /// Settles, where the receipt is live; returns the answers that are right.
    pub(crate) fn settle(
        &mut self,
        id: i64,
        receipt: i64,
        verb: Verb,
        delay: i64,
    ) -> Vec<Option<LeaseLoss>> {
        let Some(at) = self.position(id) else { return vec![Some(LeaseLoss::Unknown)] };
        if !self.is_live(at, receipt) {
            return Self::lost(&self.jobs[at], receipt, Some(verb));
        }
        if let Some(last) = self.jobs[at].given.last_mut() {
            last.ended = Some(verb);
        }
        match verb {
            Verb::Ack => self.finish(at, State::Acked, None),
            Verb::Fail => self.finish(at, State::Failed, Some("failed")),
            Verb::Release => self.release(at),
            _ => self.give_back(at, delay),
        }
        vec![None]
    }

    fn is_live(&self, at: usize, receipt: i64) -> bool {
        let job = &self.jobs[at];
        job.state == State::Processing
            && job.given.last().is_some_and(|given| given.receipt == receipt)
            && !self.has_lapsed(job)
    }

    fn release(&mut self, at: usize) {
        self.jobs[at].attempts -= 1;
        if self.jobs[at].cancelled {
            return self.finish(at, State::Failed, Some("cancelled"));
        }
        self.jobs[at].state = State::Ready;
        if let Some(group) = self.jobs[at].group.clone() {
            self.jobs[at].since = self.jobs[at].own;
            self.choose_lead(&group);
        }
    }

    pub(crate) fn extend(&mut self, id: i64, receipt: i64, micros: i64) -> Vec<Option<LeaseLoss>> {
        let Some(at) = self.position(id) else { return vec![Some(LeaseLoss::Unknown)] };
        if !self.is_live(at, receipt) {
            return Self::lost(&self.jobs[at], receipt, None);
        }
        let until = self.boot + micros;
        if let Some(last) = self.jobs[at].given.last_mut() {
            last.deadline = last.deadline.max(until);
        }
        vec![None]
    }

    pub(crate) fn progress(
        &mut self,
        id: i64,
        receipt: i64,
        progress: &[u8],
    ) -> Vec<Option<LeaseLoss>> {
        let Some(at) = self.position(id) else { return vec![Some(LeaseLoss::Unknown)] };
        if !self.is_live(at, receipt) {
            return Self::lost(&self.jobs[at], receipt, None);
        }
        self.jobs[at].progress = Some(progress.to_vec());
        vec![None]
    }

    pub(crate) fn edit(&mut self, at: usize, payload: &[u8]) -> bool {
        let job = &mut self.jobs[at];
        if matches!(job.state, State::Processing | State::Acked) {
            return false;
        }
        job.payload = payload.to_vec();
        true
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
        let key = job.key.clone();
        self.arrive(at);
        if self.jobs[at].state == State::Ready {
            self.jobs[at].since = stamp;
        }
        if let Some(key) = key
            && self.holder(&key).is_none()
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

    pub(crate) fn purge(&mut self, before: i64, include_failed: bool) -> usize {
        let count = self.jobs.len();
        self.jobs.retain(|job| {
            let finished =
                job.state == State::Acked || (include_failed && job.state == State::Failed);
            !(finished && job.finished <= before)
        });
        count - self.jobs.len()
    }

    /// Removes what is acked and was kept as long as it, or else the queue, asks for.
    pub(crate) fn prune(&mut self, retention: Option<i64>) -> usize {
        let count = self.jobs.len();
        self.jobs.retain(|job| {
            let kept = job.retention.or(retention);
            !(job.state == State::Acked
                && kept.is_some_and(|kept| job.finished + kept <= self.wall))
        });
        count - self.jobs.len()
    }

    /// How many jobs are ready, delayed, blocked, processing, acked, failed, as they are shown.
    pub(crate) fn counts(&self) -> [i64; 6] {
        let mut counts = [0; 6];
        for job in &self.jobs {
            let shown = if self.is_due(job) { State::Ready } else { job.state };
            counts[usize::try_from(shown as i64).unwrap_or(0)] += 1;
        }
        counts
    }
}
