//! The rules of a store in plain Rust, without a file: what the engine is held against.

mod claims;
mod endings;
mod repairs;

use std::collections::{HashMap, HashSet};

use native_engine::engine::{State, Verb};

/// Of a queue, for most who use it.
pub(crate) const MAX_RETRIES: i64 = 2;

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
    pub(crate) queue: usize,
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
    max_retries: Option<i64>,
}

impl Job {
    pub(crate) fn public_id(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// Since when it waits, when it is due or when it finished, by its state.
    pub(crate) fn time(&self) -> Option<i64> {
        match self.state {
            State::Ready => Some(self.since),
            State::Delayed => self.due,
            State::Acked | State::Failed => Some(self.finished),
            State::Processing | State::Blocked => None,
        }
    }

    /// Whether it has had its deliveries, in a queue that allows so many retries.
    fn is_exhausted(&self, max_retries: i64) -> bool {
        self.attempts > self.max_retries.unwrap_or(max_retries)
    }

    fn is_finished(&self) -> bool {
        matches!(self.state, State::Acked | State::Failed)
    }
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
    pub(crate) max_retries: Option<i64>,
}

/// A rate as a bucket: time flows in, up to its size, and each delivery takes an interval.
pub(crate) struct Bucket {
    interval: i64,
    size: i64,
    level: i64,
}

impl Bucket {
    pub(crate) fn full(interval: i64, burst: i64) -> Self {
        Self { interval, size: interval * burst, level: interval * burst }
    }
}

/// Two queues; the jobs of both in the order of their ids.
pub(crate) struct Model {
    pub(crate) jobs: Vec<Job>,
    pub(crate) paused: [bool; 2],
    rates: [Option<Bucket>; 2],
    wall: i64,
    boot: i64,
    lease: i64,
    last: i64,
    /// Which source of a claim is next, where they take turns.
    turn: usize,
    /// When each group of a queue was last served, as its leads hand it on.
    served: HashMap<(usize, String), i64>,
    /// The names that were put once.
    once: HashSet<(usize, String)>,
}

impl Model {
    pub(crate) fn new(wall: i64, lease: i64, rates: [Option<Bucket>; 2]) -> Self {
        Self {
            jobs: Vec::new(),
            paused: [false; 2],
            rates,
            wall,
            boot: 1,
            lease,
            last: 0,
            turn: 0,
            served: HashMap::new(),
            once: HashSet::new(),
        }
    }

    pub(crate) fn advance(&mut self, micros: i64) {
        self.wall += micros;
        self.boot += micros;
        for rate in self.rates.iter_mut().flatten() {
            rate.level = rate.size.min(rate.level + micros);
        }
    }

    pub(crate) fn step_wall(&mut self, micros: i64) {
        self.wall += micros;
    }

    /// Whoever opens the store takes its first source first.
    pub(crate) fn reopen(&mut self) {
        self.turn = 0;
    }

    /// Every lease of the boot before has lapsed, and no rate remembers it.
    pub(crate) fn reboot(&mut self) {
        self.boot = 1;
        for rate in self.rates.iter_mut().flatten() {
            rate.level = rate.size;
        }
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

    fn named(&self, queue: usize, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.queue == queue && job.name.as_deref() == Some(name))
    }

    /// The id of the job, and whether it is new.
    pub(crate) fn put(&mut self, queue: usize, put: &Put) -> (i64, bool) {
        if let Some(name) = &put.name {
            let was_put = put.once && !self.once.insert((queue, name.clone()));
            if let Some(job) = self.named(queue, name) {
                return (job.id, false);
            }
            if was_put {
                return (0, false);
            }
        }
        if let Some(id) = put.key.as_deref().and_then(|key| self.holder(queue, key)) {
            return (id, false);
        }
        self.last = self.wall.max(self.last + 1);
        let due = (put.delay > 0).then_some(self.wall + put.delay);
        self.jobs.push(Job {
            id: self.last,
            queue,
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
            max_retries: put.max_retries,
        });
        self.arrive(self.jobs.len() - 1);
        (self.last, true)
    }

