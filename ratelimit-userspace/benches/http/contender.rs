//! Limiters that are called in process, all by one interface.
//!
//! Each gets what is cheapest for it. Governor is keyed by one text of the whole descriptor, made before
//! the clock starts; limitador by a context made before. Ours is asked as its endpoints ask it: domain and
//! entries as texts that it borrows, on the clock that the daemon goes by.

use std::{borrow::Cow, num::NonZeroU32, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use governor::{DefaultKeyedRateLimiter, Quota};
use limitador::{
    RateLimiter,
    limit::{self, Namespace, Predicate},
};
use ratelimit::{
    config::http::{
        Access, Algorithm, Align, Answer, ClientAddress, Compatibility, Descriptor, Domain, Http, Limit,
        OnFull, Rule, ValuePattern, Window,
    },
    http::{
        ask::{self, Ask, Decision, Entry, Whose},
        clock::Clock,
        limiter::Limiter,
    },
};
use serde::Serialize;

/// A limiter, and the requests it is asked about, by number.
pub(crate) trait Contender {
    /// Whether this request passes.
    fn admits(&mut self, request: u32) -> bool;

    /// How many of these requests pass. One call of this is what is timed, so that behind a pointer to
    /// the trait each decision still is a direct call.
    fn pass(&mut self, requests: &[u32]) -> usize {
        requests.iter().filter(|&&request| self.admits(request)).count()
    }

    /// Fails unless all of these requests pass: what is measured is admission.
    fn pass_all(&mut self, requests: &[u32]) -> Result<()> {
        let passed = self.pass(requests);
        ensure!(passed == requests.len(), "only {passed} of {} requests passed", requests.len());
        Ok(())
    }
}

/// A limiter that keeps a counter for each request that it is asked about.
pub(crate) trait Keyed: Contender {
    /// How many counters it holds.
    fn counters(&self) -> usize;

    /// Has each of these different requests counted; fails unless all counters are held then.
    fn fill(&mut self, requests: &[u32]) -> Result<()> {
        self.pass_all(requests)?;
        let counters = self.counters();
        ensure!(counters == requests.len(), "only {counters} of {} counters are held", requests.len());
        Ok(())
    }
}

/// Who it is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    /// This workspace.
    Ratelimit,
    /// The crate of that name.
    Governor,
    /// The crate of that name.
    Limitador,
}

/// How a contender counts.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counting {
    /// Governor's, too.
    TokenBucket,
    /// Weighted by the window before.
    SlidingWindow,
}

/// Our limiter.
#[derive(Debug)]
pub(crate) struct Ours<'a> {
    limiter: Limiter,
    clock: Clock,
    values: &'a [String],
    /// Asked again and again, with another value each time.
    ask: Ask<'a>,
}

/// The keyed limiter of the governor crate with its default clock, hasher and store.
#[derive(Debug)]
pub(crate) struct Governor<'a> {
    limiter: DefaultKeyedRateLimiter<String>,
    keys: &'a [String],
}

/// The in-memory limiter of the limitador crate.
pub(crate) struct Limitador {
    limiter: RateLimiter,
    namespace: Namespace,
    contexts: Vec<limit::Context<'static>>,
}

/// The domain of every request.
pub(crate) const DOMAIN: &str = "api";

/// Units an hour for each key: one comes back every 3.6 s, so no counter is whole again, and so perhaps
/// forgotten, before it is met next.
const PER_KEY: NonZeroU32 = NonZeroU32::new(1_000).unwrap();

/// Units an hour where millions of requests meet one counter.
const PLENTY: u64 = 1_000_000_000_000;

const HOUR: Duration = Duration::from_hours(1);

// === impl Ours ===

impl<'a> Ours<'a> {
    /// One rule for all addresses, each of which has its own counter.
    pub(crate) fn by_address(counting: Counting, addresses: &'a [String]) -> Result<Self> {
        let units = u64::from(PER_KEY.get());
        let algorithm = match counting {
            Counting::TokenBucket => Algorithm::TokenBucket { burst: units, interval: false },
            Counting::SlidingWindow => Algorithm::SlidingWindow { round_up: false },
        };
        let rule = descriptor("client_ip", ValuePattern::Any, limit(units, algorithm)?);
        Ok(Self::new("client_ip", addresses, vec![rule]))
    }

    /// One rule for each of the routes.
    pub(crate) fn by_route(routes: &'a [String]) -> Result<Self> {
        let limit = limit(PLENTY, Algorithm::SlidingWindow { round_up: false })?;
        let rule = |route: &String| descriptor("route", ValuePattern::Exact(route.clone()), limit.clone());
        Ok(Self::new("route", routes, routes.iter().map(rule).collect()))
    }

