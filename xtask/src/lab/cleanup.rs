//! Actions that run exactly once: when their guard is dropped, or when the process is interrupted.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, Once, PoisonError},
    thread,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

type Action = Box<dyn FnOnce() + Send>;

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { next: 0, actions: BTreeMap::new() });

struct Registry {
    next: u64,
    actions: BTreeMap<u64, Action>,
}

/// A registered clean-up action.
///
/// Actions run under one lock, so an interrupt can neither cut one short nor run it twice; therefore an
/// action must not create or drop a `Cleanup` itself. Register it *before* making what it takes away.
pub struct Cleanup {
    id: u64,
}

// === impl Cleanup ===

impl Cleanup {
    /// Registers an action; the first call starts the thread that waits for signals.
    ///
    /// # Panics
    /// If the signal handlers cannot be installed.
    pub fn new(action: impl FnOnce() + Send + 'static) -> Self {
        watch_signals();
        let mut registry = registry();
        let id = registry.next;
        registry.next += 1;
        registry.actions.insert(id, Box::new(action));
        Self { id }
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        let mut registry = registry();
        if let Some(action) = registry.actions.remove(&self.id) {
            action();
        }
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cleanup").field("id", &self.id).finish()
    }
}

fn registry() -> MutexGuard<'static, Registry> {
    // A panicking action has been removed before it ran, so the map is whole.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch_signals() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).expect("signal handlers can be installed");
        thread::spawn(move || {
            let signal = signals.forever().next().unwrap_or(SIGTERM);
            // Held until the process is gone: nothing new can be registered, and a guard dropped by
            // another thread waits instead of ending the process half way.
            let mut registry = registry();
            while let Some((_, action)) = registry.actions.pop_last() {
                action();
            }
            emulate_default_handler(signal).expect("the default action of a signal ends the process");
        });
    });
}
