//! Sequences of operations, made up by proptest: the engine does what the model does.
//!
//! A sequence that once failed is kept in `fuzz.regressions` and tried first.

mod common;
#[path = "common/model.rs"]
mod model;

use std::sync::Arc;
use std::time::Duration;

use common::{options, settle};
use model::{MAX_RETRIES, Model, Put};
use native_engine::engine::{
    Claim, Delivery, Durability, Finished, Limits, ManualClock, Message, Options, Source, State,
    Store, Verb,
};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const START: i64 = 1_700_000_000_000_000;
const LEASE: i64 = 1_000_000;

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<Put>),
    PutOne(Vec<u8>),
    Claim {
        want: usize,
        floor: i64,
        most: Option<usize>,
    },
    /// Several verbs on deliveries given so far, and a claim, in one transaction.
    Exchange {
        settles: Vec<(usize, Verb, i64)>,
        want: usize,
    },
    Extend(usize, i64),
    Progress(usize, Vec<u8>),
    Edit(usize, Vec<u8>),
    /// With the retention of the queue.
    Prune(Option<i64>),
    Retry(usize),
    Cancel(usize),
    Purge {
        older: i64,
        include_failed: bool,
    },
    Reclaim,
    Pause(bool),
    Advance(i64),
    SetWall(i64),
    Reopen,
    Reboot,
}

fn put() -> impl Strategy<Value = Put> {
    let payload = prop_oneof![4 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 4_000..9_000)];
    let name = weighted(0.4, prop_oneof![3 => "[ab]", 1 => any::<String>()]);
    let group = weighted(0.6, prop_oneof![4 => "[xyz]", 1 => any::<String>()]);
    let delay = weighted(0.2, 1..3 * LEASE);
    let options = (
        any::<bool>(),
        weighted(0.2, 0..2 * LEASE),
        weighted(0.3, prop_oneof![3 => "[kl]", 1 => any::<String>()]),
        prop_oneof![Just(0), 0..3 * LEASE],
        weighted(0.2, 1..3 * LEASE),
    );
    (payload, name, group, of(-100_i64..=100), delay, options).prop_map(
        |(payload, name, group, priority, delay, (once, expires, key, key_for, retention))| Put {
            payload,
            name,
            group,
            priority: priority.unwrap_or(0),
            delay: delay.unwrap_or(0),
            once,
            expires,
            key,
            key_for,
            retention,
        },
    )
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![Just(Verb::Ack), Just(Verb::Nack), Just(Verb::Fail), Just(Verb::Release)]
}

fn step() -> impl Strategy<Value = Step> {
    let settles = vec((any::<usize>(), verb(), prop_oneof![2 => Just(0), 1 => 1..2 * LEASE]), 1..4);
    let day = 86_400_000_000_i64;
    prop_oneof![
        6 => vec(put(), 1..4).prop_map(Step::Put),
        2 => vec(any::<u8>(), 0..20).prop_map(Step::PutOne),
        6 => (
            1_usize..4,
            prop_oneof![3 => Just(-100_i64), 1 => -100_i64..=100],
            weighted(0.2, 1_usize..4),
        )
            .prop_map(|(want, floor, most)| Step::Claim { want, floor, most }),
        8 => (settles, 0_usize..3).prop_map(|(settles, want)| Step::Exchange { settles, want }),
        2 => (any::<usize>(), 1..5 * LEASE).prop_map(|(job, micros)| Step::Extend(job, micros)),
        1 => (any::<usize>(), vec(any::<u8>(), 0..20))
            .prop_map(|(job, progress)| Step::Progress(job, progress)),
        1 => (any::<usize>(), vec(any::<u8>(), 0..20))
            .prop_map(|(job, payload)| Step::Edit(job, payload)),
        1 => of(1..3 * LEASE).prop_map(Step::Prune),
        2 => any::<usize>().prop_map(Step::Retry),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => (0..3 * LEASE, any::<bool>())
            .prop_map(|(older, include_failed)| Step::Purge { older, include_failed }),
        1 => Just(Step::Reclaim),
        1 => any::<bool>().prop_map(Step::Pause),
        4 => (1..LEASE * 3 / 2).prop_map(Step::Advance),
        1 => prop_oneof![Just(day), Just(-day), -LEASE..LEASE].prop_map(Step::SetWall),
        1 => Just(Step::Reopen),
        1 => Just(Step::Reboot),
    ]
}

