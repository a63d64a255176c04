//! What the limiter says that it did, and what the kernel says that it was given.

use std::fs;

use ratelimit::network::counters::{Counters, ReasonCount, RuleCount, Tally};

use crate::{eventually, host::Host};

/// What `ratelimit counters` shows at one moment.
pub(crate) struct Ledger(pub(crate) Counters);

// === impl Ledger ===

impl Ledger {
    pub(crate) fn read(host: &Host) -> Self {
        let output = host.verb(&["counters", "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(serde_json::from_slice(&output.stdout).expect("counters prints JSON"))
    }

    /// Waits until the rule has met this many packets in all.
    pub(crate) fn after(host: &Host, rule: &str, packets: u64) -> Self {
        let mut met = 0;
        eventually(&format!("{packets} packets met {rule}"), || {
            let ledger = Self::read(host);
            let found = ledger.rule(rule);
            met = found.passed.packets + found.limits[0].shed.packets + found.limits[0].would_shed.packets;
            assert!(met <= packets, "{met} packets met {rule}, expected {packets}");
            (met == packets).then_some(ledger)
        })
    }

    pub(crate) fn rule(&self, name: &str) -> &RuleCount {
        self.0.rules.iter().find(|rule| rule.rule == name).expect("the rule is there")
    }

    /// Packets of a rule with one limit: passed, and shed.
    pub(crate) fn packets(&self, rule: &str) -> (u64, u64) {
        let rule = self.rule(rule);
        (rule.passed.packets, rule.limits[0].shed.packets)
    }

    /// Bytes of a rule with one limit: passed, and shed.
    pub(crate) fn bytes(&self, rule: &str) -> (u64, u64) {
        let rule = self.rule(rule);
        (rule.passed.bytes, rule.limits[0].shed.bytes)
    }

    pub(crate) fn reason(&self, name: &str) -> &ReasonCount {
        self.0.reasons.iter().find(|reason| reason.reason == name).expect("the reason is there")
    }

    pub(crate) fn event(&self, name: &str) -> u64 {
        self.0.events.iter().find(|event| event.event == name).expect("the event is there").count
    }

    /// All packets that the program judged: each has one reason.
    pub(crate) fn judged(&self) -> u64 {
        self.tallies().map(|tally| tally.packets).sum()
    }

    /// Every number grew, or stayed.
    pub(crate) fn follows(&self, earlier: &Self) {
        let pairs = self.tallies().chain(self.rules()).zip(earlier.tallies().chain(earlier.rules()));
        for (now, before) in pairs {
            assert!(now.packets >= before.packets && now.bytes >= before.bytes, "{before:?}, then {now:?}");
        }
    }

    fn tallies(&self) -> impl Iterator<Item = Tally> {
        self.0.reasons.iter().flat_map(|reason| [reason.passed, reason.shed, reason.would_shed])
    }

    fn rules(&self) -> impl Iterator<Item = Tally> {
        self.0.rules.iter().flat_map(|rule| {
            let limits = rule.limits.iter().flat_map(|limit| [limit.shed, limit.would_shed]);
            limits.chain([rule.passed])
        })
    }
}

/// Frames that the protected device received and that the program did not judge: those from before it was
/// attached. A later one would have passed unseen.
pub(crate) fn unjudged(host: &Host) -> u64 {
    eventually("a moment without traffic", || {
        let before = received(host);
        let judged = Ledger::read(host).judged();
        (received(host) == before).then(|| before - judged)
    })
}

/// Frames that the protected device received.
fn received(host: &Host) -> u64 {
    // `/proc/net` would show the namespace of the process, not that of the thread.
    let table = host.lab.server.run(|| fs::read_to_string("/proc/thread-self/net/dev")).expect("a table");
    let line = table.lines().find_map(|line| line.trim().strip_prefix("eth0:")).expect("the device");
    line.split_whitespace().nth(1).and_then(|packets| packets.parse().ok()).expect("a number")
}
