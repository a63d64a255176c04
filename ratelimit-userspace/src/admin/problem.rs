//! What goes wrong, as RFC 9457 wants it told. The kinds that programs tell apart:
//!
//! | type | status | what |
//! |---|---|---|
//! | `urn:ratelimit:invalid` | 422 | what was sent is wrong |
//! | `urn:ratelimit:conflict` | 409 | it does not go together with what is there |
//! | `urn:ratelimit:locked-out` | 409 | it would cut the connection of who asks; `force` does it all the same |
//! | `urn:ratelimit:full` | 507 | there is no room for so many blocks |
//! | `urn:ratelimit:not-found` | 404 | there is no such thing |
//! | `urn:ratelimit:failed` | 500 | the kernel or the disk did not let it happen |

use http::StatusCode;

use super::{
    command::{Kind, Refusal},
    read::ReadError,
};
pub(crate) use crate::http::serve::problem::Problem;

// === impl Kind ===

impl Kind {
    const ALL: [Self; 6] =
        [Self::Invalid, Self::Conflict, Self::LockedOut, Self::Full, Self::NotFound, Self::Failed];

    /// The `type` of its problems.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "urn:ratelimit:invalid",
            Self::Conflict => "urn:ratelimit:conflict",
            Self::LockedOut => "urn:ratelimit:locked-out",
            Self::Full => "urn:ratelimit:full",
            Self::NotFound => "urn:ratelimit:not-found",
            Self::Failed => "urn:ratelimit:failed",
        }
    }

    /// The kind whose problems have this `type`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The status of its problems.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Conflict | Self::LockedOut => StatusCode::CONFLICT,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

// === conversions ===

impl From<Refusal> for Problem {
    fn from(Refusal { kind, message }: Refusal) -> Self {
        Self::new(kind.status(), message).of_kind(kind.name())
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::NoPolicy(_) => Kind::NotFound,
            _ => Kind::Failed,
        };
        Refusal::from_error(kind, &error).into()
    }
}