    fn new(key: &'static str, values: &'a [String], descriptors: Vec<Descriptor>) -> Self {
        let entry = Entry { key: Cow::Borrowed(key), value: Cow::Borrowed("") };
        let descriptor = ask::Descriptor { entries: vec![entry], hits: 1, limit: None };
        let ask = Ask {
            domain: Cow::Borrowed(DOMAIN),
            descriptors: vec![descriptor],
            peek: false,
            whose: Whose::default(),
        };
        let limiter = Limiter::new(&config(descriptors, values.len()), [7; 32]);
        Self { limiter, clock: Clock::new(), values, ask }
    }
}

impl Contender for Ours<'_> {
    fn admits(&mut self, request: u32) -> bool {
        self.ask.descriptors[0].entries[0].value = Cow::Borrowed(&self.values[request as usize]);
        self.limiter.admit(&self.ask, self.clock.now()) == Decision::Allow
    }
}

impl Keyed for Ours<'_> {
    fn counters(&self) -> usize {
        self.limiter.stats().keys
    }
}

fn limit(units: u64, algorithm: Algorithm) -> Result<Arc<Limit>> {
    let window = u64::try_from(HOUR.as_nanos())?.try_into()?;
    Ok(Arc::new(Limit {
        units,
        window: Window::Fixed(window),
        algorithm,
        align: Align::Epoch,
        count_denied: false,
        soft_margin_permille: 0,
    }))
}

fn descriptor(key: &str, value: ValuePattern, limit: Arc<Limit>) -> Descriptor {
    let rule = Rule {
        name: None,
        limit: Some(limit),
        shadow: false,
        quota: false,
        replaces: Vec::new(),
        cost: 1,
        overrides: Vec::new(),
        escalate: None,
    };
    Descriptor {
        key: key.to_owned(),
        value,
        share_threshold: false,
        rule: Some(rule),
        descriptors: Vec::new(),
        line: 1,
    }
}

fn config(descriptors: Vec<Descriptor>, keys: usize) -> Http {
    let domain = Domain {
        name: DOMAIN.to_owned(),
        file: "api.yaml".into(),
        compatibility: Compatibility::Native,
        descriptors,
    };
    Http {
        listen: None,
        grpc_listen: None,
        rule_paths: Vec::new(),
        domains: vec![domain],
        trusted_proxies: Vec::new(),
        client_address: ClientAddress::Peer,
        max_keys: keys,
        on_full: OnFull::Evict,
        identify: Vec::new(),
        access: Access::default(),
        answer: Answer { x_ratelimit: true, retry_after: true, ietf: false, text: None },
        state_dir: None,
    }
}

// === impl Governor ===

impl<'a> Governor<'a> {
    /// As [`Ours::by_address`], keyed by [`governor_keys`].
    pub(crate) fn by_address(keys: &'a [String]) -> Result<Self> {
        let quota = Quota::with_period(HOUR / PER_KEY.get()).context("a period is never zero")?;
        Ok(Self { limiter: DefaultKeyedRateLimiter::keyed(quota.allow_burst(PER_KEY)), keys })
    }
}

impl Contender for Governor<'_> {
    fn admits(&mut self, request: u32) -> bool {
        self.limiter.check_key(&self.keys[request as usize]).is_ok()
    }
}

impl Keyed for Governor<'_> {
    fn counters(&self) -> usize {
        self.limiter.len()
    }
}

/// The whole descriptors as texts.
pub(crate) fn governor_keys(addresses: &[String]) -> Vec<String> {
    addresses.iter().map(|address| format!("{DOMAIN}/client_ip={address}")).collect()
}

// === impl Limitador ===

impl Limitador {
    /// As [`Ours::by_route`].
    pub(crate) fn by_route(routes: &[String]) -> Result<Self> {
        let limiter = RateLimiter::new(1_000);
        for route in routes {
            let predicate = Predicate::parse(format!("descriptors[0].route == '{route}'"))?;
            limiter.add_limit(limit::Limit::new(DOMAIN, PLENTY, HOUR.as_secs(), [predicate], []));
        }
        let context = |route: &String| {
            let mut context = limit::Context::default();
            let entries = [("route".to_owned(), route.clone())].into();
            context.list_binding("descriptors".to_owned(), vec![entries]);
            context
        };
        Ok(Self { limiter, namespace: DOMAIN.into(), contexts: routes.iter().map(context).collect() })
    }
}

impl Contender for Limitador {
    fn admits(&mut self, request: u32) -> bool {
        let context = &self.contexts[request as usize];
        let check = self.limiter.check_rate_limited_and_update(&self.namespace, context, 1);
        // A request that meets no limit would pass, too.
        check.is_ok_and(|check| !check.limited && check.counters.len() == 1)
    }
}
