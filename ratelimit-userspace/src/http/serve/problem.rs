//! What went wrong, as RFC 9457 wants it told.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{
    HeaderValue, StatusCode,
    header::{CONTENT_TYPE, WWW_AUTHENTICATE},
};
use serde::Serialize;

use super::access::AccessError;

/// The media type of problems.
pub(crate) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// A request that was not decided, and why. The title is that of its status.
#[derive(Debug)]
pub(crate) struct Problem {
    kind: Option<&'static str>,
    status: StatusCode,
    detail: Cow<'static, str>,
}

/// A problem on the wire.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    /// What kind of problem it is; absent: no other than its status tells.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    /// The kind in words.
    pub(crate) title: &'a str,
    /// The status of the answer.
    pub(crate) status: u16,
    /// This occurrence in words.
    pub(crate) detail: &'a str,
    /// Whole seconds after which to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<u64>,
    /// The policies that were violated, under the names that `RateLimit-Policy` gives them.
    #[serde(rename = "violated-policies", skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) violated_policies: &'a [Cow<'a, str>],
}

// === impl Problem ===

impl Problem {
    /// A problem in words for a person.
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: None, status, detail: detail.into() }
    }

    /// The same of a kind that programs tell apart.
    pub(crate) fn of_kind(self, kind: &'static str) -> Self {
        Self { kind: Some(kind), ..self }
    }

    /// The request is wrong.
    pub(crate) fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The same with a status that nginx takes for a failure, where it would take this one for a refusal of
    /// the client.
    pub(crate) fn not_for_nginx(self) -> Self {
        match self.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Self { status: StatusCode::BAD_REQUEST, ..self }
            }
            _ => self,
        }
    }

    /// The words.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        let status = match error {
            AccessError::Unauthenticated => StatusCode::UNAUTHORIZED,
            AccessError::Forbidden | AccessError::NeedsWrite => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { kind, status, detail } = self;
        let document = Document {
            kind,
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            detail: &detail,
            retry_after: None,
            violated_policies: &[],
        };
        let mut response = document.into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

// === impl Document ===

impl Document<'_> {
    /// Its JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        // Strings and numbers alone always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl IntoResponse for Document<'_> {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [(CONTENT_TYPE, PROBLEM_JSON)], self.to_json()).into_response()
    }
}
