use axum::{Router, body::Body, middleware, routing::get};
use http::HeaderValue;
use tower::ServiceExt as _;

use super::*;
use crate::admin::{fixture::Fake, router::Api};

const HERE: Origin = Origin::Tcp(
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 50_000),
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9100),
);

/// Paths to look and to change, over an API with these tokens to look and to change.
fn router(tokens: [Option<&str>; 2]) -> Router {
    let directory = tempfile::tempdir().unwrap();
    let paths = tokens.map(|token| {
        let path = directory.path().join(token?);
        std::fs::write(&path, token?).unwrap();
        Some(path)
    });
    let api = Api::new(Fake::new().handle);
    api.tokens.store(Tokens::read(paths[0].as_deref(), paths[1].as_deref()).unwrap().into());
    Router::new()
        .route("/look", get(async |_: Reader| "seen"))
        .route("/change", get(async |_: Writer| "done"))
        .layer(middleware::from_fn(check_host))
        .with_state(api)
}

async fn ask(router: &Router, origin: Option<Origin>, path: &str, token: &str, hosts: &[&str]) -> u16 {
    let mut request = Request::get(path);
    for host in hosts {
        request = request.header(HOST, HeaderValue::from_str(host).unwrap());
    }
    if !token.is_empty() {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(origin) = origin {
        request = request.extension(origin);
    }
    router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap().status().as_u16()
}

/// The statuses of looking and of changing.
async fn both(router: &Router, origin: Option<Origin>, token: &str) -> [u16; 2] {
    let hosts = ["localhost"];
    [ask(router, origin, "/look", token, &hosts).await, ask(router, origin, "/change", token, &hosts).await]
}

#[tokio::test]
async fn over_the_socket_everything_is_allowed() {
    let router = router([None, None]);
    assert_eq!(both(&router, Some(Origin::Unix(None)), "").await, [200, 200]);
    assert_eq!(ask(&router, Some(Origin::Unix(Some(1))), "/change", "", &["anything"]).await, 200);
}

#[tokio::test]
async fn over_tcp_each_token_gives_its_right() {
    let router = router([Some("looks"), Some("changes")]);
    assert_eq!(both(&router, Some(HERE), "looks").await, [200, 403]);
    assert_eq!(both(&router, Some(HERE), "changes").await, [200, 200]);
    for token in ["", "look", "looks2", "CHANGES"] {
        assert_eq!(both(&router, Some(HERE), token).await, [401, 401], "{token}");
    }
}

#[tokio::test]
async fn over_tcp_nobody_may_ask_where_there_is_no_token() {
    let router = router([None, None]);
    assert_eq!(both(&router, Some(HERE), "").await, [403, 403]);
    assert_eq!(both(&router, Some(HERE), "guess").await, [403, 403]);
}

#[tokio::test]
async fn who_is_not_known_may_nothing() {
    let router = router([Some("looks"), Some("changes")]);
    for origin in [None, Some(Origin::Gone)] {
        assert_eq!(both(&router, origin, "changes").await, [401, 401]);
    }
}

#[tokio::test]
async fn over_tcp_the_host_must_be_this_one() {
    let router = router([Some("looks"), None]);
    let loopback = [
        "localhost",
        "LocalHost:9100",
        "127.0.0.1",
        "127.9.9.9:80",
        "[::1]",
        "[::1]:9100",
        "[::ffff:127.0.0.1]",
    ];
    for host in loopback {
        assert_eq!(ask(&router, Some(HERE), "/look", "looks", &[host]).await, 200, "{host}");
    }
    let others = [
        "evil.example",
        "evil.example:9100",
        "localhost.evil.example",
        "192.0.2.1",
        "0.0.0.0",
        "[::]",
        "127.0.0.1.evil",
        "localhost@evil.example",
        "evil@localhost",
        "",
        "[::1",
        "::1",
    ];
    for host in others {
        assert_eq!(ask(&router, Some(HERE), "/look", "looks", &[host]).await, 421, "{host}");
    }
    assert_eq!(ask(&router, Some(HERE), "/look", "looks", &[]).await, 421, "no host at all");
    assert_eq!(ask(&router, Some(HERE), "/look", "looks", &["localhost", "evil.example"]).await, 421);
    let target = "http://evil.example/look";
    assert_eq!(ask(&router, Some(HERE), target, "looks", &["localhost"]).await, 421);
}
