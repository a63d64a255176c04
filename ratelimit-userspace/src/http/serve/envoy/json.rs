//! `POST /json`: Envoy's rate-limit service for those who do not speak gRPC. The same messages in the JSON form
//! of protobufs; 200 or, over the limit, 429. What would be a status of gRPC is a problem with status 400.

mod message;

use std::sync::Arc;

use axum::{extract::State, response::Response};
use envoy_types::pb::{
    envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    },
    google::protobuf::Duration,
};
use http::StatusCode;
use serde::Serialize;

use self::message::Message;
use super::{connection::MESSAGE, question::Question, reply};
use crate::http::serve::{
    Asker, Front,
    access::Rights,
    body::Payload,
    check::{json, parse},
    problem::Problem,
};

/// [`RateLimitResponse`], less its body: who reads JSON can say it in words of his own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reply<'a> {
    overall_code: &'static str,
    statuses: Vec<Status<'a>>,
    response_headers_to_add: Vec<Header<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<Limit<'a>>,
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Limit<'a> {
    name: &'a str,
    requests_per_unit: u32,
    unit: &'static str,
}

#[derive(Debug, Serialize)]
struct Header<'a> {
    key: &'a str,
    value: &'a str,
}

/// The handler.
pub(in crate::http::serve) async fn should_rate_limit(
    State(front): State<Arc<Front>>,
    asker: Asker,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    if body.len() > MESSAGE {
        let detail = format!("a message may have at most {MESSAGE} bytes");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    let request: RateLimitRequest = parse::<Message>(&body)?.into();
    let Question { ask, needs } = Question::new(&request, || front.limiter.rules())
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    if needs > Rights::Ask {
        asker.may_write()?;
    }
    let answer = front.decide(&ask, asker.peer, front.present());
    let response = reply::response(&answer, &asker.settings.answer);
    let over = response.overall_code == i32::from(Code::OverLimit);
    let status = if over { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
    Ok(json(status, &Reply::from(&response)))
}

fn code(code: i32) -> &'static str {
    Code::try_from(code).unwrap_or(Code::Unknown).as_str_name()
}

/// Seconds with as many digits as protobufs give them: none, three, six or nine.
fn duration(duration: &Duration) -> String {
    let Duration { seconds, nanos } = *duration;
    match nanos {
        0 => format!("{seconds}s"),
        nanos if nanos % 1_000_000 == 0 => format!("{seconds}.{:03}s", nanos / 1_000_000),
        nanos if nanos % 1_000 == 0 => format!("{seconds}.{:06}s", nanos / 1_000),
        nanos => format!("{seconds}.{nanos:09}s"),
    }
}

// === impl Reply ===

impl<'a> From<&'a RateLimitResponse> for Reply<'a> {
    fn from(response: &'a RateLimitResponse) -> Self {
        let headers = response.response_headers_to_add.iter();
        Self {
            overall_code: code(response.overall_code),
            statuses: response.statuses.iter().map(Status::from).collect(),
            response_headers_to_add: headers
                .map(|header| Header { key: &header.key, value: &header.value })
                .collect(),
        }
    }
}

// === impl Status ===

impl<'a> From<&'a DescriptorStatus> for Status<'a> {
    fn from(status: &'a DescriptorStatus) -> Self {
        Self {
            code: code(status.code),
            current_limit: status.current_limit.as_ref().map(Limit::from),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status.duration_until_reset.as_ref().map(duration),
        }
    }
}

// === impl Limit ===

impl<'a> From<&'a RateLimit> for Limit<'a> {
    fn from(limit: &'a RateLimit) -> Self {
        let RateLimit { name, requests_per_unit, unit } = limit;
        let unit = Unit::try_from(*unit).unwrap_or(Unit::Unknown).as_str_name();
        Self { name, requests_per_unit: *requests_per_unit, unit }
    }
}

#[cfg(test)]
mod tests;
