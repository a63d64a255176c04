//! The honest client: one new connection a request, at a fixed pace.
//!
//! The pace does not wait for answers. A client that did would ask less often the worse it is served,
//! and its figures would hide exactly what they are to show.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::server::PAGE_LENGTH;
use crate::lab::{Namespace, pin_thread};

/// Requests a second.
pub(super) const RATE: u32 = 20;
/// A request without a whole answer by then has failed.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 ";

/// A client at work.
#[derive(Debug)]
pub(super) struct Client {
    stop: Arc<AtomicBool>,
    results: Results,
    thread: JoinHandle<()>,
}

/// What it experienced.
#[derive(Clone, Debug, Default)]
pub(super) struct Experience {
    /// One entry a request, sorted; [`TIMEOUT`] for each that failed.
    latencies: Vec<Duration>,
    answered: usize,
}

type Results = Arc<Mutex<Vec<Option<Duration>>>>;

// === impl Client ===

impl Client {
    /// Starts asking from inside the namespace.
    pub(super) fn start(namespace: &Namespace, address: SocketAddr, cpu: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let results = Results::default();
        let thread = namespace
            .spawn({
                let (stop, results) = (Arc::clone(&stop), Arc::clone(&results));
                move || {
                    pin_thread(cpu).expect("the CPU was there a moment ago");
                    ask_at_pace(address, &stop, &results);
                }
            })
            .context("failed to start the client")?;
        Ok(Self { stop, results, thread })
    }

    /// What it experienced so far.
    pub(super) fn experience(&self) -> Experience {
        Experience::new(&lock(&self.results))
    }

    /// Stops asking, and waits for the answers that are still due.
    pub(super) fn finish(self) -> Experience {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the client does not panic");
        Experience::new(&lock(&self.results))
    }
}

// === impl Experience ===

impl Experience {
    fn new(results: &[Option<Duration>]) -> Self {
        let mut latencies: Vec<_> = results.iter().map(|result| result.unwrap_or(TIMEOUT)).collect();
        latencies.sort_unstable();
        Self { latencies, answered: results.iter().flatten().count() }
    }

    /// Requests with an outcome.
    pub(super) fn requests(&self) -> usize {
        self.latencies.len()
    }

    /// Requests answered in time.
    pub(super) fn answered(&self) -> usize {
        self.answered
    }

    /// Share of the requests that were answered in time; none without requests.
    pub(super) fn success_percent(&self) -> usize {
        (self.answered * 100).checked_div(self.requests()).unwrap_or(0)
    }

    /// The latency that `percent` of the requests do not exceed (nearest rank).
    pub(super) fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.latencies.len() * percent).div_ceil(100).max(1);
        self.latencies.get(rank - 1).copied()
    }
}

fn ask_at_pace(address: SocketAddr, stop: &AtomicBool, results: &Results) {
    let begin = Instant::now();
    let mut requests = Vec::new();
    for number in 0.. {
        let due = Duration::from_secs(1) * number / RATE;
        thread::sleep(due.saturating_sub(begin.elapsed()));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let results = Arc::clone(results);
        requests.push(thread::spawn(move || {
            let result = ask(address);
            lock(&results).push(result);
        }));
    }
    for request in requests {
        request.join().expect("a request does not panic");
    }
}

/// One request; how long the whole of it took, if it was answered in time.
fn ask(address: SocketAddr) -> Option<Duration> {
    let begin = Instant::now();
    let left = || TIMEOUT.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
    stream.write_all(REQUEST).ok()?;
    let mut answer = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        stream.set_read_timeout(Some(left()?)).ok()?;
        match stream.read(&mut buffer).ok()? {
            0 => break,
            length => answer.extend_from_slice(&buffer[..length]),
        }
    }
    let whole = answer.starts_with(ANSWER) && answer.len() > PAGE_LENGTH;
    (whole && left().is_some()).then(|| begin.elapsed())
}

fn lock(results: &Results) -> MutexGuard<'_, Vec<Option<Duration>>> {
    results.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_request_counts_as_one_that_took_the_whole_timeout() {
        let mut results = vec![Some(Duration::from_millis(1)); 98];
        results.extend([None, None]);
        let experience = Experience::new(&results);
        assert_eq!((experience.requests(), experience.answered()), (100, 98));
        assert_eq!(experience.success_percent(), 98);
        assert_eq!(experience.percentile(50), Some(Duration::from_millis(1)));
        assert_eq!(experience.percentile(98), Some(Duration::from_millis(1)));
        assert_eq!(experience.percentile(99), Some(TIMEOUT));
    }

    #[test]
    fn no_requests_are_no_success() {
        let experience = Experience::default();
        assert_eq!(experience.success_percent(), 0);
        assert_eq!(experience.percentile(50), None);
    }
}
