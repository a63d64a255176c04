//! Forward authentication: a proxy asks with a request of its own before it lets one pass.
//!
//! Each kind of proxy has its path, since each describes the original request in other headers, and a header
//! that a proxy does not set itself may be a client's forgery. So only those are read that the kind at hand
//! always sets, only from proxies that are trusted, and none of them may be missing or there twice. The
//! address of the client is found as in any other request, from the proxy on: it is that peer, or what
//! `X-Forwarded-For` or `Forwarded` says that trusted proxies wrote.

use std::{mem, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderName, StatusCode, Uri,
    header::{FORWARDED, HOST},
};
use percent_encoding::{AsciiSet, percent_encode};
use tokio::time::sleep;

use super::{Asker, Front, Settings, headers, judge, listener::Peer, problem::Problem};
use crate::{
    config::http::ClientAddress,
    http::{ask::Decision, identify},
};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const X_ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const X_ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");

/// Bytes that no URI has; everything else of a target is left as it came.
const NOT_IN_URIS: &AsciiSet = percent_encoding::CONTROLS;

/// A kind of proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    /// `auth_request`, with the shipped configuration. Takes 403 for a refusal and 429 for a failure.
    Nginx,
    /// `ForwardAuth`.
    Traefik,
    /// `forward_auth`.
    Caddy,
    /// `ext_authz` with `http_service`: the original method and, after a prefix, the original path.
    Envoy,
}

type Shared = State<Arc<Front>>;

/// Who asks, or why nobody may.
type Asks = Result<Asker, Problem>;

pub(super) async fn nginx(front: Shared, asker: Asks, request: Request) -> Result<Response, Problem> {
    answer(Proxy::Nginx, front, asker, request).await
}

pub(super) async fn traefik(front: Shared, asker: Asks, request: Request) -> Result<Response, Problem> {
    answer(Proxy::Traefik, front, asker, request).await
}

pub(super) async fn caddy(front: Shared, asker: Asks, request: Request) -> Result<Response, Problem> {
    answer(Proxy::Caddy, front, asker, request).await
}

pub(super) async fn envoy(front: Shared, asker: Asks, request: Request) -> Result<Response, Problem> {
    answer(Proxy::Envoy, front, asker, request).await
}

/// Decides, or tells the operator why not.
async fn answer(
    proxy: Proxy,
    State(front): Shared,
    asker: Asks,
    request: Request,
) -> Result<Response, Problem> {
    let decided = match asker {
        Ok(asker) => decide(proxy, &front, asker, request).await,
        Err(problem) => Err(problem),
    };
    decided.map_err(|problem| {
        front.complain(proxy, &problem);
        if proxy == Proxy::Nginx { problem.not_for_nginx() } else { problem }
    })
}

async fn decide(
    proxy: Proxy,
    front: &Front,
    Asker { peer, settings, .. }: Asker,
    request: Request,
) -> Result<Response, Problem> {
    let original = original(proxy, peer, &settings, request)?;
    let answer = front.judge(settings.identifier.identify(&original, 1), peer);
    if answer.decision == Decision::Deny {
        let mut response = judge::refusal(&answer, &settings.answer);
        if proxy == Proxy::Nginx {
            *response.status_mut() = StatusCode::FORBIDDEN;
        }
        return Ok(response);
    }
    if let Some(delay) = answer.delay {
        sleep(Duration::from_nanos(delay)).await;
    }
    let mut response = Body::empty().into_response();
    headers::add(&answer, &settings.answer, response.headers_mut());
    Ok(response)
}

/// The request that the proxy asks about.
fn original(
    proxy: Proxy,
    peer: Peer,
    settings: &Settings,
    request: Request,
) -> Result<identify::Request, Problem> {
    let peer = match peer {
        Peer::Address(address) if !settings.trusts(peer) => {
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!(
                    "{address} is not one of the limiter's `trusted_proxies`, so what it says of a request is \
                     not believed; add it there"
                ),
            ));
        }
        Peer::Address(address) => Some(address),
        Peer::Unix => None,
    };
    let (mut parts, _) = request.into_parts();
    let mut headers = mem::take(&mut parts.headers);
    let (method, target, host) = match proxy {
        Proxy::Nginx => (
            text(&headers, &X_ORIGINAL_METHOD)?,
            target(&headers, &X_ORIGINAL_URI)?,
            text(&headers, &X_FORWARDED_HOST)?,
        ),
        Proxy::Traefik | Proxy::Caddy => (
            text(&headers, &X_FORWARDED_METHOD)?,
            target(&headers, &X_FORWARDED_URI)?,
            text(&headers, &X_FORWARDED_HOST)?,
        ),
        Proxy::Envoy => (parts.method.as_str().to_owned(), envoy_target(&parts.uri)?, text(&headers, &HOST)?),
    };
    let chain = match settings.client_address {
        ClientAddress::Peer => None,
        ClientAddress::XForwardedFor => Some(X_FORWARDED_FOR),
        ClientAddress::Forwarded => Some(FORWARDED),
    };
    if let Some(chain) = chain
        && !headers.contains_key(&chain)
    {
        return Err(missing(&chain));
    }
    // That of the question; the original one is `host`.
    headers.remove(HOST);
    Ok(identify::Request { method, target, host: Some(host), headers, peer })
}

/// The one value of a header.
fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if !value.is_empty() => Ok(value.as_bytes()),
        (Some(_), Some(_)) => Err(Problem::bad_request(format!(
            "the header {name} is there twice; the proxy must replace the client's by its own"
        ))),
        _ => Err(missing(name)),
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Result<String, Problem> {
    let value = value(headers, name)?;
    String::from_utf8(value.to_vec())
        .map_err(|_| Problem::bad_request(format!("the header {name} is no text in UTF-8")))
}

/// A request target, in the characters that a URI may have.
fn target(headers: &HeaderMap, name: &HeaderName) -> Result<String, Problem> {
    Ok(percent_encode(value(headers, name)?, NOT_IN_URIS).to_string())
}

fn missing(name: &HeaderName) -> Problem {
    Problem::bad_request(format!(
        "the header {name} is missing, which tells of the original request; the proxy must set it"
    ))
}

/// What follows the prefix, as it came: path and query.
fn envoy_target(uri: &Uri) -> Result<String, Problem> {
    let whole = uri.path_and_query().map_or("", |whole| whole.as_str());
    match whole.strip_prefix(Proxy::ENVOY_PREFIX) {
        Some(rest) if rest.starts_with('/') => Ok(rest.to_owned()),
        _ => Err(Problem::bad_request(format!(
            "the original path must follow `{}`; set it as `path_prefix` of the proxy",
            Proxy::ENVOY_PREFIX
        ))),
    }
}

// === impl Proxy ===

impl Proxy {
    const ENVOY_PREFIX: &str = "/auth/envoy";

    /// The path of the original path `/`.
    pub(super) const ENVOY_ROOT: &str = "/auth/envoy/";

    /// The path of every other.
    pub(super) const ENVOY_REST: &str = "/auth/envoy/{*original}";
}

#[cfg(test)]
mod tests;
