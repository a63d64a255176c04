//! Which counter: a keyed hash over the rule and the values that tell its counters apart, each with its
//! length before it, so that no two descriptors are ever written the same.

use std::{fmt, hash::Hasher};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::{
    config::http::{Algorithm, Align, CalendarUnit, Limit, Override, ValuePattern, Window},
    http::{ask::Descriptor, rules::Rule, store::Identity},
};

/// Keys of counters and of what must be told apart from them.
pub(super) struct Keys {
    identities: SipHasher13,
    check: [u8; 16],
}

/// What is hashed.
struct Text(SipHasher13);

// === impl Keys ===

impl Keys {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self {
            identities: SipHasher13::new_with_key(&derive(key, "counter identities")),
            check: derive(key, "counter snapshots"),
        }
    }

    /// Tells other keys apart without telling this one.
    pub(super) fn check(&self) -> [u8; 16] {
        self.check
    }

    /// The counter of a descriptor under a rule. What overrides its limit gets another counter where the
    /// same one could meet several limits: it would be converted to and fro, and forget at each turn.
    pub(super) fn of_rule(
        &self,
        rule: &Rule,
        descriptor: &Descriptor<'_>,
        choice: Option<&Override>,
        asked: Option<&Limit>,
    ) -> Identity {
        let mut text = Text(self.identities);
        text.byte(0);
        text.part(rule.id.as_bytes());
        for &place in &rule.counted {
            text.part(descriptor.entries.get(place).map_or(&[], |entry| entry.value.as_bytes()));
        }
        if let Some(limit) = asked {
            text.limit(limit);
        } else if let Some(Override { value, tier, .. }) = choice {
            if let Some(tier) = tier {
                text.byte(1);
                text.part(tier.as_bytes());
            }
            let last_counts = rule.counted.last().is_some_and(|last| last + 1 == descriptor.entries.len());
            if let Some(value) = value.as_ref().filter(|_| !last_counts) {
                let (kind, value) = match value {
                    ValuePattern::Exact(value) => (2, value.as_str()),
                    ValuePattern::Prefix(prefix) => (3, prefix.as_str()),
                    ValuePattern::Any => (4, ""),
                };
                text.byte(kind);
                text.part(value.as_bytes());
            }
        }
        text.identity()
    }

    /// The counter of a descriptor that matches no rule, and whose limit the asker sent.
    pub(super) fn of_asked(&self, domain: &str, descriptor: &Descriptor<'_>, limit: &Limit) -> Identity {
        let mut text = Text(self.identities);
        text.byte(1);
        text.part(domain.as_bytes());
        text.number(descriptor.entries.len() as u64);
        for entry in &descriptor.entries {
            text.part(entry.key.as_bytes());
            text.part(entry.value.as_bytes());
        }
        text.limit(limit);
        text.identity()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Keys").finish_non_exhaustive()
    }
}

fn derive(key: &[u8; 32], purpose: &str) -> [u8; 16] {
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    // A key that is shorter than a block is filled up with zeros; so this is the HMAC of the key.
    let mut mac = Hmac::<Sha256>::new(&block.into());
    mac.update(purpose.as_bytes());
    let digest = mac.finalize().into_bytes();
    let mut derived = [0; 16];
    derived.copy_from_slice(&digest[..16]);
    derived
}

// === impl Text ===

impl Text {
    fn byte(&mut self, byte: u8) {
        self.0.write_u8(byte);
    }

    fn number(&mut self, number: u64) {
        self.0.write_u64(number);
    }

    fn part(&mut self, part: &[u8]) {
        self.number(part.len() as u64);
        self.0.write(part);
    }

    fn identity(&self) -> Identity {
        let (low, high) = self.0.finish128().as_u64();
        Identity::new([low, high])
    }

    /// The numbers of a limit.
    fn limit(&mut self, limit: &Limit) {
        let Limit { units, window, algorithm, align, count_denied, soft_margin_permille } = limit;
        self.byte(0);
        self.number(*units);
        match window {
            Window::Fixed(nanos) => {
                self.byte(0);
                self.number(nanos.get());
            }
            Window::Calendar(unit, zone) => {
                self.byte(match unit {
                    CalendarUnit::Day => 1,
                    CalendarUnit::Week => 2,
                    CalendarUnit::Month => 3,
                });
                self.part(format!("{zone:?}").as_bytes());
            }
        }
        let (kind, numbers) = match *algorithm {
            Algorithm::SlidingWindow { round_up } => (0, [u64::from(round_up), 0, 0]),
            Algorithm::Segments { segments } => (1, [u64::from(segments), 0, 0]),
            Algorithm::SlidingLog => (2, [0; 3]),
            Algorithm::FixedWindow => (3, [0; 3]),
            Algorithm::EnvoyWindow => (6, [0; 3]),
            Algorithm::TokenBucket { burst, interval } => (4, [burst, u64::from(interval), 0]),
            Algorithm::LeakyBucket { burst, max_delay } => {
                (5, [burst, u64::from(max_delay.is_some()), max_delay.unwrap_or(0)])
            }
        };
        self.byte(kind);
        for number in numbers {
            self.number(number);
        }
        self.number(u64::from(*align == Align::First) << 1 | u64::from(*count_denied));
        self.number(u64::from(*soft_margin_permille));
    }
}
