use std::{pin::pin, time::Duration};

use futures_util::StreamExt as _;

use super::*;

const SECOND: u64 = 1_000_000;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A log whose numbers begin at 1,000,000.
fn log() -> Log {
    Log::new(at(1))
}

fn lost_samples(log: &Log, count: u64) {
    log.publish(at(2), What::SamplesLost { count });
}

fn confirmed(log: &Log, id: usize) {
    log.publish(at(2), What::Confirmed { trial: id.to_string() });
}

/// What a listener gets from now to the end.
async fn all(log: &Log, after: Option<u64>) -> Vec<Arc<Event>> {
    let listener = log.listen(after);
    log.close();
    listener.collect().await
}

#[test]
fn a_flood_of_samples_does_not_wash_out_the_rest() {
    let log = log();
    confirmed(&log, 1);
    for count in 0..3 * KEPT {
        lost_samples(&log, count as u64);
    }
    let recent = log.recent(usize::MAX);
    assert_eq!(recent.len(), KEPT + 1);
    assert_eq!(recent[0].what, What::Confirmed { trial: "1".to_owned() });
    assert_eq!(recent[KEPT].what, What::SamplesLost { count: 3 * KEPT as u64 - 1 });
    let ids: Vec<u64> = recent.iter().map(|event| event.id).collect();
    assert!(ids.is_sorted_by(|one, next| one < next));
    assert_eq!(log.recent(2), recent[KEPT - 1..]);
}

#[tokio::test]
async fn a_listener_gets_what_happens_from_then_on_in_order() {
    let log = log();
    confirmed(&log, 0);
    let listener = log.listen(None);
    for id in 1..=5 {
        confirmed(&log, id);
    }
    log.close();
    let got: Vec<Arc<Event>> = listener.collect().await;
    let ids: Vec<u64> = got.iter().map(|event| event.id).collect();
    assert_eq!(ids, (SECOND + 1..=SECOND + 5).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_comes_back_gets_what_it_missed() {
    let log = log();
    for id in 0..5 {
        confirmed(&log, id);
    }
    let ids: Vec<u64> = all(&log, Some(SECOND + 2)).await.iter().map(|event| event.id).collect();
    assert_eq!(ids, [SECOND + 3, SECOND + 4]);
}

#[tokio::test]
async fn who_comes_back_too_late_is_told_how_many_are_gone() {
    let log = log();
    for count in 0..KEPT + 10 {
        lost_samples(&log, count as u64);
    }
    let got = all(&log, Some(SECOND + 2)).await;
    assert_eq!((got[0].id, &got[0].what), (SECOND + 2, &What::Lost { count: 7 }));
    assert_eq!(got.len(), KEPT + 1);
}

#[tokio::test]
async fn events_of_an_earlier_daemon_are_not_counted_as_lost() {
    let log = log();
    confirmed(&log, 1);
    let got = all(&log, Some(5)).await;
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].id, SECOND);
}

#[tokio::test]
async fn a_listener_that_falls_behind_is_told_how_many_it_lost() {
    let log = log();
    let mut listener = pin!(log.listen(None));
    for id in 0..QUEUE + 3 {
        confirmed(&log, id);
    }
    let first = listener.next().await.unwrap();
    assert_eq!((first.id, &first.what), (SECOND + 2, &What::Lost { count: 3 }));
    let second = listener.next().await.unwrap();
    assert_eq!((second.id, &second.what), (SECOND + 3, &What::Confirmed { trial: "3".to_owned() }));
}

#[tokio::test]
async fn listening_ends_with_the_daemon() {
    let log = log();
    log.close();
    confirmed(&log, 1);
    assert!(all(&log, None).await.is_empty());
    assert_eq!(log.recent(5).len(), 1, "who asks afterwards still gets an answer");
}
