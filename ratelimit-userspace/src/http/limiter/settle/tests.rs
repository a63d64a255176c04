use super::*;

const PASS: Outcome = Outcome::Admit { delay: 0, soft_over: false };
const NEVER: Outcome = Outcome::Refuse { wait: None };

fn held(delay: Nanos) -> Outcome {
    Outcome::Admit { delay, soft_over: false }
}

fn refused(wait: Nanos) -> Outcome {
    Outcome::Refuse { wait: Some(wait) }
}

fn hard(outcome: Outcome) -> Vote {
    Vote { part: Part::Hard, count_denied: false, outcome }
}

fn quota(outcome: Outcome) -> Vote {
    Vote { part: Part::Quota, ..hard(outcome) }
}

fn shadow(outcome: Outcome) -> Vote {
    Vote { part: Part::Shadow, ..hard(outcome) }
}

fn counted(vote: Vote) -> Vote {
    Vote { count_denied: true, ..vote }
}

fn settled(votes: &[Vote]) -> (Decision, Vec<bool>) {
    let settlement = Settlement::of(votes.iter().copied());
    (settlement.decision, votes.iter().map(|vote| settlement.charges(vote)).collect())
}

fn denied(votes: &[Vote]) -> Option<(usize, Wait)> {
    denier(votes.iter().copied())
}

#[test]
fn nothing_limits_nothing() {
    assert_eq!(settled(&[]), (Decision::Allow, vec![]));
    assert_eq!(denied(&[]), None);
}

#[test]
fn one_hard_limit_denies_and_none_is_charged() {
    assert_eq!(settled(&[hard(PASS), hard(PASS)]), (Decision::Allow, vec![true, true]));
    assert_eq!(
        settled(&[hard(PASS), hard(refused(1)), quota(PASS), shadow(PASS)]),
        (Decision::Deny, vec![false; 4])
    );
}

#[test]
fn what_counts_denied_requests_is_charged_whatever_becomes_of_them() {
    assert_eq!(
        settled(&[counted(hard(PASS)), counted(hard(refused(1))), hard(PASS), counted(shadow(NEVER))]),
        (Decision::Deny, vec![true, true, false, true])
    );
    assert_eq!(settled(&[counted(shadow(refused(1))), hard(PASS)]), (Decision::Shadow, vec![true, true]));
}

#[test]
fn denial_is_over_delay_is_over_shadow() {
    let delay = |votes: &[Vote]| Settlement::of(votes.iter().copied());
    let (shadowed, delayed) = (shadow(refused(1)), hard(held(7)));
    assert_eq!(settled(&[shadowed, hard(PASS)]), (Decision::Shadow, vec![false, true]));
    assert_eq!(delay(&[shadowed, delayed]), Settlement { decision: Decision::Delay, delay: 7 });
    assert_eq!(delay(&[shadowed, delayed, hard(refused(1))]), Settlement::REFUSED);
    assert_eq!(delay(&[delayed, hard(held(9)), hard(held(8))]).delay, 9);
}

#[test]
fn what_a_shadow_limit_would_delay_is_not_delayed() {
    assert_eq!(settled(&[shadow(held(5)), hard(PASS)]), (Decision::Allow, vec![true, true]));
}

#[test]
fn quotas_deny_only_together_and_those_that_would_are_not_charged() {
    assert_eq!(settled(&[quota(refused(1)), quota(PASS)]), (Decision::Allow, vec![false, true]));
    assert_eq!(settled(&[quota(refused(1)), quota(NEVER)]), (Decision::Deny, vec![false, false]));
    assert_eq!(settled(&[quota(refused(1)), hard(PASS)]), (Decision::Deny, vec![false, false]));
    assert_eq!(settled(&[quota(PASS), hard(refused(1))]), (Decision::Deny, vec![false, false]));
    assert_eq!(
        settled(&[counted(quota(refused(1))), quota(PASS)]),
        (Decision::Allow, vec![true, true]),
        "count_denied"
    );
}

#[test]
fn the_one_with_the_longest_wait_is_to_blame() {
    assert_eq!(denied(&[hard(refused(3)), hard(refused(9)), hard(PASS)]), Some((1, Wait::For(9))));
    assert_eq!(denied(&[hard(refused(9)), hard(refused(9))]), Some((0, Wait::For(9))));
    assert_eq!(denied(&[hard(refused(u64::MAX)), hard(NEVER)]), Some((1, Wait::Never)));
    assert_eq!(denied(&[shadow(NEVER), hard(refused(1))]), Some((1, Wait::For(1))));
}

#[test]
fn quotas_deny_until_the_first_of_them_does_not() {
    assert_eq!(denied(&[quota(refused(9)), quota(refused(3)), quota(NEVER)]), Some((1, Wait::For(3))));
    assert_eq!(denied(&[quota(refused(9)), hard(refused(5))]), Some((0, Wait::For(9))));
    assert_eq!(denied(&[quota(PASS), quota(NEVER), hard(refused(5))]), Some((2, Wait::For(5))));
}

#[test]
fn waits_are_whole_seconds_rounded_up_and_at_least_one() {
    let second = 1_000_000_000;
    assert_eq!(Wait::For(0).seconds(), Some(1));
    assert_eq!(Wait::For(1).seconds(), Some(1));
    assert_eq!(Wait::For(second).seconds(), Some(1));
    assert_eq!(Wait::For(second + 1).seconds(), Some(2));
    assert_eq!(Wait::For(u64::MAX).seconds(), Some(18_446_744_074));
    assert_eq!(Wait::Never.seconds(), None);
}
