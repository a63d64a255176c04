use http::{Request as Asked, request};

use super::*;
use crate::http::serve::fixture::{Bed, SECOND, Told};

/// What a proxy of this kind sends about `GET /x?y=1` of `example.org` by a client.
fn about(proxy: Proxy, client: &str) -> request::Builder {
    let request = match proxy {
        Proxy::Nginx => Asked::get("/auth/nginx")
            .header("x-original-method", "GET")
            .header("x-original-uri", "/x?y=1")
            .header("x-forwarded-host", "example.org"),
        Proxy::Traefik => forwarded("/auth/traefik"),
        Proxy::Caddy => forwarded("/auth/caddy"),
        Proxy::Envoy => Asked::get("/auth/envoy/x?y=1").header("host", "example.org"),
    };
    request.header("x-forwarded-for", client)
}

fn forwarded(path: &str) -> request::Builder {
    Asked::get(path)
        .header("x-forwarded-method", "GET")
        .header("x-forwarded-uri", "/x?y=1")
        .header("x-forwarded-host", "example.org")
}

const ALL: [Proxy; 4] = [Proxy::Nginx, Proxy::Traefik, Proxy::Caddy, Proxy::Envoy];

async fn ask(bed: &Bed, proxy: Proxy, client: &str) -> Told {
    bed.ask_from("127.0.0.1", about(proxy, client), "").await
}

/// The original request that is understood, over a Unix socket.
fn understood(proxy: Proxy, request: request::Builder) -> Result<identify::Request, String> {
    let bed = Bed::with(|config| config.client_address = ClientAddress::Peer);
    let request = request.body(Body::empty()).unwrap();
    original(proxy, Peer::Unix, &bed.front.settings.load(), request)
        .map_err(|problem| problem.detail().to_owned())
}

#[tokio::test]
async fn clients_pass_until_their_limit_and_are_told_their_quota() {
    for proxy in ALL {
        let bed = Bed::new();
        for remaining in ["1", "0"] {
            let told = ask(&bed, proxy, "192.0.2.1").await;
            assert_eq!((told.status.as_u16(), &*told.body), (200, ""), "{proxy:?}");
            assert_eq!(told.header("x-ratelimit-remaining"), Some(remaining));
        }
        let told = ask(&bed, proxy, "192.0.2.1").await;
        let refused = if proxy == Proxy::Nginx { 403 } else { 429 };
        assert_eq!(told.status.as_u16(), refused, "{proxy:?}");
        assert_eq!(told.header("retry-after"), Some("60"));
        assert_eq!(told.header("content-type"), Some("application/problem+json"));
        let problem = told.json();
        assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
        assert_eq!((&problem["status"], &problem["retry_after"]), (&429.into(), &60.into()));
        assert_eq!(problem["violated-policies"], serde_json::json!(["per-client_ip"]));
        assert!(problem["detail"].as_str().unwrap().ends_with("Try again in 60 seconds."), "{problem}");
        assert_eq!(ask(&bed, proxy, "192.0.2.2").await.status, 200, "{proxy:?}: others are counted apart");
    }
}

#[tokio::test]
async fn what_clients_write_before_the_proxies_address_is_not_believed() {
    let bed = Bed::new();
    for forged in ["10.9.9.9", "10.9.9.8", "unknown"] {
        ask(&bed, Proxy::Caddy, &format!("{forged}, 192.0.2.1")).await;
    }
    assert_eq!(ask(&bed, Proxy::Caddy, "10.9.9.7, 192.0.2.1").await.status, 429);
    assert_eq!(
        ask(&bed, Proxy::Caddy, "192.0.2.1, 127.0.0.5").await.status,
        429,
        "behind two trusted proxies"
    );
}

