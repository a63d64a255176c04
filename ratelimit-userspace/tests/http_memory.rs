//! What a counter costs in memory, by count of every byte that is allocated.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ratelimit::{
    config::http::{
        Access, Algorithm, Align, Answer, ClientAddress, Compatibility, Descriptor as Node, Domain, Http,
        Limit, OnFull, Rule, ValuePattern, Window,
    },
    http::{
        ask::{Ask, Descriptor, Entry, Whose},
        clock::Now,
        limiter::Limiter,
    },
};

/// The allocator of the system, and how much of it is in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How often this thread has allocated.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the allocator of the system with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const START: u64 = 1_700_000_000_000_000_000;
const HOUR: u64 = 3_600_000_000_000;

fn limit(algorithm: Algorithm) -> Limit {
    Limit {
        units: 10,
        window: Window::Fixed(HOUR.try_into().unwrap()),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    }
}

fn rule(key: &str, algorithm: Algorithm) -> Node {
    let rule = Rule {
        name: None,
        limit: Some(Arc::new(limit(algorithm))),
        shadow: false,
        quota: false,
        replaces: vec![],
        cost: 1,
        overrides: vec![],
        escalate: None,
    };
    Node {
        key: key.to_owned(),
        value: ValuePattern::Any,
        share_threshold: false,
        rule: Some(rule),
        descriptors: vec![],
        line: 1,
    }
}

fn limiter(max_keys: usize) -> Limiter {
    let domain = Domain {
        name: "d".to_owned(),
        file: PathBuf::from("d.yaml"),
        compatibility: Compatibility::Native,
        descriptors: vec![
            rule("bucket", Algorithm::TokenBucket { burst: 10, interval: false }),
            rule("window", Algorithm::SlidingWindow { round_up: false }),
        ],
    };
    let config = Http {
        listen: None,
        grpc_listen: None,
        rule_paths: vec![],
        domains: vec![domain],
        trusted_proxies: vec![],
        client_address: ClientAddress::Peer,
        max_keys,
        on_full: OnFull::Evict,
        identify: vec![],
        access: Access::default(),
        answer: Answer { x_ratelimit: true, retry_after: true, ietf: true, text: None },
        state_dir: None,
    };
    Limiter::new(&config, [7; 32])
}

/// One request of a client that was not there before. With a limit, it is its own.
fn newcomer(limiter: &Limiter, number: usize, limit: Option<Arc<Limit>>, now: Now) {
    let key = if number.is_multiple_of(2) { "bucket" } else { "window" };
    let entry = Entry { key: key.into(), value: number.to_string().into() };
    let descriptor = Descriptor { entries: vec![entry], hits: 1, limit };
    limiter.admit(
        &Ask { domain: "d".into(), descriptors: vec![descriptor], peek: false, whose: Whose::Described },
        now,
    );
}

#[test]
fn a_counter_of_a_bucket_or_window_takes_at_most_64_bytes() {
    let before = IN_USE.load(Ordering::Relaxed);
    let limiter = limiter(1_000_000);
    let per_key = || {
        let keys = limiter.stats().keys;
        ((IN_USE.load(Ordering::Relaxed) - before).div_ceil(keys), keys)
    };
    for number in 0..1_000_000 {
        newcomer(&limiter, number, None, Now::at(START));
        if number >= 200_000 && number.is_multiple_of(10_007) {
            let (bytes, keys) = per_key();
            assert!(bytes <= 64, "{bytes} bytes a key with {keys} keys");
        }
    }
    assert!(per_key().0 <= 64 && per_key().1 == 1_000_000, "{:?}", per_key());

    // Full for some time, and then empty.
    for number in 1_000_000..1_100_000 {
        newcomer(&limiter, number, None, Now::at(START));
    }
    assert!(per_key().0 <= 64 && per_key().1 == 1_000_000, "{:?}", per_key());
    let left = |later: u64| {
        for _ in 0..200 {
            limiter.sweep(Now::at(START + later * HOUR));
        }
        assert_eq!(limiter.stats().keys, 0);
        IN_USE.load(Ordering::Relaxed) - before
    };
    assert!(left(2) < 1 << 20, "{} bytes are left", left(2));

    // The limits that askers send leave with their counters.
    let later = Now::at(START + 2 * HOUR);
    for number in 0..20_000 {
        newcomer(&limiter, number, Some(Arc::new(limit(Algorithm::FixedWindow))), later);
    }
    assert_eq!(limiter.stats().keys, 20_000);
    assert!(left(4) < 1 << 20, "{} bytes are left", left(4));
}

#[test]
fn deciding_allocates_no_more_than_the_answer_holds() {
    let limiter = limiter(1_000);
    let descriptor = |key: &'static str| {
        let entry = Entry { key: key.into(), value: "192.0.2.1".into() };
        Descriptor { entries: vec![entry], hits: 1, limit: None }
    };
    let ask = Ask {
        domain: "d".into(),
        descriptors: vec![descriptor("bucket"), descriptor("window")],
        peek: false,
        whose: Whose::Described,
    };
    let allocations = |decide: &dyn Fn()| {
        let before = ALLOCATIONS.get();
        decide();
        ALLOCATIONS.get() - before
    };
    limiter.admit(&ask, Now::at(START));
    // That passes, and that is denied.
    for _ in 0..20 {
        assert_eq!(allocations(&|| _ = limiter.admit(&ask, Now::at(START))), 0);
        assert_eq!(allocations(&|| _ = limiter.decide(&ask, Now::at(START))), 1, "the statuses");
    }
}
