//! What happens, for those who listen and for those who ask afterwards.
//!
//! Memory is bounded: the last [`KEPT`] sampled packets and as many other events are kept, so that a flood of
//! the former does not wash out the latter; a listener that falls behind by 1024 events loses the oldest
//! and is told how many.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use futures_util::{Stream, stream};
use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};

use super::schema::{Event, What};

/// Events of either kind that are kept.
pub const KEPT: usize = 1024;

/// Events that a listener may be behind.
const QUEUE: usize = 1024;

/// The events of one daemon.
#[derive(Debug)]
pub struct Log(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The number of the next event. The first is the microseconds of its start since 1970, so that numbers
    /// grow from one daemon to the next: none has a million events a second.
    next: u64,
    /// Numbers of this daemon begin here.
    first: u64,
    samples: VecDeque<Arc<Event>>,
    others: VecDeque<Arc<Event>>,
    /// `None`: the daemon ends, and so does all listening.
    listeners: Option<broadcast::Sender<Arc<Event>>>,
}

// === impl Log ===

impl Log {
    /// Of a daemon that starts now.
    pub fn new(now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let first = u64::try_from(since.as_micros()).unwrap_or(0);
        Self(Mutex::new(State {
            next: first,
            first,
            samples: VecDeque::new(),
            others: VecDeque::new(),
            listeners: Some(broadcast::Sender::new(QUEUE)),
        }))
    }

    /// Keeps an event and tells every listener.
    pub fn publish(&self, now: SystemTime, what: What) {
        let mut state = self.0.lock();
        let event = Arc::new(Event { id: state.next, time: now, what });
        state.next += 1;
        let kept = match event.what {
            What::Shed(_) | What::SamplesLost { .. } => &mut state.samples,
            _ => &mut state.others,
        };
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&event));
        if let Some(listeners) = &state.listeners {
            // Nobody need listen.
            let _ = listeners.send(event);
        }
    }

    /// The last `limit` events, the newest last.
    pub fn recent(&self, limit: usize) -> Vec<Event> {
        let mut events = self.0.lock().after(0);
        events.drain(..events.len().saturating_sub(limit));
        events.into_iter().map(Arc::unwrap_or_clone).collect()
    }

    /// Events from now on, or from the one after number `after` on as far as they are kept. Ends when
    /// [`Self::close`] is called.
    pub fn listen(&self, after: Option<u64>) -> impl Stream<Item = Arc<Event>> + Send + use<> {
        let state = self.0.lock();
        let mut missed = VecDeque::new();
        if let Some(after) = after {
            let kept = state.after(after);
            // Numbers of an earlier daemon are before all of this one.
            let due = state.next.saturating_sub(after.saturating_add(1).max(state.first));
            let lost_count = due.saturating_sub(kept.len() as u64);
            if lost_count > 0 {
                missed.push_back(Arc::new(lost(after, lost_count)));
            }
            missed.extend(kept);
        }
        let receiver = state.listeners.as_ref().map(broadcast::Sender::subscribe);
        let last = state.next.saturating_sub(1);
        stream::unfold((missed, receiver, last), |(mut missed, mut receiver, last)| async move {
            if let Some(event) = missed.pop_front() {
                return Some((event, (missed, receiver, last)));
            }
            match receiver.as_mut()?.recv().await {
                Ok(event) => {
                    let last = event.id;
                    Some((event, (missed, receiver, last)))
                }
                Err(RecvError::Lagged(count)) => {
                    let last = last + count;
                    Some((Arc::new(lost(last, count)), (missed, receiver, last)))
                }
                Err(RecvError::Closed) => None,
            }
        })
    }

    /// Ends all listening.
    pub fn close(&self) {
        self.0.lock().listeners = None;
    }
}

// === impl State ===

impl State {
    /// Every kept event with a number above `after`, in order.
    fn after(&self, after: u64) -> Vec<Arc<Event>> {
        let newer = |events: &VecDeque<Arc<Event>>| {
            let from = events.partition_point(|event| event.id <= after);
            events.range(from..).cloned().collect::<Vec<_>>()
        };
        let mut events = newer(&self.samples);
        events.extend(newer(&self.others));
        events.sort_unstable_by_key(|event| event.id);
        events
    }
}

/// Says that a listener has not got `count` events. Who listens again from number `id` on gets those after
/// them.
fn lost(id: u64, count: u64) -> Event {
    Event { id, time: SystemTime::now(), what: What::Lost { count } }
}

#[cfg(test)]
mod tests;
