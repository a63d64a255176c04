//! Real web servers with the configurations in `integrations/`, each in front of an application and asking a
//! limiter in this process: what clients get, and that nobody gets past.

#[path = "http_servers/client.rs"]
mod client;
#[path = "http_servers/limiter.rs"]
mod limiter;
#[path = "http_servers/server.rs"]
mod server;

use client::{Client, Reply};
use server::{Kind, Stack};

/// Says who a client is to the limit, as far as a header could.
const FORGERIES: &[(&str, &str)] = &[
    ("X-Forwarded-For", "10.9.9.9"),
    ("Forwarded", "for=10.9.9.9"),
    ("X-Real-IP", "10.9.9.9"),
    ("X-Original-URI", "/free"),
    ("X-Original-URL", "/free"),
    ("X-Original-Method", "BREW"),
    ("X-Forwarded-Uri", "/free"),
    ("X-Forwarded-Method", "BREW"),
    ("X-Forwarded-Host", "free.example"),
    ("X-Rewrite-URL", "/free"),
    // Headers that are named here are for the proxy alone, if it believes that.
    ("Connection", "close, X-Original-URI, X-Forwarded-For, X-Forwarded-Uri, X-Forwarded-Method"),
];

/// A client on loopback, by the last part of its address.
fn client(stack: &Stack, number: u8) -> Client {
    Client::new(stack.address, [127, 0, 0, number].into())
}

/// Uses up the three requests that a client has.
fn spend(client: &Client) {
    for remaining in ["2", "1", "0"] {
        let reply = client.get("/x", &[]);
        assert_eq!((reply.status, &*reply.body), (200, "application"), "{reply:?}");
        assert_eq!(reply.header("X-Ratelimit-Limit"), Some("3"), "{reply:?}");
        assert_eq!(reply.header("X-Ratelimit-Remaining"), Some(remaining), "{reply:?}");
        let quota = format!("\"per-address\";r={remaining};t=600");
        assert_eq!(reply.header("RateLimit"), Some(&*quota), "{reply:?}");
        assert_eq!(reply.header("RateLimit-Policy"), Some("\"per-address\";q=3;w=600"), "{reply:?}");
        assert_eq!(reply.header("Retry-After"), None, "{reply:?}");
    }
}

fn is_refused(reply: &Reply) {
    assert_eq!(reply.status, 429, "{reply:?}");
    assert_eq!(reply.header("X-Ratelimit-Remaining"), Some("0"), "{reply:?}");
    assert_eq!(reply.header("X-Ratelimit-Limit"), Some("3"), "{reply:?}");
    let retry = reply.header("Retry-After").expect("says when to come back");
    assert!((1..=600).contains(&retry.parse::<u32>().unwrap()), "{reply:?}");
    assert_eq!(reply.header("X-Ratelimit-Retry-After"), Some(retry), "{reply:?}");
    assert!(reply.header("RateLimit").unwrap().starts_with("\"per-address\";r=0;t="), "{reply:?}");
    assert_eq!(reply.header("Content-Type"), Some("application/problem+json"), "{reply:?}");
    let problem: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(problem["status"], 429);
    assert!(problem["detail"].is_string() && problem["title"].is_string(), "{problem}");
}

/// What holds of every server.
fn keeps_clients_to_their_limit(kind: Kind) {
    let stack = Stack::start(kind);
    let (first, second, third) = (client(&stack, 11), client(&stack, 12), client(&stack, 13));
    spend(&first);
    is_refused(&first.get("/x", &[]));
    is_refused(&first.get("/other?path=too", &[]));
    spend(&second);
    assert_eq!(first.get("/free", &[]).status, 200, "what nothing limits passes");
    assert_eq!(first.get("/free", &[]).header("X-Ratelimit-Limit"), None);

    for forgery in FORGERIES {
        is_refused(&first.get("/x", &[*forgery]));
    }
    is_refused(&first.get("/x", FORGERIES));
    is_refused(&first.get("/%66ree/../x", FORGERIES));
    // Nor does anybody pay for whom a client claims to be.
    third.get("/x", &[("X-Forwarded-For", "127.0.0.14"), ("X-Real-IP", "127.0.0.14")]);
    spend(&client(&stack, 14));
}

/// Over a Unix socket the server needs no address to be trusted by.
fn asks_over_a_unix_socket(kind: Kind) {
    let stack = Stack::start_on_unix(kind);
    let (first, second) = (client(&stack, 11), client(&stack, 12));
    spend(&first);
    is_refused(&first.get("/x", FORGERIES));
    spend(&second);
}