    /// Who holds a key; a finished job lets it go once its time is over.
    fn holder(&mut self, queue: usize, key: &str) -> Option<i64> {
        let at = self.jobs.iter().position(|job| {
            job.queue == queue && job.holds.is_some() && job.key.as_deref() == Some(key)
        })?;
        self.let_go(at);
        self.jobs[at].holds.map(|_| self.jobs[at].id)
    }

    fn let_go(&mut self, at: usize) {
        let job = &mut self.jobs[at];
        if job.is_finished() && job.holds.is_some_and(|until| until <= self.wall) {
            job.holds = None;
        }
    }

    fn arrive(&mut self, at: usize) {
        self.jobs[at].state = State::Blocked;
        match self.jobs[at].group.clone() {
            None => self.place(at),
            Some(group) => self.choose_lead(self.jobs[at].queue, &group),
        }
    }

    /// Where the jobs of a group are that haven't finished, in order.
    fn live(&self, queue: usize, group: &str) -> Vec<usize> {
        (0..self.jobs.len())
            .filter(|at| {
                let job = &self.jobs[*at];
                job.queue == queue && job.group.as_deref() == Some(group) && !job.is_finished()
            })
            .collect()
    }

    fn choose_lead(&mut self, queue: usize, group: &str) {
        let live = self.live(queue, group);
        let Some(lead) = live.first() else {
            self.served.remove(&(queue, group.to_owned()));
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
            let served = self.served.get(&(job.queue, group.clone()));
            job.since = job.own.max(served.copied().unwrap_or(0));
        }
    }

    /// Where a job goes that leads its group: the group's place in line stays with the group.
    fn leave_turn(&mut self, at: usize) {
        let job = &self.jobs[at];
        if let (Some(group), State::Ready) = (&job.group, job.state) {
            self.served.insert((job.queue, group.clone()), job.since);
        }
    }

    /// Due though nobody has promoted it yet: it is shown as ready.
    pub(crate) fn is_due(&self, job: &Job) -> bool {
        job.state == State::Delayed && job.due.is_some_and(|due| due <= self.wall)
    }

    fn sorted<K: Ord>(&self, queue: usize, of: impl Fn(&Job) -> Option<K>) -> Vec<usize> {
        let mut found: Vec<_> = (0..self.jobs.len())
            .filter(|at| self.jobs[*at].queue == queue)
            .filter_map(|at| of(&self.jobs[at]).map(|key| (key, self.jobs[at].id, at)))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(_, _, at)| at).collect()
    }

    /// The ids of the jobs of a state in the order of a list.
    pub(crate) fn list(&self, queue: usize, state: State) -> Vec<i64> {
        let mut found = self.sorted(queue, |job| {
            (job.state == state).then_some(match state {
                State::Ready => (-job.priority, job.since),
                State::Delayed => (0, job.own),
                State::Acked | State::Failed => (0, job.finished),
                State::Blocked | State::Processing => (0, 0),
            })
        });
        if matches!(state, State::Acked | State::Failed) {
            found.reverse();
        }
        found.into_iter().map(|at| self.jobs[at].id).collect()
    }

    /// How many jobs are ready, delayed, blocked, processing, acked, failed, as they are shown.
    pub(crate) fn counts(&self, queue: usize) -> [i64; 6] {
        let mut counts = [0; 6];
        for job in self.jobs.iter().filter(|job| job.queue == queue) {
            let shown = if self.is_due(job) { State::Ready } else { job.state };
            counts[usize::try_from(shown as i64).unwrap_or(0)] += 1;
        }
        counts
    }

    /// How many dead letters something went wrong with.
    pub(crate) fn failures(&self, queue: usize) -> usize {
        let is_one = |job: &&Job| {
            job.queue == queue
                && job.state == State::Failed
                && !matches!(job.reason, Some("cancelled" | "discarded"))
        };
        self.jobs.iter().filter(is_one).count()
    }
}
