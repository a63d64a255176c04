//! Hostile clients, frame by frame, on virtual time.

use std::io::ErrorKind;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::Instant,
};
use tonic_health::server::HealthReporter;

use super::*;
use crate::{
    config::http::Access,
    http::serve::{
        envoy::tests::{asker, front},
        listener::Peer,
    },
};

const PREFACE_BYTES: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS_FRAME: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING_FRAME: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:method: POST`, `:scheme: http`, `:path: /` of HPACK's static table.
const POST_ROOT: &[u8] = &[0x83, 0x86, 0x84];

/// The header block of a decision, its path a literal that is not indexed.
fn should_rate_limit() -> Vec<u8> {
    let path = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend_from_slice(path);
    block
}

/// A client that writes and reads frames, and a server at the other end.
struct Client {
    stream: DuplexStream,
    served: JoinHandle<()>,
    stop: watch::Sender<()>,
}

impl Client {
    fn connect(peer: Peer) -> Self {
        let (stream, other) = duplex(64 * 1024);
        let (stop, stopped) = watch::channel(());
        let health = HealthServer::new(HealthService::from_health_reporter(HealthReporter::new()));
        let asker = asker(&front(Access::default()), peer);
        Self { stream, served: tokio::spawn(drive(other, asker, health, stopped)), stop }
    }

    /// After the preface and an empty SETTINGS frame.
    async fn greeted() -> Self {
        let mut client = Self::connect(Peer::Unix);
        client.write(PREFACE_BYTES).await.unwrap();
        client.frame(SETTINGS, 0, 0, &[]).await.unwrap();
        client
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await
    }

    async fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        self.write(&frame(kind, flags, stream, payload)).await
    }

    /// The next frame: kind, flags, stream and payload. `None`: the server closed the connection.
    async fn read(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        match self.stream.read_exact(&mut head).await {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                return None;
            }
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await.unwrap();
        Some((head[3], head[4], stream, payload))
    }

    /// Reads until the server closes: the error codes of the GOAWAY frames, and how many streams were reset.
    async fn read_to_the_end(&mut self) -> (Vec<u32>, usize) {
        let (mut codes, mut resets) = (Vec::new(), 0);
        while let Some((kind, _, _, payload)) = self.read().await {
            match kind {
                GOAWAY => codes.push(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
                RST_STREAM => resets += 1,
                _ => {}
            }
        }
        (codes, resets)
    }

    /// Writes frames until the server will not have more of them, while what it says is thrown away; how
    /// many it took.
    async fn flood(self, most: u32, frames: impl Fn(u32) -> Vec<u8>) -> u32 {
        let (mut read, mut write) = tokio::io::split(self.stream);
        let reader = tokio::spawn(async move {
            let mut sink = vec![0; 64 * 1024];
            while read.read(&mut sink).await.is_ok_and(|bytes| bytes > 0) {}
        });
        let mut taken = 0;
        while taken < most && write.write_all(&frames(taken)).await.is_ok() {
            taken += 1;
        }
        drop(write);
        if taken < most {
            timeout(Duration::from_mins(1), self.served).await.unwrap().unwrap();
        }
        reader.abort();
        taken
    }
}

/// The bytes of a frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

// === who speaks something else ===

#[tokio::test(start_paused = true)]
async fn what_is_not_http2_is_closed_at_once() {
    let garbage: Vec<u8> = (0..4_096u32).map(|number| (number * 7_919 % 251) as u8).collect();
    let start = Instant::now();
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"POST /envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client hello",
        &garbage,
        &[0; 1_024],
    ] {
        let mut client = Client::connect(Peer::Unix);
        client.write(bytes).await.unwrap();
        client.read_to_the_end().await;
        client.served.await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn garbage_after_the_preface_is_closed_with_an_error() {
    for bytes in [&[0xff; 64][..], &frame(HEADERS_FRAME, END_HEADERS, 1, &[0xff; 32])] {
        let mut client = Client::greeted().await;
        client.write(bytes).await.unwrap();
        let (codes, _) = client.read_to_the_end().await;
        assert!(codes.iter().any(|code| *code != 0), "{codes:?}");
        client.served.await.unwrap();
    }
}

// === who is slow ===

#[tokio::test(start_paused = true)]
async fn a_preface_must_come_in_time() {
    let start = Instant::now();
    let mut silent = Client::connect(Peer::Unix);
    silent.read_to_the_end().await;
    assert_eq!(start.elapsed(), PREFACE);

    let start = Instant::now();
    let mut slow = Client::connect(Peer::Unix);
    for byte in PREFACE_BYTES {
        sleep(Duration::from_secs(1)).await;
        if slow.write(&[*byte]).await.is_err() {
            break;
        }
    }
    slow.served.await.unwrap();
    assert!(start.elapsed() < PREFACE + Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_no_ping_is_gone() {
    let start = Instant::now();
    let mut client = Client::greeted().await;
    client.read_to_the_end().await;
    assert!(start.elapsed() <= PING_EVERY + PING + Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_message_must_come_in_time() {
    let start = Instant::now();
    let mut client = Client::greeted().await;
    client.frame(HEADERS_FRAME, END_HEADERS, 1, &should_rate_limit()).await.unwrap();
    client.frame(DATA, 0, 1, &[0, 0, 0, 1, 0]).await.unwrap();
    loop {
        let (kind, _, stream, _) = client.read().await.unwrap();
        if kind == HEADERS_FRAME {
            assert_eq!(stream, 1);
            break;
        }
    }
    assert_eq!(start.elapsed(), REQUEST);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_and_a_busy_one_does_not() {
    let start = Instant::now();
    let mut client = Client::greeted().await;
    let busy = IDLE * 3;
    let mut stream = 1;
    while let Some((kind, flags, _, payload)) = client.read().await {
        if kind == PING_FRAME && flags & ACK == 0 {
            client.frame(PING_FRAME, ACK, 0, &payload).await.unwrap();
            if start.elapsed() < busy {
                let block = should_rate_limit();
                client.frame(HEADERS_FRAME, END_HEADERS | END_STREAM, stream, &block).await.unwrap();
                stream += 2;
            }
        }
        if kind == GOAWAY {
            break;
        }
    }
    let elapsed = start.elapsed();
    assert!(elapsed > busy && elapsed < busy + 2 * IDLE + GRACE, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_has_begun_but_not_for_ever() {
    let mut client = Client::greeted().await;
    client.frame(HEADERS_FRAME, END_HEADERS, 1, &should_rate_limit()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    client.stop.send_replace(());
    client.served.await.unwrap();
    assert_eq!(start.elapsed(), GRACE);
}

// === who wants too much ===

#[tokio::test(start_paused = true)]
async fn a_message_that_is_announced_too_large_is_refused_unread() {
    let mut client = Client::greeted().await;
    client.frame(HEADERS_FRAME, END_HEADERS, 1, &should_rate_limit()).await.unwrap();
    client.frame(DATA, 0, 1, &[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]).await.unwrap();
    let start = Instant::now();
    while client.read().await.unwrap().0 != HEADERS_FRAME {}
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_peer_without_rights_is_refused_before_its_message() {
    let mut client = Client::connect(Peer::Address([198, 51, 100, 1].into()));
    client.write(PREFACE_BYTES).await.unwrap();
    client.frame(SETTINGS, 0, 0, &[]).await.unwrap();
    client.frame(HEADERS_FRAME, END_HEADERS, 1, &should_rate_limit()).await.unwrap();
    let start = Instant::now();
    while client.read().await.unwrap().0 != HEADERS_FRAME {}
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn streams_beyond_the_bound_are_refused() {
    let mut client = Client::greeted().await;
    let asked = STREAMS + 50;
    for number in 0..asked {
        client.frame(HEADERS_FRAME, END_HEADERS, 2 * number + 1, &should_rate_limit()).await.unwrap();
    }
    client.frame(PING_FRAME, 0, 0, &[7; 8]).await.unwrap();
    let mut refused = 0;
    loop {
        let (kind, flags, ..) = client.read().await.unwrap();
        match kind {
            RST_STREAM => refused += 1,
            PING_FRAME if flags & ACK != 0 => break,
            _ => {}
        }
    }
    assert_eq!(refused, 50);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_streams_ends_the_connection() {
    let client = Client::greeted().await;
    let taken = client
        .flood(100_000, |number| frame(HEADERS_FRAME, END_HEADERS, 2 * number + 1, &should_rate_limit()))
        .await;
    assert!(taken < 10_000, "{taken}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_resets_ends_the_connection() {
    let client = Client::greeted().await;
    let taken = client
        .flood(100_000, |number| {
            let stream = 2 * number + 1;
            let mut frames = frame(HEADERS_FRAME, END_HEADERS, stream, &should_rate_limit());
            frames.extend(frame(RST_STREAM, 0, stream, &8u32.to_be_bytes()));
            frames
        })
        .await;
    assert!(taken < 10_000, "{taken}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_continuations_ends_the_connection() {
    let client = Client::greeted().await;
    let taken = client
        .flood(100_000, |number| match number {
            0 => frame(HEADERS_FRAME, 0, 1, POST_ROOT),
            // A literal header without indexing: `a: b`.
            _ => frame(CONTINUATION, 0, 1, &[0x00, 1, b'a', 1, b'b']),
        })
        .await;
    assert!(taken < 10_000, "{taken}");
}

#[tokio::test(start_paused = true)]
async fn a_header_list_that_is_too_large_is_refused() {
    let mut client = Client::greeted().await;
    let mut block = should_rate_limit();
    // 200 headers of 8 + 120 bytes: 32 more each count towards the list.
    for number in 0..200 {
        block.extend_from_slice(&[0x00, 8]);
        block.extend_from_slice(format!("x-{number:06}").as_bytes());
        block.push(120);
        block.extend_from_slice(&[b'v'; 120]);
    }
    let (first, rest) = block.split_at(16_000);
    client.frame(HEADERS_FRAME, END_STREAM, 1, first).await.unwrap();
    client.frame(CONTINUATION, END_HEADERS, 1, rest).await.unwrap();
    let answered = loop {
        let (kind, _, stream, payload) = client.read().await.unwrap();
        if stream == 1 {
            break (kind, payload);
        }
    };
    // 431, or a reset; not an answer of the service, whose status is 200 (0x88).
    assert!(answered.0 == RST_STREAM || answered.1[0] != 0x88, "{answered:?}");
}
