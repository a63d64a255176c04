//! Envoy's units of time and our windows.

use std::num::NonZeroU64;

use envoy_types::pb::envoy::{
    service::ratelimit::v3::rate_limit_response::rate_limit::Unit, r#type::v3::RateLimitUnit,
};

use crate::config::http::{CalendarUnit, Window};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;

/// The window of a unit, in nanoseconds; `None` of [`RateLimitUnit::Unknown`].
pub(super) fn window(unit: RateLimitUnit) -> Option<NonZeroU64> {
    NonZeroU64::new(match unit {
        RateLimitUnit::Unknown => 0,
        RateLimitUnit::Second => SECOND,
        RateLimitUnit::Minute => MINUTE,
        RateLimitUnit::Hour => HOUR,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Month => MONTH,
        RateLimitUnit::Year => YEAR,
    })
}

/// The unit of a window, if it is one of Envoy's.
pub(super) fn unit(window: &Window) -> Unit {
    match window {
        Window::Fixed(nanos) => match nanos.get() {
            SECOND => Unit::Second,
            MINUTE => Unit::Minute,
            HOUR => Unit::Hour,
            DAY => Unit::Day,
            WEEK => Unit::Week,
            MONTH => Unit::Month,
            YEAR => Unit::Year,
            _ => Unit::Unknown,
        },
        Window::Calendar(CalendarUnit::Day, _) => Unit::Day,
        Window::Calendar(CalendarUnit::Week, _) => Unit::Week,
        Window::Calendar(CalendarUnit::Month, _) => Unit::Month,
    }
}
