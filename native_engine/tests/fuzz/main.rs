//! Sequences of operations, made up by proptest: the engine does what the model does.
//!
//! Sequences that failed once are kept in `main.regressions` and tried first.

#[path = "../common/mod.rs"]
mod common;
mod model;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use common::{options, settle};
use model::{Bucket, MAX_RETRIES, Model, Put};
use native_engine::engine::{
    Applied, Claim, Delivery, Durability, Filter, Finished, LeaseLoss, Limits, ManualClock,
    Message, Options, Source, State, Store, Verb,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use steps::{Deed, Step, Wanted, Whom, rate, step};

const START: i64 = 1_700_000_000_000_000;
const LEASE: i64 = 1_000_000;
const QUEUES: [&str; 2] = ["q", "r"];
const LISTED: [State; 5] =
    [State::Ready, State::Delayed, State::Blocked, State::Acked, State::Failed];

/// The time between two deliveries, and how many at once; None for any.
type Rate = Option<(i64, i64)>;

struct Run {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    model: Model,
    rates: [Rate; 2],
    /// Deliveries so far, each with its queue.
    given: Vec<(usize, Delivery)>,
    /// The wall clock went back: what is pruned once isn't looked at again at once.
    stepped: bool,
}

impl Run {
    fn new(rates: [Rate; 2]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let store = Store::open(Some(folder.path()), fast(&clock), &()).unwrap();
        for queue in QUEUES {
            store.set_paused(queue, false, &()).unwrap();
        }
        let buckets = rates.map(|rate| rate.map(|(interval, burst)| Bucket::full(interval, burst)));
        let model = Model::new(START, LEASE, buckets);
        Self { folder, clock, store, model, rates, given: Vec::new(), stepped: false }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(queue, puts) => self.put(*queue, puts),
            Step::PutOne(queue, payload) => {
                let put = Put { payload: payload.clone(), ..Put::default() };
                let id = self.store.put_one(QUEUES[*queue], payload, &()).unwrap();
                assert_eq!(id, self.model.put(*queue, &put).0);
            }
            Step::Exchange(settles, wanted) => self.exchange(settles, wanted),
            Step::Progress(job, progress) => self.of_delivery(*job, |run, queue, job| {
                let receipt = (job.id, job.receipt);
                let store = &run.store;
                let told = store.progress(QUEUES[queue], receipt.0, receipt.1, progress, &());
                let right = run.model.progress((queue, receipt.0, receipt.1), progress);
                is_right(told.unwrap().0, &right);
            }),
            Step::Extend(job, micros) => self.of_delivery(*job, |run, queue, job| {
                let store = &run.store;
                let told = store.extend_lease(QUEUES[queue], job.id, job.receipt, *micros, &());
                is_right(told.unwrap().0, &run.model.extend((queue, job.id, job.receipt), *micros));
            }),
            Step::Edit(job, payload) => self.of_job(*job, |run, at, queue, id| {
                let done = run.store.edit(queue, id, payload, &()).unwrap();
                assert_eq!(done, Some(run.model.edit(at, payload)));
            }),
            Step::Retry(job) => self.of_job(*job, |run, at, queue, id| {
                let done = run.store.retry_failed(queue, id, &()).unwrap();
                assert_eq!(done, Some(run.model.retry(at)));
            }),
            Step::Cancel(job) => self.of_job(*job, |run, at, queue, id| {
                let done = run.store.cancel(queue, id, &()).unwrap();
                assert_eq!(done, Some(run.model.cancel(at)));
            }),
            Step::Act(Whom::One(job), deed) => self.act_on_one(*job, *deed),
            Step::Act(Whom::All(queue, state), deed) => self.act_on_all(*queue, *state, *deed),
            Step::Purge { queue, older, kind } => {
                let before = self.clock.now() - older;
                let kind = [Finished::Acked, Finished::Failed, Finished::Discarded][*kind];
                let done = self.store.purge(QUEUES[*queue], before, &[kind], None, &()).unwrap();
                assert_eq!(done, self.model.purge(*queue, before, kind));
            }
            Step::Prune(..) if self.stepped => {}
            Step::Prune(queue, retention) => {
                let done = self.store.prune(QUEUES[*queue], *retention, usize::MAX, &()).unwrap();
                assert_eq!(done, self.model.prune(*queue, *retention));
            }
            Step::Reclaim(queue) => {
                let done = self.store.reclaim(QUEUES[*queue], MAX_RETRIES, &()).unwrap();
                assert_eq!(done, self.model.reclaim(*queue, MAX_RETRIES, usize::MAX));
            }
            Step::Pause(queue, paused) => {
                self.store.set_paused(QUEUES[*queue], *paused, &()).unwrap();
                self.model.paused[*queue] = *paused;
            }
            Step::Advance(micros) => {
                self.clock.advance(*micros);
                self.model.advance(*micros);
            }
            Step::SetWall(micros) => {
                self.stepped |= *micros < 0;
                self.clock.step_wall(*micros);
                self.model.step_wall(*micros);
            }
            Step::Reopen => self.reopen(),
            Step::Reboot => {
                self.store.close();
                self.clock.reboot();
                self.model.reboot();
                self.reopen();
            }
        }
    }

    fn reopen(&mut self) {
        self.store.close();
        self.store = Store::open(Some(self.folder.path()), fast(&self.clock), &()).unwrap();
        self.model.reopen();
    }

    fn put(&mut self, queue: usize, puts: &[Put]) {
        let messages: Vec<Message> = puts
            .iter()
            .map(|put| Message {
                payload: &put.payload,
                job_id: put.name.as_deref(),
                group: put.group.as_deref(),
                priority: put.priority,
                delay: put.delay,
                once: put.once,
                expires: put.expires,
                unique_key: put.key.as_deref(),
                unique_for: put.key_for,
                retention: put.retention,
                max_retries: put.max_retries,
                ..Message::default()
            })
            .collect();
        let done = self.store.put(QUEUES[queue], &messages, &()).unwrap();
        for (put, done) in puts.iter().zip(done) {
            assert_eq!((done.id, done.created), self.model.put(queue, put));
        }
    }

    fn exchange(&mut self, settles: &[(usize, Verb, i64)], wanted: &Wanted) {
        let mut settlements = Vec::new();
        let mut right = Vec::new();
        for (number, verb, delay) in settles.iter().filter(|_| !self.given.is_empty()) {
            let (queue, job) = &self.given[number % self.given.len()];
            let mut settlement = settle(job, *verb);
            QUEUES[*queue].clone_into(&mut settlement.queue);
            (settlement.delay, settlement.max_retries) = (*delay, wanted.max_retries);
            settlements.push(settlement);
            let delivery = (*queue, job.id, job.receipt);
            right.push(self.model.settle(delivery, *verb, *delay, wanted.max_retries));
        }
        let sources: Vec<Source> = wanted
            .sources
            .iter()
            .map(|queue| {
                let rate = self.rates[*queue].filter(|_| wanted.rated);
                let (interval, burst) = rate.unwrap_or((0, 1));
                Source {
                    queue: QUEUES[*queue].to_owned(),
                    lease: LEASE,
                    max_retries: wanted.max_retries,
                    limits: (rate.is_some() || wanted.most.is_some()).then_some(Limits {
                        max_running: wanted.most,
                        interval,
                        burst,
                    }),
                }
            })
            .collect();
        let claim = Claim {
            want: wanted.want,
            sources: &sources,
            round_robin: wanted.round_robin,
            min_priority: wanted.floor,
            worker: "w",
        };
        let zero = Some(Duration::ZERO);
        let (told, jobs) = self.store.exchange(&settlements, &claim, zero, &()).unwrap();
        assert_eq!(told.len(), right.len());
        for (told, right) in told.iter().zip(&right) {
            is_right(*told, right);
        }
        let line = self.model.claim(wanted);
        let expected: Vec<i64> = line.iter().map(|at| self.model.jobs[*at].id).collect();
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), expected);
        for (at, job) in line.into_iter().zip(jobs) {
            let known = &mut self.model.jobs[at];
            assert_eq!(
                (known.queue, &known.payload, known.attempts),
                (wanted.sources[job.source], &job.payload, job.attempts)
            );
            let is_new = self.given.iter().all(|(_, other)| other.receipt != job.receipt);
            assert!(is_new, "a receipt twice");
            known.given.last_mut().unwrap().receipt = job.receipt;
            self.given.push((known.queue, job));
        }
    }

    fn act_on_one(&mut self, number: usize, deed: Deed) {
        self.of_job(number, |run, at, queue, id| {
            let suits = deed.suits();
            let job = &run.model.jobs[at];
            let state = if suits.contains(&job.state) { job.state } else { suits[0] };
            let filter = Filter { ids: Some(vec![id.to_owned()]), ..Filter::of(state) };
            let action = deed.action(job.queue);
            let applied = run.store.apply(queue, &action, &filter, i64::MAX, 1, &()).unwrap();
            let done = usize::from(run.model.act(at, deed));
            assert_eq!(applied, Applied { done, changed: 1 - done, ..Applied::default() });
        });
    }

    fn act_on_all(&mut self, queue: usize, state: usize, deed: Deed) {
        let state = deed.suits()[state % deed.suits().len()];
        let action = deed.action(queue);
        let filter = Filter::of(state);
        let store = &self.store;
        let applied = store.apply(QUEUES[queue], &action, &filter, i64::MAX, usize::MAX, &());
        let mut done = 0;
        for id in self.model.list(queue, state) {
            let at = self.model.position(id).unwrap();
            done += usize::from(self.model.act(at, deed));
        }
        assert_eq!(applied.unwrap(), Applied { done, ..Applied::default() });
    }

    fn of_delivery(&mut self, number: usize, check: impl FnOnce(&mut Self, usize, &Delivery)) {
        if !self.given.is_empty() {
            let (queue, job) = self.given[number % self.given.len()].clone();
            check(self, queue, &job);
        }
    }

    fn of_job(&mut self, number: usize, act: impl FnOnce(&mut Self, usize, &str, &str)) {
        if !self.model.jobs.is_empty() {
            let at = number % self.model.jobs.len();
            let job = &self.model.jobs[at];
            let (queue, id) = (QUEUES[job.queue], job.public_id());
            act(self, at, queue, &id);
        }
    }

    fn check(&self) {
        for (queue, name) in QUEUES.into_iter().enumerate() {
            let stats = self.store.stats(name, &()).unwrap();
            let [ready, delayed, blocked, processing, acked, failed] = self.model.counts(queue);
            let told = (
                stats.ready,
                stats.delayed,
                stats.blocked,
                stats.processing,
                stats.acked,
                stats.failed,
            );
            let right = (ready + delayed + blocked, delayed, blocked, processing, acked, failed);
            assert_eq!(told, right, "the counts of {name}");
        }
    }

    fn check_jobs(&self) {
        for job in &self.model.jobs {
            let record = self.store.lookup(QUEUES[job.queue], &job.public_id(), &()).unwrap();
            let record = record.unwrap();
            let shown = if self.model.is_due(job) { State::Ready } else { job.state };
            assert_eq!(
                (record.state, record.attempts, record.reason.as_deref(), &record.payload),
                (shown, job.attempts, job.reason, &job.payload),
            );
            assert_eq!(record.progress, job.progress);
            let time = if job.state == State::Ready { record.since } else { record.at };
            assert_eq!(job.time().unwrap_or(time), time, "the time of {job:?}");
        }
    }

    fn check_lists(&self) {
        for (queue, name) in QUEUES.into_iter().enumerate() {
            for state in LISTED {
                let page = self.store.list(name, &Filter::of(state), 1_000, None, &()).unwrap();
                let told: Vec<i64> = page.records.iter().map(|record| record.id).collect();
                assert_eq!(told, self.model.list(queue, state), "{state:?} in {name}");
            }
            let failures = self.store.failures(name, 1_000, None, &()).unwrap();
            let total: i64 = failures.iter().map(|group| group.total).sum();
            assert_eq!(
                usize::try_from(total),
                Ok(self.model.failures(queue)),
                "failures of {name}"
            );
        }
    }
}

fn is_right(told: Option<LeaseLoss>, right: &[Option<LeaseLoss>]) {
    assert!(right.contains(&told), "told {told:?}, and right is {right:?}");
}

fn fast(clock: &Arc<ManualClock>) -> Options {
    Options { durability: Durability::Normal, ..options(clock) }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(128),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_engine_does_what_the_model_does(
        rates in [rate(), rate()],
        steps in vec(step(), 1..60),
    ) {
        let mut run = Run::new(rates);
        for step in &steps {
            run.step(step);
            run.check();
        }
        run.check_jobs();
        run.check_lists();
    }
}
