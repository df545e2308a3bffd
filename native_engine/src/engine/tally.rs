//! Counts of jobs by queue and state, in the memory that the processes share.
//!
//! They are of one commit, which stands beside them: whoever reads them compares it with the
//! commit that a snapshot sees, so counts that missed something (their writer died, a
//! foreign program wrote, the file was restored) are never taken for right. They are sums of
//! what moved since some moment; what was there at that moment, the base, is found by counting
//! once. All is changed under the write lock and read without.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use super::wal_index::Commit;

/// The states of a job.
pub(super) const STATES: usize = 6;
/// Queues that are counted; further ones are counted row by row.
const QUEUES: usize = 512;
/// Tells this arrangement of the words from any other.
const LAYOUT: u64 = 0x4C51_0003;
/// What a file's identity has: device, inode, size, times of its content and its entry.
pub(super) type FileStamp = [u64; 5];

/// How many jobs of one queue are in each state.
pub(super) type Counts = [i64; STATES];

#[repr(C)]
pub(super) struct Tally {
    layout: AtomicU64,
    /// Odd while somebody changes the rest.
    version: AtomicU64,
    /// Changes whenever what moved can't be known, so every base is to be counted anew.
    epoch: AtomicU64,
    commit: [AtomicU64; 3],
    /// The database when its log was gone: closed by everybody.
    closed: [AtomicU64; 5],
    queues: [Slot; QUEUES],
}

#[repr(C)]
struct Slot {
    /// The epoch that `base` is of.
    epoch: AtomicU64,
    base: [AtomicI64; STATES],
    moved: [AtomicI64; STATES],
}

/// What is known of one queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) commit: Commit,
    pub(super) epoch: u64,
    base: Option<Counts>,
    pub(super) moved: Counts,
}

impl Known {
    /// How many jobs there are; None where nobody has counted yet.
    pub(super) fn counts(&self) -> Option<Counts> {
        let base = self.base?;
        Some(std::array::from_fn(|state| base[state] + self.moved[state]))
    }
}

impl Tally {
    /// An empty one, of which nothing is known.
    #[allow(clippy::large_stack_arrays, reason = "made once in a process, on its way to the heap")]
    pub(super) fn new() -> Self {
        Self {
            layout: AtomicU64::new(0),
            version: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            commit: [const { AtomicU64::new(0) }; 3],
            closed: [const { AtomicU64::new(0) }; 5],
            queues: [const {
                Slot {
                    epoch: AtomicU64::new(0),
                    base: [const { AtomicI64::new(0) }; STATES],
                    moved: [const { AtomicI64::new(0) }; STATES],
                }
            }; QUEUES],
        }
    }

    // ---- read by anybody

    /// The commit that the counts are of; None while they are being changed.
    pub(super) fn commit(&self) -> Option<Commit> {
        self.consistent(|| self.load_commit())
    }

    /// What is known of a queue; None while it is being changed or for one too many.
    pub(super) fn known(&self, queue: i64) -> Option<Known> {
        let slot = self.slot(queue)?;
        self.consistent(|| {
            let epoch = self.epoch.load(Ordering::Relaxed);
            let base = slot.epoch.load(Ordering::Relaxed) == epoch && epoch != 0;
            Known {
                commit: self.load_commit(),
                epoch,
                base: base.then(|| load(&slot.base)),
                moved: load(&slot.moved),
            }
        })
    }

    pub(super) fn has_room_for(&self, queue: i64) -> bool {
        self.slot(queue).is_some()
    }

    fn consistent<T>(&self, look: impl Fn() -> T) -> Option<T> {
        let version = self.version.load(Ordering::Acquire);
        if version % 2 == 1 || self.layout.load(Ordering::Relaxed) != LAYOUT {
            return None;
        }
        let found = look();
        fence(Ordering::Acquire);
        (self.version.load(Ordering::Relaxed) == version).then_some(found)
    }

    // ---- changed under the write lock

    /// Whether the counts are whole and of this commit.
    pub(super) fn is_of(&self, commit: Commit) -> bool {
        self.commit() == Some(commit)
    }

    /// Goes on from the commit before `commit` by what it moved.
    pub(super) fn advance(&self, commit: Commit, moves: &[(i64, Counts)]) {
        self.change(|| {
            for (queue, counts) in moves {
                if let Some(slot) = self.slot(*queue) {
                    for (word, moved) in slot.moved.iter().zip(counts) {
                        word.store(word.load(Ordering::Relaxed) + moved, Ordering::Relaxed);
                    }
                }
            }
            self.store_commit(commit);
        });
    }

    /// The counts are of this commit too: the same content.
    pub(super) fn rename(&self, commit: Commit) {
        self.change(|| self.store_commit(commit));
    }

    /// Begins anew at this commit: what moved before it isn't known.
    pub(super) fn restart(&self, commit: Commit) {
        self.change(|| {
            if self.layout.swap(LAYOUT, Ordering::Relaxed) != LAYOUT {
                for slot in &self.queues {
                    slot.epoch.store(0, Ordering::Relaxed);
                }
            }
            self.epoch.store(self.epoch.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            for slot in &self.queues {
                for word in &slot.moved {
                    word.store(0, Ordering::Relaxed);
                }
            }
            self.store_commit(commit);
        });
    }

    /// Notes what was counted, unless it was of another epoch.
    pub(super) fn set_base(&self, queue: i64, epoch: u64, base: Counts) {
        let Some(slot) = self.slot(queue) else { return };
        if self.epoch.load(Ordering::Relaxed) != epoch {
            return;
        }
        self.change(|| {
            for (word, count) in slot.base.iter().zip(base) {
                word.store(count, Ordering::Relaxed);
            }
            slot.epoch.store(epoch, Ordering::Relaxed);
        });
    }

    /// The database file as it was left by the last who closed it.
    pub(super) fn closed_as(&self) -> FileStamp {
        std::array::from_fn(|word| self.closed[word].load(Ordering::Relaxed))
    }

    pub(super) fn set_closed_as(&self, stamp: FileStamp) {
        for (word, value) in self.closed.iter().zip(stamp) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn change(&self, work: impl FnOnce()) {
        let odd = self.version.load(Ordering::Relaxed) | 1;
        self.version.store(odd, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        work();
        self.version.store(odd.wrapping_add(1), Ordering::Release);
    }

    fn load_commit(&self) -> Commit {
        let [counters, checksum, salt] = &self.commit;
        let counters = counters.load(Ordering::Relaxed);
        let half = |of: u64| u32::try_from(of & 0xFFFF_FFFF).unwrap_or(0);
        Commit {
            number: half(counters),
            frames: half(counters >> 32),
            checksum: checksum.load(Ordering::Relaxed),
            salt: salt.load(Ordering::Relaxed),
        }
    }

    fn store_commit(&self, commit: Commit) {
        let counters = u64::from(commit.frames) << 32 | u64::from(commit.number);
        for (word, value) in self.commit.iter().zip([counters, commit.checksum, commit.salt]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn slot(&self, queue: i64) -> Option<&Slot> {
        self.queues.get(usize::try_from(queue).ok()?.checked_sub(1)?)
    }
}

fn load(words: &[AtomicI64; STATES]) -> Counts {
    std::array::from_fn(|state| words[state].load(Ordering::Relaxed))
}
