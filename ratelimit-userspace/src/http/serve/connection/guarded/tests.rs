use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    time::{advance, timeout},
};

use super::*;

fn pair() -> (DuplexStream, Guarded<DuplexStream>, Arc<Stage>) {
    let (client, server) = duplex(64);
    let stage = Arc::new(Stage::default());
    (client, Guarded::new(server, Arc::clone(&stage)), stage)
}

/// How long a read takes to fail for lack of time.
async fn read_fails_after(guarded: &mut Guarded<DuplexStream>) -> Duration {
    let begun = Instant::now();
    let error = guarded.read(&mut [0; 8]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    begun.elapsed()
}

/// A timer is exact to the millisecond.
fn about(elapsed: Duration, expected: Duration) {
    assert!(elapsed >= expected && elapsed < expected + Duration::from_millis(10), "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_ends_after_the_idle_time() {
    let (_client, mut guarded, _) = pair();
    about(read_fails_after(&mut guarded).await, IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_header_has_its_time_from_the_first_byte_however_many_follow() {
    let (mut client, mut guarded, _) = pair();
    advance(IDLE_TIMEOUT / 2).await;
    client.write_all(b"G").await.unwrap();
    guarded.read_exact(&mut [0; 1]).await.unwrap();
    let begun = Instant::now();
    let dripping = async {
        while client.write_all(b"E").await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let reading = async {
        loop {
            if let Err(error) = guarded.read(&mut [0; 8]).await {
                return error;
            }
        }
    };
    let error = tokio::select! { error = reading => error, () = dripping => panic!("nobody reads") };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    about(begun.elapsed(), HEADER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn while_it_serves_the_handler_limits_the_time() {
    let (_client, mut guarded, stage) = pair();
    stage.serve();
    assert!(timeout(IDLE_TIMEOUT * 100, guarded.read(&mut [0; 8])).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn after_each_answer_the_idle_time_begins_anew() {
    let (mut client, mut guarded, stage) = pair();
    for _ in 0..5 {
        client.write_all(b"G").await.unwrap();
        guarded.read_exact(&mut [0; 1]).await.unwrap();
        stage.serve();
        advance(HEADER_TIMEOUT * 2).await;
        stage.answer();
        let idle = IDLE_TIMEOUT * 9 / 10;
        assert!(timeout(idle, guarded.read(&mut [0; 8])).await.is_err(), "not before its time");
    }
    stage.answer();
    about(read_fails_after(&mut guarded).await, IDLE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_ends_the_connection() {
    let (_client, mut guarded, stage) = pair();
    stage.serve();
    let begun = Instant::now();
    let error = guarded.write_all(&[0; 1000]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    about(begun.elapsed(), WRITE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_that_reads_gets_everything() {
    let (mut client, mut guarded, stage) = pair();
    stage.serve();
    let reading = async {
        let mut count = 0;
        while count < 1000 {
            sleep(WRITE_TIMEOUT / 2).await;
            count += client.read(&mut [0; 64]).await.unwrap();
        }
    };
    let (written, ()) = tokio::join!(guarded.write_all(&[0; 1000]), reading);
    written.unwrap();
}
