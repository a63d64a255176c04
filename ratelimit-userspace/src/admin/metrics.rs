//! The numbers as `OpenMetrics` text. The names are stable:
//!
//! | name | labels | what |
//! |---|---|---|
//! | `ratelimit_network_rule_packets_total` | rule, limit, outcome | packets that met the rule: `passed`, or `shed` or `would_shed` by its limit, counted from 1 in file order |
//! | `ratelimit_network_rule_bytes_total` | rule, limit, outcome | bytes of their frames |
//! | `ratelimit_network_reason_packets_total` | reason, outcome | packets by the reason of their verdict |
//! | `ratelimit_network_reason_bytes_total` | reason, outcome | bytes of their frames |
//! | `ratelimit_network_EVENT_total` | | one for each event that `counters` lists, such as `live_evicted` |
//! | `ratelimit_network_interface_attached` | interface, mode | 1 where a program of ours runs |
//! | `ratelimit_network_interface_current` | interface | 1, or 0 where it is not that of the policy in force |
//! | `ratelimit_network_buckets_max` | | buckets that there is room for |
//! | `ratelimit_network_blocked_addresses` | | single addresses that commands blocked |
//! | `ratelimit_network_blocked_prefixes` | | prefixes that commands blocked |
//! | `ratelimit_network_rule_blocked_sources` | | sources that rules blocked |
//! | `ratelimit_network_blocks_max` | | single addresses that commands may block, and as many prefixes |
//! | `ratelimit_network_monitoring` | | 1 when nothing is shed |
//! | `ratelimit_network_policy_start_time_seconds` | | since when the policy has been in force, since 1970 |
//! | `ratelimit_reloads_total` | | reloads that succeeded |
//! | `ratelimit_reload_failures_total` | | reloads that failed and changed nothing |
//! | `ratelimit_last_reload_ok` | | 1, or 0 when the last reload failed |
//! | `ratelimit_last_reload_time_seconds` | | when a reload last succeeded, since 1970 |
//! | `ratelimit_escalations_total` | rule, outcome | clients that a rule on requests denied too often: `blocked`, `put_under` a rule on packets, `spared` since they must be left alone, or `failed` |
//! | `ratelimit_escalations_lost_total` | | such clients that there was no time to deal with |
//! | `ratelimit_crowdsec_standing` | | addresses and networks that a decision of `CrowdSec` stands about |
//! | `ratelimit_crowdsec_ignored_total` | why | decisions that nothing was done about: their `scope`, their `type`, or `malformed` |
//! | `ratelimit_crowdsec_failures_total` | | questions to its API that were not answered |
//! | `ratelimit_build_info` | version | 1 |
//!
//! Where requests are limited, those of [`crate::http::metrics`] follow.

