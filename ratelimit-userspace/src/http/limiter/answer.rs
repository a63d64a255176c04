//! The answer to a request, once its counters have been settled.

use std::sync::Arc;

use super::{
    commit::{Committed, Report},
    plan::{Counter, Plan, Target},
    settle::{Part, Vote, Wait, denier},
};
use crate::http::{
    algorithm::Outcome,
    ask::{Answer, Decision, Refusal, Status},
    rules::Rule,
};

/// A plan, and what became of its counters.
struct Settled<'a, 'p> {
    plan: &'a Plan<'p>,
    committed: Committed,
    reports: &'a [Report],
}

/// Puts the answer together.
pub(super) fn answer(plan: &Plan<'_>, committed: Committed, reports: &[Report]) -> Answer {
    let settled = Settled { plan, committed, reports };
    let decision = committed.settlement.decision;
    let shown = match decision {
        Decision::Deny => settled.denier(),
        _ => settled.least_remaining(),
    };
    Answer {
        decision,
        rule: shown.and_then(|counter| settled.rule(counter)),
        standing: shown.map(|counter| reports[counter].standing),
        retry_after: (decision == Decision::Deny).then(|| settled.retry_after()).flatten(),
        delay: (decision == Decision::Delay).then_some(committed.settlement.delay),
        statuses: plan.targets.iter().map(|target| settled.status(target)).collect(),
        refusal: committed.store_full.then_some(Refusal::StoreFull),
    }
}

// === impl Settled ===

impl Settled<'_, '_> {
    /// The counter that denies, and longest from now on.
    fn denier(&self) -> Option<usize> {
        let votes = self.plan.counters.iter().zip(self.reports).map(|(Counter { vote, .. }, report)| {
            match (vote.refuses(), report.next.refuses()) {
                (true, true) => report.next,
                // What the denied request was charged has healed a state from the future: it denies no longer.
                (true, false) => Vote { outcome: Outcome::Refuse { wait: Some(0) }, ..*vote },
                (false, _) => *vote,
            }
        });
        denier(votes).map(|(counter, _)| counter)
    }

    /// The counter with the least remaining, of those that clients may know of.
    fn least_remaining(&self) -> Option<usize> {
        let shown = self.plan.counters.iter().zip(self.reports).enumerate();
        let shown = shown.filter(|(_, (counter, _))| counter.vote.part != Part::Shadow);
        shown.min_by_key(|(_, (_, report))| report.standing.remaining).map(|(place, _)| place)
    }

    /// After how long the request passes. Counters that are charged although it was denied may by then deny
    /// it themselves.
    fn retry_after(&self) -> Option<u64> {
        let next = denier(self.reports.iter().map(|report| report.next));
        next.map_or(Wait::For(0), |(_, wait)| wait).seconds()
    }

    fn rule(&self, counter: usize) -> Option<Arc<Rule>> {
        self.plan.targets.iter().find(|target| target.counter == Some(counter))?.rule.cloned()
    }

    fn status(&self, target: &Target<'_>) -> Status {
        let status = Status {
            rule: target.rule.cloned(),
            allowed: true,
            standing: None,
            retry_after: None,
            soft_over: false,
            shadow_denied: false,
            meter: None,
            identity: None,
        };
        let Some(place) = target.counter else { return status };
        let (counter, report) = (&self.plan.counters[place], &self.reports[place]);
        let Counter { vote, metered, .. } = counter;
        let identity = Some(counter.identity);
        let passes = self.committed.settlement.decision != Decision::Deny;
        let soft_over = passes && vote.soft_over();
        if vote.part == Part::Shadow {
            return Status { soft_over, shadow_denied: vote.refuses(), identity, ..status };
        }
        Status {
            allowed: !vote.refuses(),
            standing: Some(report.standing),
            retry_after: vote.wait().and_then(|wait| report.next.wait().unwrap_or(wait).seconds()),
            soft_over,
            meter: Some(Arc::clone(&metered.meter)),
            identity,
            ..status
        }
    }
}
