//! Recorded requests against rules, in the order of their trace.

use std::{
    collections::HashMap,
    io::{self, BufRead},
    sync::Arc,
};

use crate::http::{
    algorithm::Nanos,
    ask::{Answer, Ask, Decision, Refusal},
    clock::Now,
    identify::{Identifier, Identity},
    rules::Rule,
    trace::{Line, Time, Trace, TraceError},
    wire::Seconds,
};

/// What became of one request.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// When it was made.
    pub time: Time,
    /// What became of it.
    pub answer: Answer,
    /// No item of `identify` is for it.
    pub unmatched: bool,
    /// It has no descriptor.
    pub no_descriptor: bool,
}

/// Why a replay stops.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read, or not to its end.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// What was found cannot be written.
    #[error("failed to write the answers")]
    Write(#[from] io::Error),
}

/// How many requests met with which decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Passed.
    pub allowed: u64,
    /// Did not pass.
    pub denied: u64,
    /// Passed after a delay.
    pub delayed: u64,
    /// Passed, and a shadow rule would have denied them.
    pub shadow: u64,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTally {
    /// What it is called in answers.
    pub label: Arc<str>,
    /// Its domain.
    pub domain: Arc<str>,
    /// What became of the requests whose answers are about it.
    pub decisions: Decisions,
}

/// What became of all requests so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// All of them.
    pub decisions: Decisions,
    /// By rule, in file order.
    pub rules: Vec<RuleTally>,
    /// Those whose answers are about no rule.
    pub no_rule: Decisions,
    /// For which there is no item of `identify`.
    pub unmatched: u64,
    /// That ended with no descriptor.
    pub no_descriptor: u64,
    /// Denied because an entry with `missing: deny` has no value.
    pub missing_entry: u64,
    /// Denied because memory is full.
    pub store_full: u64,
    /// Indices into `rules`, by the id of the rule.
    indices: HashMap<Arc<str>, usize>,
    /// The earliest and the latest time.
    times: Option<(Nanos, Nanos)>,
}

/// Replays a trace and hands out the judgement on every request, in order.
pub fn replay(
    trace: &mut Trace<impl BufRead>,
    identifier: &Identifier,
    decide: impl Fn(&Ask<'_>, Now) -> Answer,
    mut observe: impl FnMut(&Judgement) -> io::Result<()>,
) -> Result<(), ReplayError> {
    while let Some(Line { time, question }) = trace.next_line()? {
        let identity = question.identify(identifier).map_err(|error| trace.undecidable(&error))?;
        let unmatched = matches!(identity, Identity::Unmatched);
        let (answer, no_descriptor) = match identity.into_ask() {
            Ok(ask) => (decide(&ask, Now::at(time.nanos())), ask.descriptors.is_empty()),
            Err(answer) => (*answer, false),
        };
        observe(&Judgement { time, answer, unmatched, no_descriptor })?;
    }
    Ok(())
}

// === impl Decisions ===

impl Decisions {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.allowed + self.denied + self.delayed + self.shadow
    }

    fn count(&mut self, decision: Decision) {
        *match decision {
            Decision::Allow => &mut self.allowed,
            Decision::Deny => &mut self.denied,
            Decision::Delay => &mut self.delayed,
            Decision::Shadow => &mut self.shadow,
        } += 1;
    }
}

// === impl Tally ===

impl Tally {
    /// Nothing yet. Rules that no request meets show as well.
    pub fn new<'a>(rules: impl Iterator<Item = &'a Arc<Rule>>) -> Self {
        let mut tally = Self::default();
        for rule in rules {
            tally.index(rule);
        }
        tally
    }

    /// Counts a request.
    pub fn count(&mut self, judgement: &Judgement) {
        let Judgement { time, answer, unmatched, no_descriptor } = judgement;
        self.decisions.count(answer.decision);
        match &answer.rule {
            Some(rule) => {
                let index = self.index(rule);
                self.rules[index].decisions.count(answer.decision);
            }
            None => self.no_rule.count(answer.decision),
        }
        self.unmatched += u64::from(*unmatched);
        self.no_descriptor += u64::from(*no_descriptor);
        match answer.refusal {
            Some(Refusal::MissingEntry) => self.missing_entry += 1,
            Some(Refusal::StoreFull) => self.store_full += 1,
            None => {}
        }
        let now = time.nanos();
        let (first, last) = self.times.unwrap_or((now, now));
        self.times = Some((first.min(now), last.max(now)));
    }

    /// From the earliest request to the latest.
    pub fn span(&self) -> Seconds {
        Seconds(self.times.map_or(0, |(first, last)| last - first))
    }

    fn index(&mut self, rule: &Rule) -> usize {
        *self.indices.entry(Arc::clone(&rule.id)).or_insert_with(|| {
            let Rule { label, domain, .. } = rule;
            let decisions = Decisions::default();
            self.rules.push(RuleTally { label: Arc::clone(label), domain: Arc::clone(domain), decisions });
            self.rules.len() - 1
        })
    }
}

#[cfg(test)]
mod tests;
