//! `GET` and `DELETE /v1/counters?domain=api&key=client_ip&value=192.0.2.1`: one counter, found as a request
//! finds it. The entries of its descriptor are pairs of `key` and `value`, in order; an entry without a value
//! has the empty one. What is secret stands there as answers and logs show it, not as clients send it.

use std::{borrow::Cow, sync::Arc};

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use http::StatusCode;
use serde::Serialize;

use super::{Asker, Front, check::json, problem::Problem};
use crate::http::{
    ask::{Ask, Descriptor, Entry, Whose},
    limiter::Inspected,
    wire::Seconds,
};

#[derive(Debug, Serialize)]
struct Counter<'a> {
    rule: &'a str,
    limit: u64,
    remaining: u64,
    used: u64,
    reset: Seconds,
    identity: &'a str,
}

#[derive(Debug, Serialize)]
struct Reset {
    /// Whether there was anything counted.
    reset: bool,
}

/// Where a counter stands.
pub(super) async fn inspect(
    State(front): State<Arc<Front>>,
    _: Asker,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let ask = parse(query.as_deref().unwrap_or_default())?;
    let Inspected { rule, standing, used, identity } = find(&front, &ask)?;
    let counter = Counter {
        rule: &rule,
        limit: standing.limit,
        remaining: standing.remaining,
        used,
        reset: Seconds(standing.reset),
        identity: &identity,
    };
    Ok(json(StatusCode::OK, &counter))
}

/// Forgets what was counted.
pub(super) async fn reset(
    State(front): State<Arc<Front>>,
    asker: Asker,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    asker.may_write()?;
    let ask = parse(query.as_deref().unwrap_or_default())?;
    find(&front, &ask)?;
    let reset = front.limiter.reset(&ask) > 0;
    Ok(json(StatusCode::OK, &Reset { reset }))
}

fn find(front: &Front, ask: &Ask<'_>) -> Result<Inspected, Problem> {
    let found = front.limiter.inspect(ask, front.present());
    found.into_iter().flatten().next().ok_or_else(|| {
        Problem::new(
            StatusCode::NOT_FOUND,
            "no rule that limits matches these entries, so there is no counter",
        )
    })
}

fn parse(query: &str) -> Result<Ask<'_>, Problem> {
    let mut domain = None;
    let mut entries: Vec<Entry<'_>> = Vec::new();
    let mut valued = true;
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "domain" if domain.is_none() => domain = Some(text),
            "domain" => return Err(Problem::bad_request("`domain` is there twice")),
            "key" if text.is_empty() => {
                return Err(Problem::bad_request("a `key` is empty; no rule can match it"));
            }
            "key" => {
                entries.push(Entry { key: text, value: Cow::Borrowed("") });
                valued = false;
            }
            "value" => match entries.last_mut() {
                Some(entry) if !valued => {
                    entry.value = text;
                    valued = true;
                }
                _ => return Err(Problem::bad_request("each `value` belongs to the `key` before it")),
            },
            other => {
                return Err(Problem::bad_request(format!(
                    "unknown parameter {other:?}; there are `domain`, `key` and `value`"
                )));
            }
        }
    }
    let domain =
        domain.ok_or_else(|| Problem::bad_request("`domain` is missing: the one whose rules apply"))?;
    if entries.is_empty() {
        return Err(Problem::bad_request(
            "there is no entry; name one as in `key=client_ip&value=192.0.2.1`",
        ));
    }
    Ok(Ask {
        domain,
        descriptors: vec![Descriptor { entries, hits: 0, limit: None }],
        peek: true,
        whose: Whose::Described,
    })
}

#[cfg(test)]
mod tests;