use std::{
    fmt,
    time::{SystemTime, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use super::{
    handle::{Escalated, Escalations, Feed, Requests},
    schema::{Mode, Reloads, Status},
};
use crate::network::counters::{Counters, Tally};

/// What the text is made of.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What is enforced, and where.
    pub status: Status,
    /// What was counted, where there is a policy.
    pub counters: Option<Counters>,
    /// What became of reloads.
    pub reloads: Reloads,
    /// What became of clients that were denied too often.
    pub escalations: Escalations,
    /// What came of decisions that another program makes, where any are read.
    pub feed: Option<Feed>,
}

#[derive(Debug)]
struct Packets {
    status: Status,
    counters: Option<Counters>,
}

#[derive(Debug)]
struct Daemon(Reloads, Escalations, Option<Feed>);

/// A column of counters.
type Column = (&'static str, &'static str, fn(&Tally) -> u64);

const PACKETS: Column = ("packets", "Packets", |tally| tally.packets);
const BYTES: Column = ("bytes", "Bytes of whole frames", |tally| tally.bytes);

/// Everything as text.
pub fn write(figures: Figures, requests: Option<&Requests>) -> Result<String, fmt::Error> {
    let Figures { status, counters, reloads, escalations, feed } = figures;
    let mut registry = Registry::with_prefix("ratelimit");
    registry.register_collector(Box::new(Daemon(reloads, escalations, feed)));
    let network = registry.sub_registry_with_prefix("network");
    network.register_collector(Box::new(Packets { status, counters }));
    if let Some(Requests { limiter, metrics, clock }) = requests {
        let collector = metrics.collector(limiter.rules(), limiter.stats(), clock.now());
        registry.sub_registry_with_prefix("http").register_collector(Box::new(collector));
    }
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

// === impl Packets ===

impl Collector for Packets {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self { status, counters } = self;
        if let Some(counters) = counters {
            for (name, what, column) in [PACKETS, BYTES] {
                rules(&mut encoder, counters, &format!("rule_{name}"), what, column)?;
                reasons(&mut encoder, counters, &format!("reason_{name}"), what, column)?;
            }
            for event in &counters.events {
                counter(&mut encoder, &event.event, "How often this happened", event.count)?;
            }
        }
        interfaces(&mut encoder, status)?;
        if let Some(blocks) = &status.blocks {
            let help = "Single addresses that commands blocked";
            gauge(&mut encoder, "blocked_addresses", help, None, blocks.addresses)?;
            gauge(&mut encoder, "blocked_prefixes", "Prefixes that commands blocked", None, blocks.prefixes)?;
            gauge(&mut encoder, "rule_blocked_sources", "Sources that rules blocked", None, blocks.by_rules)?;
        }
        if let Some(policy) = &status.policy {
            let capacity = u64::from(policy.sources.capacity);
            gauge(&mut encoder, "buckets_max", "Buckets that there is room for", None, capacity)?;
            if let Some(capacity) = policy.blocks_capacity {
                let help = "Single addresses that commands may block, and as many prefixes";
                gauge(&mut encoder, "blocks_max", help, None, u64::from(capacity))?;
            }
            let monitoring = u64::from(policy.mode == Mode::Monitor);
            gauge(&mut encoder, "monitoring", "Whether nothing is shed", None, monitoring)?;
            let help = "Since when the policy has been in force";
            let unit = Some(&Unit::Seconds);
            gauge(&mut encoder, "policy_start_time", help, unit, seconds(policy.since))?;
        }
        Ok(())
    }
}

fn rules(
    encoder: &mut DescriptorEncoder<'_>,
    counters: &Counters,
    name: &str,
    what: &str,
    column: fn(&Tally) -> u64,
) -> fmt::Result {
    let help = format!("{what} that met the rule, by outcome and the limit that refused");
    let mut family = encoder.encode_descriptor(name, &help, None, MetricType::Counter)?;
    for rule in &counters.rules {
        let labels = [("rule", rule.rule.as_str()), ("outcome", "passed")];
        ConstCounter::new(column(&rule.passed)).encode(family.encode_family(&labels)?)?;
        for (index, limit) in rule.limits.iter().enumerate() {
            let number = (index + 1).to_string();
            for (outcome, tally) in [("shed", &limit.shed), ("would_shed", &limit.would_shed)] {
                let labels = [("rule", rule.rule.as_str()), ("limit", &number), ("outcome", outcome)];
                ConstCounter::new(column(tally)).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn reasons(
    encoder: &mut DescriptorEncoder<'_>,
    counters: &Counters,
    name: &str,
    what: &str,
    column: fn(&Tally) -> u64,
) -> fmt::Result {
    let help = format!("{what} by the reason of their verdict");
    let mut family = encoder.encode_descriptor(name, &help, None, MetricType::Counter)?;
    for reason in &counters.reasons {
        let outcomes =
            [("passed", &reason.passed), ("shed", &reason.shed), ("would_shed", &reason.would_shed)];
        for (outcome, tally) in outcomes {
            let labels = [("reason", reason.reason.as_str()), ("outcome", outcome)];
            ConstCounter::new(column(tally)).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn interfaces(encoder: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let help = "Where a program of ours runs";
    let mut family = encoder.encode_descriptor("interface_attached", help, None, MetricType::Gauge)?;
    for interface in &status.interfaces {
        let Some(mode) = interface.mode else { continue };
        let labels = [("interface", interface.name.as_str()), ("mode", &mode.to_string())];
        one(&mut family, &labels, 1)?;
    }
    let help = "Whether the program is that of the policy in force";
    let mut family = encoder.encode_descriptor("interface_current", help, None, MetricType::Gauge)?;
    for interface in &status.interfaces {
        let labels = [("interface", interface.name.as_str())];
        one(&mut family, &labels, u64::from(interface.current))?;
    }
    Ok(())
}

// === impl Daemon ===

impl Collector for Daemon {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(reloads, Escalations { rules, lost }, feed) = self;
        let Reloads { succeeded, failed, last_ok, last_success, .. } = reloads;
        let help = "Reloads that failed and changed nothing";
        counter(&mut encoder, "reloads", "Reloads that succeeded", *succeeded)?;
        counter(&mut encoder, "reload_failures", help, *failed)?;
        let help = "Whether the last reload succeeded";
        gauge(&mut encoder, "last_reload_ok", help, None, u64::from(*last_ok))?;
        let help = "When a reload last succeeded";
        gauge(&mut encoder, "last_reload_time", help, Some(&Unit::Seconds), seconds(*last_success))?;
        let help = "Clients that a rule on requests denied too often, by what became of them";
        let mut family = encoder.encode_descriptor("escalations", help, None, MetricType::Counter)?;
        for (rule, outcomes) in rules {
            for outcome in Escalated::ALL {
                let labels = [("rule", &**rule), ("outcome", outcome.name())];
                let count = outcomes.get(&outcome).copied().unwrap_or_default();
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        let help = "Clients that were denied too often, and there was no time to deal with";
        counter(&mut encoder, "escalations_lost", help, *lost)?;
        if let Some(feed) = feed {
            decisions(&mut encoder, feed)?;
        }
        encoder
            .encode_descriptor("build", "The daemon", None, MetricType::Info)?
            .encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

fn decisions(encoder: &mut DescriptorEncoder<'_>, feed: &Feed) -> fmt::Result {
    let Feed { standing, ignored, failures } = feed;
    let help = "Addresses and networks that a decision of CrowdSec stands about";
    gauge(encoder, "crowdsec_standing", help, None, *standing)?;
    let help = "Decisions that nothing was done about, by what they lacked";
    let mut family = encoder.encode_descriptor("crowdsec_ignored", help, None, MetricType::Counter)?;
    for (why, count) in ignored {
        ConstCounter::new(*count).encode(family.encode_family(&[("why", *why)])?)?;
    }
    counter(encoder, "crowdsec_failures", "Questions to CrowdSec's API that were not answered", *failures)
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    ConstCounter::new(count).encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: u64,
) -> fmt::Result {
    let family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    ConstGauge::new(value).encode(family)
}

fn one(
    family: &mut prometheus_client::encoding::MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    value: u64,
) -> fmt::Result {
    ConstGauge::new(value).encode(family.encode_family(labels)?)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
