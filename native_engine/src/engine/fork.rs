//! Fork: a child must not inherit open connections.
//!
//! SQLite keeps a table of open files in memory, locks included; a child that
//! inherits it would take its parent's locks for its own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use super::store::{Store, lock};

/// The stores of this process.
fn registry() -> &'static Mutex<Vec<Weak<Store>>> {
    static STORES: OnceLock<Mutex<Vec<Weak<Store>>>> = OnceLock::new();
    STORES.get_or_init(Mutex::default)
}

/// Between `before_fork` and `after_fork`, when no connection may be opened.
pub(super) static FORKING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Held from before a fork until after it, so that the child doesn't inherit it locked.
    static REGISTRY_HELD: RefCell<Option<MutexGuard<'static, Vec<Weak<Store>>>>> = const { RefCell::new(None) };
}

/// Call before this thread forks: closes the connections of every store on a file.
///
/// They reopen by themselves.
pub fn before_fork() {
    let stores = lock(registry());
    FORKING.store(true, Ordering::SeqCst);
    for store in stores.iter().filter_map(Weak::upgrade).filter(|store| store.path.is_some()) {
        store.drop_connections();
    }
    failpoint!("fork.closed");
    REGISTRY_HELD.set(Some(stores));
}

/// Call after the fork, in parent and child. The child must open stores of its own.
pub fn after_fork() {
    FORKING.store(false, Ordering::SeqCst);
    REGISTRY_HELD.set(None);
}

/// Notes a new store.
pub(super) fn register(store: &Arc<Store>) {
    let mut stores = lock(registry());
    stores.retain(|store| store.strong_count() > 0);
    stores.push(Arc::downgrade(store));
}
