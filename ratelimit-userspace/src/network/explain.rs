//! Why a packet passes or is shed: each stage of its way, and for each rule before the one that it meets the
//! condition that does not hold.
//!
//! Pure, over the same tables that the program reads.

mod conditions;
mod limits;
mod packet;
mod stages;

#[cfg(test)]
mod tests;

use ratelimit_common::{charge, packet::Packet, record::Reason};
use serde::Serialize;

pub use self::{
    limits::{LimitState, limit_states},
    packet::{Question, Unclear, describe},
};
use super::{
    blocks::Block,
    buckets::Buckets,
    description,
    in_force::{Listed, Policy},
    overrides::Under,
};
use crate::config::policy::Rule;

/// What is known beside the policy.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// What the lists say of the source.
    pub listed: Listed,
    /// The blocks that cover the source.
    pub blocks: Vec<Block>,
    /// The rule that the source is put under, if it is one of the policy's.
    pub under: Option<Under>,
}

/// Why a packet passes or is shed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The packet in words.
    pub packet: String,
    /// What was not said of it and matters.
    pub assumed: Vec<String>,
    /// The stages before the rules, up to the one that decides.
    pub stages: Vec<Stage>,
    /// The rules, up to the one that it meets; none if a stage decides.
    pub rules: Vec<RuleStep>,
    /// What the limits of the rule that it meets say.
    pub limits: Vec<LimitState>,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// One stage of a packet's way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Its name: `allow`, `management`, `deny`, `blocked` or `neighbour`.
    pub stage: &'static str,
    /// It decides.
    pub decides: bool,
    /// Why, or why not.
    pub why: String,
}

/// One rule that a packet is held against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleStep {
    /// Its name.
    pub rule: String,
    /// The packet meets it.
    pub matches: bool,
    /// Why, or why not.
    pub why: String,
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Whether it goes on.
    pub verdict: Action,
    /// Why: a reason as the counters name it.
    pub reason: &'static str,
    /// The rule that it meets.
    pub rule: Option<String>,
    /// Which limit refuses it, from 1.
    pub limit: Option<usize>,
}

/// Whether a packet goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It does.
    Pass,
    /// It is dropped.
    Shed,
    /// It does, but only because the policy or the rule monitors.
    WouldShed,
}

/// Explains one packet. Without buckets: as if nobody had sent yet.
pub fn explain<B: charge::Buckets>(
    policy: &Policy,
    question: &Question,
    surroundings: &Surroundings,
    buckets: Option<&Buckets<B>>,
) -> Explanation {
    let Question { packet, length, .. } = question;
    let mut explanation = Explanation {
        packet: describe(packet, *length),
        assumed: question.assumed_by(policy),
        stages: Vec::new(),
        rules: Vec::new(),
        limits: Vec::new(),
        verdict: Verdict { verdict: Action::Pass, reason: Reason::NoRule.name(), rule: None, limit: None },
    };
    let monitor = policy.network.monitor;
    let (stages, decision) = stages::walk(policy, packet, surroundings);
    explanation.stages = stages;
    if let Some(reason) = decision {
        let refuses = matches!(reason, Reason::Denied | Reason::Blocked);
        explanation.verdict.reason = reason.name();
        explanation.verdict.verdict = Action::new(refuses, monitor);
        return explanation;
    }
    let under = surroundings.under.as_ref().map(|under| under.index);
    let met = policy.compiled.classify_under(packet, *length, under);
    explanation.rules = rule_steps(policy, packet, *length, met, under);
    let Some(met) = met else { return explanation };
    let rule = &policy.network.rules[met];
    explanation.limits = limit_states(policy, met, &packet.source, *length, buckets);
    let refusing = explanation.limits.iter().position(|limit| !limit.admits);
    let zero = rule.limits.iter().position(|limit| limit.bucket.is_none());
    let reason = match (zero, refusing) {
        (Some(_), _) => Reason::ZeroRate,
        (None, Some(_)) => Reason::Limited,
        (None, None) => Reason::WithinLimit,
    };
    explanation.verdict = Verdict {
        verdict: Action::new(reason != Reason::WithinLimit, monitor || rule.count_only),
        reason: reason.name(),
        rule: Some(rule.name.clone()),
        limit: zero.or(refusing).map(|index| index + 1),
    };
    explanation
}

fn rule_steps(
    policy: &Policy,
    packet: &Packet,
    length: u32,
    met: Option<usize>,
    under: Option<usize>,
) -> Vec<RuleStep> {
    let rules = &policy.network.rules;
    // The rule that its client is put under comes before the first.
    let from = met.filter(|met| under == Some(*met)).unwrap_or(0);
    let up_to = met.map_or(rules.len(), |met| met + 1);
    let step = |rule: &Rule| {
        let unmet = conditions::unmet(&rule.matches, packet, length);
        RuleStep {
            rule: rule.name.clone(),
            matches: unmet.is_none(),
            why: unmet.map_or_else(
                || description::matches(&rule.matches),
                |conditions::Unmet { wants, has }| format!("it wants {wants}; the packet has {has}"),
            ),
        }
    };
    rules[from..up_to].iter().map(step).collect()
}

// === impl Action ===

impl Action {
    fn new(refuses: bool, monitored: bool) -> Self {
        match (refuses, monitored) {
            (false, _) => Self::Pass,
            (true, false) => Self::Shed,
            (true, true) => Self::WouldShed,
        }
    }
}
