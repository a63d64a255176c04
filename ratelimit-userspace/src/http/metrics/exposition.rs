//! The numbers as text, for Prometheus and what reads its format.
//!
//! The names are stable:
//!
//! | name | labels | what |
//! |---|---|---|
//! | `ratelimit_http_rule_allowed_total` | domain, rule | requests that the rule let pass |
//! | `ratelimit_http_rule_denied_total` | domain, rule | requests that it denied |
//! | `ratelimit_http_rule_shadow_denied_total` | domain, rule | requests that a shadow rule would have denied |
//! | `ratelimit_http_rule_soft_over_total` | domain, rule | requests that passed within a soft limit's margin |
//! | `ratelimit_http_rule_near_limit_units_total` | domain, rule | units admitted above 80% of the limit |
//! | `ratelimit_http_rule_clients` | domain, rule | clients that met the rule in this hour or the one before |
//! | `ratelimit_http_rule_denied_clients` | domain, rule | those of them that it denied, or would have |
//! | `ratelimit_http_unmatched_requests_total` | | requests that no `identify` item matched |
//! | `ratelimit_http_undescribed_requests_total` | | requests that ended with no descriptor |
//! | `ratelimit_http_unruled_requests_total` | | requests of which no descriptor met a rule |
//! | `ratelimit_http_store_full_denied_total` | | requests denied because memory is full |
//! | `ratelimit_http_missing_entry_denied_total` | | requests denied because an entry is missing |
//! | `ratelimit_http_decision_seconds` | | histogram of how long decisions take |
//! | `ratelimit_http_counters` | | counters in memory |
//! | `ratelimit_http_counters_max` | | `max_keys` |
//! | `ratelimit_http_counters_evicted_total` | | counters that were displaced before they were whole |
//! | `ratelimit_http_counters_uncounted_total` | | counters that found no room, with `on_full: allow` |
//! | `ratelimit_http_reloads_total` | | reloads that succeeded |
//! | `ratelimit_http_reload_failures_total` | | reloads that failed and left the old rules in force |
//! | `ratelimit_http_last_reload_ok` | | 1, or 0 when the last reload failed |
//!
//! A rule denies a share `denied / (allowed + denied)` of requests and `denied_clients / clients` of
//! clients: one that denies most of either is too strict, one that stays at 0, with nothing near its limit,
//! may be useless.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use prometheus_client::{
    collector::Collector,
    encoding::{self, DescriptorEncoder, EncodeMetric, NoLabelSet, prometheus_text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{Metrics, RuleFigures, latency};
use crate::http::{clock::Now, rules::RuleBook, store::memory::Stats};

/// A format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' own, which people read more easily.
    Prometheus,
}

#[derive(Debug)]
struct Scrape {
    metrics: Arc<Metrics>,
    rules: Arc<RuleBook>,
    store: Stats,
    now: Now,
}

// === impl Format ===

impl Format {
    /// The one that a client asks for in `Accept`.
    pub fn accepted(accept: Option<&str>) -> Self {
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Everything as text.
    pub fn text(
        self: &Arc<Self>,
        rules: Arc<RuleBook>,
        store: Stats,
        now: Now,
        format: Format,
    ) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("ratelimit_http");
        registry.register_collector(Box::new(self.collector(rules, store, now)));
        let mut text = String::new();
        match format {
            Format::OpenMetrics => encoding::text::encode(&mut text, &registry)?,
            Format::Prometheus => prometheus_text::encode(&mut text, &registry)?,
        }
        Ok(text)
    }

    /// Everything for a registry whose prefix is `ratelimit_http`.
    pub fn collector(
        self: &Arc<Self>,
        rules: Arc<RuleBook>,
        store: Stats,
        now: Now,
    ) -> impl Collector + use<> {
        Scrape { metrics: Arc::clone(self), rules, store, now }
    }
}

// === impl Scrape ===

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.rules(&mut encoder)?;
        self.requests(&mut encoder)?;
        self.store(&mut encoder)?;
        self.reloads(&mut encoder)
    }
}