/// What a client sends does not make the limiter's answer fail, so that it would be let through.
fn odd_requests_count_too(kind: Kind) {
    let stack = Stack::start(kind);
    let client = client(&stack, 11);
    spend(&client);
    let long = "y".repeat(6000);
    let many: Vec<(&str, &str)> = vec![("X-Many", "z"); 60];
    for headers in [&[("X-Odd", "caf\u{e9} \" \\ \t;")][..], &[("Cookie", &*long)], &many] {
        let reply = client.get("/x", headers);
        assert_ne!(reply.status, 200, "{reply:?}");
    }
    for target in ["/x?%zz", "/x?a=%00", "/caf\u{e9}", "//x", "/x?\"<>|\\^`{}"] {
        let reply = client.get(target, &[]);
        assert_ne!(reply.status, 200, "{target}: {reply:?}");
    }
    let control = client.raw(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Odd: \x01\x02\r\n\r\n");
    assert_ne!(control.status, 200, "{control:?}");
}

/// Methods and bodies go to the application, and not to the limiter.
fn requests_with_bodies_count_too(kind: Kind) {
    let stack = Stack::start(kind);
    let client = client(&stack, 11);
    let head = "Host: a\r\nConnection: close\r\n";
    for request in [
        format!("POST /x HTTP/1.1\r\n{head}Content-Length: 5\r\n\r\nhello"),
        format!("PUT /x HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        format!("DELETE /x HTTP/1.1\r\n{head}\r\n"),
    ] {
        let reply = client.raw(request.as_bytes());
        let expected = request.split(' ').next().unwrap();
        assert_eq!((reply.status, reply.header("X-Seen")), (200, Some(expected)), "{reply:?}");
        let body = if request.contains("hello") { "hello" } else { "" };
        assert_eq!(reply.header("X-Body"), Some(body), "{reply:?}");
    }
    is_refused(&client.raw(format!("POST /x HTTP/1.1\r\n{head}Content-Length: 5\r\n\r\nhello").as_bytes()));
}

/// How a server treats requests while nobody answers its questions.
fn without_a_limiter(kind: Kind, status: u16) {
    let mut stack = Stack::start(kind);
    let client = client(&stack, 11);
    spend(&client);
    stack.stop_limiter();
    for _ in 0..2 {
        let reply = client.get("/x", &[]);
        assert_eq!(reply.status, status, "{reply:?}");
    }
}

#[test]
fn nginx_keeps_clients_to_their_limit() {
    keeps_clients_to_their_limit(Kind::Nginx);
}

#[test]
fn nginx_counts_requests_with_bodies_too() {
    requests_with_bodies_count_too(Kind::Nginx);
}

#[test]
fn nginx_asks_over_a_unix_socket() {
    asks_over_a_unix_socket(Kind::Nginx);
}

#[test]
fn nginx_counts_odd_requests_too() {
    odd_requests_count_too(Kind::Nginx);
}

#[test]
fn nginx_lets_requests_pass_without_a_limiter() {
    without_a_limiter(Kind::Nginx, 200);
}

#[test]
fn nginx_leaves_its_own_refusals_alone() {
    let stack = Stack::start(Kind::Nginx);
    let client = client(&stack, 11);
    for _ in 0..5 {
        let reply = client.get("/forbidden", &[]);
        assert_eq!(reply.status, 403, "{reply:?}");
    }
    assert_eq!(client.get("/_ratelimit", &[]).status, 404, "nobody asks from outside");
}

#[test]
fn haproxy_keeps_clients_to_their_limit() {
    keeps_clients_to_their_limit(Kind::Haproxy);
}

#[test]
fn haproxy_counts_requests_with_bodies_too() {
    requests_with_bodies_count_too(Kind::Haproxy);
}

#[test]
fn haproxy_asks_over_a_unix_socket() {
    asks_over_a_unix_socket(Kind::Haproxy);
}

#[test]
fn haproxy_counts_odd_requests_too() {
    odd_requests_count_too(Kind::Haproxy);
}

#[test]
fn haproxy_lets_requests_pass_without_a_limiter() {
    without_a_limiter(Kind::Haproxy, 200);
}

#[test]
fn haproxy_refuses_without_a_limiter_when_told_so() {
    without_a_limiter(Kind::HaproxyClosed, 503);
}

#[test]
fn caddy_keeps_clients_to_their_limit() {
    keeps_clients_to_their_limit(Kind::Caddy);
}

#[test]
fn caddy_counts_requests_with_bodies_too() {
    requests_with_bodies_count_too(Kind::Caddy);
}

#[test]
fn caddy_asks_over_a_unix_socket() {
    asks_over_a_unix_socket(Kind::Caddy);
}

#[test]
fn caddy_counts_odd_requests_too() {
    odd_requests_count_too(Kind::Caddy);
}

#[test]
fn caddy_refuses_without_a_limiter() {
    without_a_limiter(Kind::Caddy, 502);
}
