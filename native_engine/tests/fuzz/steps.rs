//! What may happen to a store, made up by proptest.

use native_engine::engine::{Action, State, Verb};
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;

use crate::model::{MAX_RETRIES, Put};
use crate::{LEASE, QUEUES};

/// From which queues a claim may be, in order.
const SOURCES: &[&[usize]] = &[&[0], &[1], &[0, 1], &[1, 0]];

/// One thing that happens. A queue is its place in [`QUEUES`]; a `usize` picks a job or a delivery.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Put(usize, Vec<Put>),
    PutOne(usize, Vec<u8>),
    /// Several verbs on deliveries given so far, and a claim, in one transaction.
    Exchange(Vec<(usize, Verb, i64)>, Wanted),
    Extend(usize, i64),
    Progress(usize, Vec<u8>),
    Edit(usize, Vec<u8>),
    Retry(usize),
    Cancel(usize),
    Act(Whom, Deed),
    Purge {
        queue: usize,
        older: i64,
        kind: usize,
    },
    /// With the retention of the queue.
    Prune(usize, Option<i64>),
    Reclaim(usize),
    Pause(usize, bool),
    Advance(i64),
    SetWall(i64),
    Reopen,
    Reboot,
}

/// A claim.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) want: usize,
    pub(crate) sources: &'static [usize],
    pub(crate) round_robin: bool,
    pub(crate) floor: i64,
    /// The `max_running` of every source.
    pub(crate) most: Option<i64>,
    /// The `max_retries` of every source, and of the queues that are settled in.
    pub(crate) max_retries: i64,
    /// Whether the rates of the queues are kept: another handle may have none.
    pub(crate) rated: bool,
}

/// Whose jobs an action is for.
#[derive(Debug, Clone)]
pub(crate) enum Whom {
    One(usize),
    /// All of a queue in one of the states that suit the action.
    All(usize, usize),
}

/// What `apply` does; a move goes to the other queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Deed {
    Retry,
    RunNow,
    Delay(i64),
    Move,
    Cancel,
    Discard,
    Purge,
}

impl Deed {
    pub(crate) fn action(self, queue: usize) -> Action {
        match self {
            Self::Retry => Action::Retry,
            Self::RunNow => Action::RunNow,
            Self::Delay(micros) => Action::Delay(micros),
            Self::Move => Action::Move(QUEUES[1 - queue].to_owned()),
            Self::Cancel => Action::Cancel,
            Self::Discard => Action::Discard,
            Self::Purge => Action::Purge,
        }
    }

    /// The states of the jobs that it is for.
    pub(crate) fn suits(self) -> &'static [State] {
        use State::{Acked, Blocked, Delayed, Failed, Processing, Ready};
        match self {
            Self::Retry => &[Failed],
            Self::RunNow => &[Delayed],
            Self::Delay(_) => &[Ready, Delayed],
            Self::Move | Self::Discard => &[Ready, Delayed, Blocked, Failed],
            Self::Cancel => &[Ready, Delayed, Blocked, Processing],
            Self::Purge => &[Acked, Failed],
        }
    }
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
        weighted(0.3, 0_i64..4),
    );
    (payload, name, group, of(-100_i64..=100), delay, options).prop_map(
        |(
            payload,
            name,
            group,
            priority,
            delay,
            (once, expires, key, key_for, retention, max_retries),
        )| Put {
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
            max_retries,
        },
    )
}

fn verb() -> impl Strategy<Value = Verb> {
    prop_oneof![Just(Verb::Ack), Just(Verb::Nack), Just(Verb::Fail), Just(Verb::Release)]
}

fn wanted(want: std::ops::Range<usize>) -> impl Strategy<Value = Wanted> {
    (
        want,
        proptest::sample::select(SOURCES),
        any::<bool>(),
        prop_oneof![3 => Just(-100_i64), 1 => -100_i64..=100],
        weighted(0.2, 1_i64..4),
        prop_oneof![3 => Just(MAX_RETRIES), 1 => 0_i64..4],
        any::<bool>(),
    )
        .prop_map(|(want, sources, round_robin, floor, most, max_retries, rated)| Wanted {
            want,
            sources,
            round_robin,
            floor,
            most,
            max_retries,
            rated,
        })
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        2 => Just(Deed::Retry),
        2 => Just(Deed::RunNow),
        2 => (1..3 * LEASE).prop_map(Deed::Delay),
        6 => Just(Deed::Move),
        1 => Just(Deed::Cancel),
        1 => Just(Deed::Discard),
        1 => Just(Deed::Purge),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let queue = || prop_oneof![3 => Just(0_usize), 1 => Just(1_usize)];
    let one = any::<usize>;
    let settles = vec((one(), verb(), prop_oneof![2 => Just(0), 1 => 1..2 * LEASE]), 1..4);
    let short = || vec(any::<u8>(), 0..20);
    let whom = prop_oneof![
        3 => one().prop_map(Whom::One),
        1 => (queue(), one()).prop_map(|(queue, state)| Whom::All(queue, state)),
    ];
    let day = 86_400_000_000_i64;
    prop_oneof![
        6 => (queue(), vec(put(), 1..4)).prop_map(|(queue, puts)| Step::Put(queue, puts)),
        2 => (queue(), short()).prop_map(|(queue, payload)| Step::PutOne(queue, payload)),
        6 => wanted(1..4).prop_map(|wanted| Step::Exchange(Vec::new(), wanted)),
        8 => (settles, wanted(0..3)).prop_map(|(settles, wanted)| Step::Exchange(settles, wanted)),
        2 => (one(), 1..5 * LEASE).prop_map(|(job, micros)| Step::Extend(job, micros)),
        1 => (one(), short()).prop_map(|(job, progress)| Step::Progress(job, progress)),
        1 => (one(), short()).prop_map(|(job, payload)| Step::Edit(job, payload)),
        1 => one().prop_map(Step::Retry),
        1 => one().prop_map(Step::Cancel),
        6 => (whom, deed()).prop_map(|(whom, deed)| Step::Act(whom, deed)),
        1 => (queue(), 0..3 * LEASE, 0_usize..3)
            .prop_map(|(queue, older, kind)| Step::Purge { queue, older, kind }),
        1 => (queue(), of(1..3 * LEASE))
            .prop_map(|(queue, retention)| Step::Prune(queue, retention)),
        1 => queue().prop_map(Step::Reclaim),
        1 => (queue(), any::<bool>()).prop_map(|(queue, paused)| Step::Pause(queue, paused)),
        4 => (1..LEASE * 3 / 2).prop_map(Step::Advance),
        1 => prop_oneof![Just(day), Just(-day), -LEASE..LEASE].prop_map(Step::SetWall),
        1 => Just(Step::Reopen),
        1 => Just(Step::Reboot),
    ]
}

/// The rate of a queue, if it has one: the time between two deliveries, and how many at once.
pub(crate) fn rate() -> impl Strategy<Value = Option<(i64, i64)>> {
    weighted(0.6, (1..LEASE, 1_i64..4))
}