impl Scrape {
    fn rules(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter, Gauge};
        type Column = (MetricType, &'static str, &'static str, fn(&RuleFigures) -> u64);
        const COLUMNS: [Column; 7] = [
            (Counter, "rule_allowed", "Requests that the rule let pass", |rule| rule.allowed),
            (Counter, "rule_denied", "Requests that the rule denied", |rule| rule.denied),
            (Counter, "rule_shadow_denied", "Requests that the shadow rule would have denied", |rule| {
                rule.shadow_denied
            }),
            (Counter, "rule_soft_over", "Requests that passed within the margin of a soft limit", |rule| {
                rule.soft_over
            }),
            (Counter, "rule_near_limit_units", "Units admitted above 80% of the limit", |rule| {
                rule.near_limit
            }),
            (Gauge, "rule_clients", "About how many clients met the rule in this hour or the last", |rule| {
                rule.clients
            }),
            (Gauge, "rule_denied_clients", "About how many of them it denied, or would have", |rule| {
                rule.denied_clients
            }),
        ];
        let figures: Vec<_> =
            self.rules.rules().map(|rule| (rule, rule.metrics.figures(self.now.steady))).collect();
        for (kind, name, help, column) in COLUMNS {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (rule, figures) in &figures {
                let labels = [("domain", &*rule.domain), ("rule", &*rule.id)];
                let series = family.encode_family(&labels)?;
                match kind {
                    Counter => ConstCounter::new(column(figures)).encode(series)?,
                    _ => ConstGauge::new(column(figures)).encode(series)?,
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "the format has floats")]
    fn requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Metrics { requests, latency, store_full, missing_entry, .. } = &*self.metrics;
        let (mut unmatched, mut undescribed, mut unruled) = (0, 0, 0);
        for place in requests.iter() {
            unmatched += place.unmatched.load(Ordering::Relaxed);
            undescribed += place.undescribed.load(Ordering::Relaxed);
            unruled += place.unruled.load(Ordering::Relaxed);
        }
        counter(encoder, "unmatched_requests", "Requests that no identify item matched", unmatched)?;
        counter(encoder, "undescribed_requests", "Requests that ended with no descriptor", undescribed)?;
        counter(encoder, "unruled_requests", "Requests of which no descriptor met a rule", unruled)?;
        let refused = store_full.count.load(Ordering::Relaxed);
        counter(encoder, "store_full_denied", "Requests denied because memory is full", refused)?;
        let refused = missing_entry.count.load(Ordering::Relaxed);
        counter(encoder, "missing_entry_denied", "Requests denied because an entry is missing", refused)?;

        let recorded = latency.recorded();
        let bounds = latency::BOUNDS.iter().map(|bound| *bound as f64 / 1e9).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(recorded.buckets).collect();
        encoder
            .encode_descriptor(
                "decision",
                "How long decisions take",
                Some(&Unit::Seconds),
                MetricType::Histogram,
            )?
            .encode_histogram::<NoLabelSet>(
                recorded.sum as f64 / 1e9,
                recorded.buckets.iter().sum(),
                &buckets,
                None,
            )
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Stats { keys, max_keys, evictions, uncounted, .. } = self.store;
        gauge(encoder, "counters", "Counters in memory", keys as u64)?;
        gauge(encoder, "counters_max", "Counters that memory may hold", max_keys as u64)?;
        counter(encoder, "counters_evicted", "Counters displaced before they were whole", evictions)?;
        counter(encoder, "counters_uncounted", "Counters not kept because memory is full", uncounted)
    }

    fn reloads(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Metrics { reloads, reload_failures, last_reload_failed, .. } = &*self.metrics;
        counter(encoder, "reloads", "Reloads that succeeded", reloads.load(Ordering::Relaxed))?;
        let failures = reload_failures.load(Ordering::Relaxed);
        counter(encoder, "reload_failures", "Reloads that failed and left the old rules in force", failures)?;
        let succeeded = !last_reload_failed.load(Ordering::Relaxed);
        gauge(encoder, "last_reload_ok", "Whether the last reload succeeded", u64::from(succeeded))
    }
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}