struct Run {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    model: Model,
    given: Vec<Delivery>,
    /// The wall clock went back: what is pruned once isn't looked at again at once.
    stepped: bool,
}

impl Run {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let store = Store::open(Some(folder.path()), fast(&clock), &()).unwrap();
        Self {
            folder,
            clock,
            store,
            model: Model::new(START, LEASE),
            given: Vec::new(),
            stepped: false,
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(puts) => self.put(puts),
            Step::PutOne(payload) => {
                let put = Put { payload: payload.clone(), ..Put::default() };
                let id = self.store.put_one("q", payload, &()).unwrap();
                assert_eq!(id, self.model.put(&put).0);
            }
            Step::Claim { want, floor, most } => self.exchange(&[], *want, *floor, *most),
            Step::Exchange { settles, want } => self.exchange(settles, *want, -100, None),
            Step::Progress(job, progress) => self.progress(*job, progress),
            Step::Edit(job, payload) => self.of_job(*job, |run, at, id| {
                let done = run.store.edit("q", id, payload, &()).unwrap();
                assert_eq!(done, Some(run.model.edit(at, payload)));
            }),
            Step::Prune(_) if self.stepped => {}
            Step::Prune(retention) => {
                let done = self.store.prune("q", *retention, usize::MAX, &()).unwrap();
                assert_eq!(done, self.model.prune(*retention));
            }
            Step::Extend(job, micros) => self.extend(*job, *micros),
            Step::Retry(job) => self.of_job(*job, |run, at, id| {
                let done = run.store.retry_failed("q", id, &()).unwrap();
                assert_eq!(done, Some(run.model.retry(at)));
            }),
            Step::Cancel(job) => self.of_job(*job, |run, at, id| {
                let done = run.store.cancel("q", id, &()).unwrap();
                assert_eq!(done, Some(run.model.cancel(at)));
            }),
            Step::Purge { older, include_failed } => {
                let before = self.clock.now() - older;
                let states = [Finished::Acked, Finished::Failed];
                let states = if *include_failed { &states[..] } else { &states[..1] };
                let done = self.store.purge("q", before, states, None, &()).unwrap();
                assert_eq!(done, self.model.purge(before, *include_failed));
            }
            Step::Reclaim => {
                let done = self.store.reclaim("q", MAX_RETRIES, &()).unwrap();
                assert_eq!(done, self.model.reclaim(usize::MAX));
            }
            Step::Pause(paused) => {
                self.store.set_paused("q", *paused, &()).unwrap();
                self.model.paused = *paused;
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
    }

    fn put(&mut self, puts: &[Put]) {
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
                ..Message::default()
            })
            .collect();
        let done = self.store.put("q", &messages, &()).unwrap();
        for (put, done) in puts.iter().zip(done) {
            assert_eq!((done.id, done.created), self.model.put(put));
        }
    }

    fn exchange(
        &mut self,
        settles: &[(usize, Verb, i64)],
        want: usize,
        floor: i64,
        most: Option<usize>,
    ) {
        let mut settlements = Vec::new();
        let mut right = Vec::new();
        for (number, verb, delay) in settles.iter().filter(|_| !self.given.is_empty()) {
            let job = &self.given[number % self.given.len()];
            let mut settlement = settle(job, *verb);
            (settlement.delay, settlement.max_retries) = (*delay, MAX_RETRIES);
            settlements.push(settlement);
            right.push(self.model.settle(job.id, job.receipt, *verb, *delay));
        }
        let sources = [Source {
            queue: "q".to_owned(),
            lease: LEASE,
            max_retries: MAX_RETRIES,
            limits: most.map(|most| Limits {
                max_running: i64::try_from(most).ok(),
                interval: 0,
                burst: 1,
            }),
        }];
        let claim =
            Claim { want, sources: &sources, round_robin: false, min_priority: floor, worker: "w" };
        let zero = Some(Duration::ZERO);
        let (told, jobs) = self.store.exchange(&settlements, &claim, zero, &()).unwrap();
        assert_eq!(told.len(), right.len());
        for (told, right) in told.iter().zip(&right) {
            assert!(right.contains(told), "told {told:?}, and right is {right:?}");
        }
        let line = self.model.claim(want, floor, most);
        let expected: Vec<i64> = line.iter().map(|at| self.model.jobs[*at].id).collect();
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), expected);
        for (at, job) in line.into_iter().zip(jobs) {
            let known = &mut self.model.jobs[at];
            assert_eq!((&known.payload, known.attempts), (&job.payload, job.attempts));
            assert!(self.given.iter().all(|other| other.receipt != job.receipt), "a receipt twice");
            known.given.last_mut().unwrap().receipt = job.receipt;
            self.given.push(job);
        }
    }

    fn progress(&mut self, number: usize, progress: &[u8]) {
        if self.given.is_empty() {
            return;
        }
        let (id, receipt) = {
            let job = &self.given[number % self.given.len()];
            (job.id, job.receipt)
        };
        let (told, _) = self.store.progress("q", id, receipt, progress, &()).unwrap();
        let right = self.model.progress(id, receipt, progress);
        assert!(right.contains(&told), "told {told:?}, and right is {right:?}");
    }

    fn extend(&mut self, number: usize, micros: i64) {
        if self.given.is_empty() {
            return;
        }
        let (id, receipt) = {
            let job = &self.given[number % self.given.len()];
            (job.id, job.receipt)
        };
        let (told, _, _) = self.store.extend_lease("q", id, receipt, micros, &()).unwrap();
        let right = self.model.extend(id, receipt, micros);
        assert!(right.contains(&told), "told {told:?}, and right is {right:?}");
    }

    fn of_job(&mut self, number: usize, act: impl FnOnce(&mut Self, usize, &str)) {
        if self.model.jobs.is_empty() {
            return;
        }
        let at = number % self.model.jobs.len();
        let job = &self.model.jobs[at];
        let id = job.name.clone().unwrap_or_else(|| job.id.to_string());
        act(self, at, &id);
    }

    fn check(&self) {
        let stats = self.store.stats("q", &()).unwrap();
        let [ready, delayed, blocked, processing, acked, failed] = self.model.counts();
        let told = (
            stats.ready,
            stats.delayed,
            stats.blocked,
            stats.processing,
            stats.acked,
            stats.failed,
        );
        let right = (ready + delayed + blocked, delayed, blocked, processing, acked, failed);
        assert_eq!(told, right);
    }

    fn check_jobs(&self) {
        for job in &self.model.jobs {
            let id = job.name.clone().unwrap_or_else(|| job.id.to_string());
            let record = self.store.lookup("q", &id, &()).unwrap().unwrap();
            let shown = if self.model.is_due(job) { State::Ready } else { job.state };
            assert_eq!(
                (record.state, record.attempts, record.reason.as_deref(), &record.payload),
                (shown, job.attempts, job.reason, &job.payload),
            );
            assert_eq!(record.progress, job.progress);
        }
    }
}

fn fast(clock: &Arc<ManualClock>) -> Options {
    Options { durability: Durability::Normal, ..options(clock) }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(64),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_engine_does_what_the_model_does(steps in vec(step(), 1..60)) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            run.check();
        }
        run.check_jobs();
    }
}