#[tokio::test]
async fn only_trusted_proxies_are_believed() {
    let bed = Bed::with(|config| {
        config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        config.access.allow_from = vec!["0.0.0.0/0".parse().unwrap()];
    });
    for stranger in ["127.0.0.1", "192.0.2.9"] {
        let told = bed.ask_from(stranger, about(Proxy::Traefik, "192.0.2.1"), "").await;
        told.is_problem(403, "`trusted_proxies`");
        let told = bed.ask_from(stranger, about(Proxy::Nginx, "192.0.2.1"), "").await;
        told.is_problem(400, "`trusted_proxies`");
    }
    for trusted in ["10.0.0.7", "unix"] {
        assert_eq!(
            bed.ask_from(trusted, about(Proxy::Traefik, "192.0.2.1"), "").await.status,
            200,
            "{trusted}"
        );
    }
    let third = bed.ask_from("10.0.0.8", about(Proxy::Traefik, "192.0.2.1"), "").await;
    assert_eq!(third.status, 429, "one client, over whichever proxy");
}

#[tokio::test]
async fn a_trusted_proxy_that_may_not_ask_is_turned_away() {
    let bed = Bed::with(|config| config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()]);
    bed.ask_from("10.0.0.7", about(Proxy::Traefik, "192.0.2.1"), "").await.is_problem(403, "allow_from");
}

#[tokio::test]
async fn a_description_that_lacks_something_passes_nobody() {
    let bed = Bed::new();
    for proxy in ALL {
        let whole = about(proxy, "192.0.2.1");
        let names: Vec<HeaderName> = whole.headers_ref().unwrap().keys().cloned().collect();
        for name in names {
            let mut lacking = about(proxy, "192.0.2.1");
            lacking.headers_mut().unwrap().remove(&name);
            bed.ask_from("127.0.0.1", lacking, "").await.is_problem(400, name.as_str());
            let mut empty = about(proxy, "192.0.2.1");
            empty.headers_mut().unwrap().insert(&name, http::HeaderValue::from_static(""));
            if name != X_FORWARDED_FOR {
                bed.ask_from("127.0.0.1", empty, "").await.is_problem(400, name.as_str());
                let twice = about(proxy, "192.0.2.1").header(&name, "forged");
                bed.ask_from("127.0.0.1", twice, "").await.is_problem(400, "twice");
            }
        }
    }
    let nothing = bed.ask_from("127.0.0.1", Asked::get("/auth/envoy/").header("host", "a"), "").await;
    nothing.is_problem(400, "x-forwarded-for");
    assert_eq!(bed.ask_from("127.0.0.1", Asked::get("/auth/envoy"), "").await.status, 404);
    assert_eq!(bed.ask_from("127.0.0.1", Asked::get("/auth/other"), "").await.status, 404);
}

#[tokio::test]
async fn headers_of_another_kind_of_proxy_are_ignored() {
    let with_forgeries = |proxy| {
        about(proxy, "192.0.2.1").header("x-rewrite-url", "/queue").header("x-original-url", "http://a/queue")
    };
    let nginx =
        with_forgeries(Proxy::Nginx).header("x-forwarded-uri", "/queue").header("x-forwarded-method", "PUT");
    let caddy =
        with_forgeries(Proxy::Caddy).header("x-original-uri", "/queue").header("x-original-method", "PUT");
    for (proxy, request) in [(Proxy::Nginx, nginx), (Proxy::Caddy, caddy)] {
        let request = understood(proxy, request).unwrap();
        assert_eq!((&*request.method, &*request.target), ("GET", "/x?y=1"), "{proxy:?}");
    }
}

#[test]
fn the_original_request_is_what_the_proxy_tells() {
    for proxy in ALL {
        let request = understood(proxy, about(proxy, "192.0.2.1").header("x-api-key", "k")).unwrap();
        assert_eq!((&*request.method, &*request.target), ("GET", "/x?y=1"), "{proxy:?}");
        assert_eq!(request.host.as_deref(), Some("example.org"));
        assert!(
            !request.headers.contains_key(HOST),
            "{proxy:?}: the host of the question is not the client's"
        );
        assert_eq!(request.headers["x-api-key"], "k");
        assert_eq!(request.peer, None);
    }
}

