//! From what every limit says to what becomes of the request.

use std::cmp::Reverse;

use crate::http::{
    algorithm::{Nanos, Outcome},
    ask::Decision,
};

/// What a limit has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It denies what does not fit.
    Hard,
    /// It denies only together with all others of its kind.
    Quota,
    /// It never denies.
    Shadow,
}

/// What one limit says of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    pub(super) part: Part,
    /// It is charged whatever becomes of the request.
    pub(super) count_denied: bool,
    pub(super) outcome: Outcome,
}

/// How long until a request passes; `Never` is the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    For(Nanos),
    Never,
}

/// What becomes of the request, and so which limits are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settlement {
    pub(super) decision: Decision,
    /// How long to hold it; 0 unless the decision is to delay.
    pub(super) delay: Nanos,
}

// === impl Vote ===

impl Vote {
    pub(super) fn refuses(&self) -> bool {
        matches!(self.outcome, Outcome::Refuse { .. })
    }

    /// How long it refuses.
    pub(super) fn wait(&self) -> Option<Wait> {
        match self.outcome {
            Outcome::Admit { .. } => None,
            Outcome::Refuse { wait } => Some(wait.map_or(Wait::Never, Wait::For)),
        }
    }

    pub(super) fn soft_over(&self) -> bool {
        matches!(self.outcome, Outcome::Admit { soft_over: true, .. })
    }
}

// === impl Wait ===

impl Wait {
    /// Whole seconds, at least 1. `None`: never.
    pub(super) fn seconds(self) -> Option<u64> {
        match self {
            Self::For(nanos) => Some(nanos.div_ceil(1_000_000_000).max(1)),
            Self::Never => None,
        }
    }
}

// === impl Settlement ===

impl Settlement {
    /// Of a request that is refused whatever the limits say.
    pub(super) const REFUSED: Self = Self { decision: Decision::Deny, delay: 0 };

    /// Puts together what all limits say.
    pub(super) fn of(votes: impl Iterator<Item = Vote>) -> Self {
        let (mut denies, mut shadowed, mut delay) = (false, false, 0);
        let (mut quota_admits, mut quota_refuses) = (false, false);
        for vote in votes {
            match (vote.part, vote.outcome) {
                (Part::Hard, Outcome::Refuse { .. }) => denies = true,
                (Part::Quota, Outcome::Refuse { .. }) => quota_refuses = true,
                (Part::Shadow, Outcome::Refuse { .. }) => shadowed = true,
                (Part::Shadow, Outcome::Admit { .. }) => {}
                (part, Outcome::Admit { delay: longer, .. }) => {
                    quota_admits |= part == Part::Quota;
                    delay = longer.max(delay);
                }
            }
        }
        if denies || quota_refuses && !quota_admits {
            return Self::REFUSED;
        }
        let decision = match (delay, shadowed) {
            (1.., _) => Decision::Delay,
            (0, true) => Decision::Shadow,
            (0, false) => Decision::Allow,
        };
        Self { decision, delay }
    }

    /// Whether a limit is charged: all that admit a request that passes, and those that always are.
    pub(super) fn charges(&self, vote: &Vote) -> bool {
        vote.count_denied || self.decision != Decision::Deny && !vote.refuses()
    }
}

/// Of those that deny the one that does longest, the first among equals, and how long. Quotas deny together,
/// until the first of them does not.
pub(super) fn denier(votes: impl Iterator<Item = Vote>) -> Option<(usize, Wait)> {
    let mut hard: Option<(usize, Wait)> = None;
    let mut quota: Option<(usize, Wait)> = None;
    let mut quota_admits = false;
    for (place, vote) in votes.enumerate() {
        match (vote.part, vote.wait()) {
            (Part::Hard, Some(wait)) if hard.is_none_or(|(_, longest)| wait > longest) => {
                hard = Some((place, wait));
            }
            (Part::Quota, Some(wait)) if quota.is_none_or(|(_, shortest)| wait < shortest) => {
                quota = Some((place, wait));
            }
            (Part::Quota, None) => quota_admits = true,
            _ => {}
        }
    }
    let quota = quota.filter(|_| !quota_admits);
    hard.into_iter().chain(quota).max_by_key(|&(place, wait)| (wait, Reverse(place)))
}

#[cfg(test)]
mod tests;