#[test]
fn envoys_path_is_kept_as_it_came() {
    let target = |uri: &str| {
        let request = Asked::builder().method("PATCH").uri(uri).header("host", "a");
        understood(Proxy::Envoy, request).map(|request| (request.method, request.target))
    };
    for (uri, original) in [
        ("/auth/envoy/", "/"),
        ("/auth/envoy/a/b?c=d&e", "/a/b?c=d&e"),
        ("/auth/envoy//double//slash", "//double//slash"),
        ("/auth/envoy/%2e%2e/%2F?%zz", "/%2e%2e/%2F?%zz"),
        ("/auth/envoy/auth/envoy/x", "/auth/envoy/x"),
    ] {
        assert_eq!(target(uri), Ok(("PATCH".to_owned(), original.to_owned())), "{uri}");
    }
    assert!(target("/auth/envoyx/").unwrap_err().contains("`path_prefix`"));
}

#[test]
fn bytes_that_no_uri_has_are_encoded_as_one_would() {
    let request = about(Proxy::Nginx, "192.0.2.1");
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    parts.headers.insert(X_ORIGINAL_URI, http::HeaderValue::from_bytes(b"/caf\xe9/\xc3\xa9 %41\"").unwrap());
    let request = Asked::get("/auth/nginx");
    let mut request = request;
    *request.headers_mut().unwrap() = parts.headers;
    assert_eq!(understood(Proxy::Nginx, request).unwrap().target, "/caf%E9/%C3%A9 %41\"");
}

#[test]
fn a_host_that_is_no_text_is_refused() {
    let mut request = about(Proxy::Caddy, "192.0.2.1");
    let host = http::HeaderValue::from_bytes(b"ex\xff").unwrap();
    request.headers_mut().unwrap().insert(X_FORWARDED_HOST, host);
    assert!(understood(Proxy::Caddy, request).unwrap_err().contains("UTF-8"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_must_wait_is_held_so_long() {
    let bed = Bed::new();
    let queue = || {
        let request = about(Proxy::Caddy, "192.0.2.1");
        let mut request = request;
        request.headers_mut().unwrap().insert(X_FORWARDED_URI, http::HeaderValue::from_static("/queue"));
        bed.ask_from("127.0.0.1", request, "")
    };
    for expected in 0..3 {
        let begun = tokio::time::Instant::now();
        assert_eq!(queue().await.status, 200);
        let waited = begun.elapsed().as_millis();
        assert!((expected * 1000..expected * 1000 + 10).contains(&waited), "{waited} ms");
    }
    assert_eq!(queue().await.status, 429);
    assert_eq!(SECOND, 1_000_000_000);
}

#[tokio::test]
async fn a_missing_entry_that_must_be_there_is_refused_in_words() {
    let bed = Bed::new();
    let mut request = about(Proxy::Caddy, "192.0.2.1");
    request.headers_mut().unwrap().insert(X_FORWARDED_URI, http::HeaderValue::from_static("/keyed"));
    let told = bed.ask_from("127.0.0.1", request, "").await;
    assert_eq!(told.status, 429);
    assert_eq!(told.header("retry-after"), None);
    let problem = told.json();
    assert!(problem["detail"].as_str().unwrap().contains("API key"), "{problem}");
    assert_eq!(problem.get("type"), None, "no quota was exceeded");
}

#[tokio::test]
async fn what_nothing_limits_passes_without_fields() {
    let bed = Bed::with(|config| config.identify.clear());
    let told = ask(&bed, Proxy::Nginx, "192.0.2.1").await;
    assert_eq!(told.status, 200);
    assert!(told.headers.keys().all(|name| !name.as_str().contains("ratelimit")), "{told:?}");
}

#[tokio::test]
async fn the_words_can_be_configured() {
    let bed = Bed::with(|config| config.answer.text = Some("Bitte später.".to_owned()));
    for _ in 0..2 {
        ask(&bed, Proxy::Envoy, "192.0.2.1").await;
    }
    assert_eq!(ask(&bed, Proxy::Envoy, "192.0.2.1").await.json()["detail"], "Bitte später.");
}
