//! What a limit means, in plain words.

mod bound;
mod duration;

use self::{bound::capacity, duration::window_name};
pub use self::{bound::most_in_a_window, duration::duration};
use crate::{
    config::http::{Algorithm, Align, CalendarUnit, Limit, Window},
    text::number,
};

/// What a limit means: how much passes at once, how much on and on, and the most in any stretch as long as
/// its window. Units are counted, which are requests where nothing costs more than one.
pub fn limit(limit: &Limit) -> String {
    if limit.units == 0 {
        return "nothing passes".to_owned();
    }
    let margin = match limit.soft_margin_permille {
        0 => String::new(),
        permille => format!("; {}% above the limit is included, and flagged", decimal(permille.into(), 10)),
    };
    let denied = if limit.count_denied { "; what is refused counts as well" } else { "" };
    format!("{}{margin}{denied}", meaning(limit))
}

fn meaning(limit: &Limit) -> String {
    let (rate, most) = (rate(limit.units, &limit.window), most(limit));
    let at_once = number(capacity(limit));
    match (limit.algorithm, &limit.window) {
        (Algorithm::TokenBucket { interval: true, .. }, window) => {
            let units = number(limit.units);
            format!("at most {at_once} at once, {units} more every {}, {most}", window_name(window))
        }
        (Algorithm::LeakyBucket { max_delay: Some(max_delay), .. }, Window::Fixed(window)) => {
            let queue = bound::queue(limit, window.get(), max_delay);
            let wait = duration(bound::longest_wait(limit, window.get(), queue));
            match queue {
                1 => format!("{rate}, evenly spaced, without waiting"),
                _ => format!(
                    "{rate}, evenly spaced: up to {} at once are taken, and wait for their turn, at most \
                     {wait}",
                    number(queue)
                ),
            }
        }
        (Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. }, _) => {
            format!("at most {at_once} at once, {rate} sustained, {most}")
        }
        (Algorithm::FixedWindow, Window::Fixed(_)) if limit.align == Align::First => {
            format!("{rate}, counted from the first request on, {most}")
        }
        (Algorithm::FixedWindow | Algorithm::EnvoyWindow, _) => format!("{rate}, {most}"),
        (Algorithm::SlidingWindow { .. }, _) => {
            format!("{rate} as long as it comes evenly, {most}")
        }
        (Algorithm::Segments { segments }, Window::Fixed(window)) => {
            let all_but_one =
                window.get() / u64::from(segments.max(1)) * u64::from(segments.saturating_sub(1));
            format!("at most {at_once} in any {}, {most}", duration(all_but_one))
        }
        (Algorithm::SlidingLog | Algorithm::Segments { .. }, _) => most,
    }
}

/// `at most 69 in any minute`.
fn most(limit: &Limit) -> String {
    let most = number(most_in_a_window(limit));
    let sliding = matches!(limit.algorithm, Algorithm::SlidingWindow { .. });
    match &limit.window {
        Window::Fixed(_) => format!("at most {most} in any {}", window_name(&limit.window)),
        // Days and months differ in length, so a stretch as long as one may hold all of another.
        Window::Calendar(unit, _) if sliding => {
            let unit = match unit {
                CalendarUnit::Day => "days",
                CalendarUnit::Week => "weeks",
                CalendarUnit::Month => "months",
            };
            format!("at most {most} in two calendar {unit} in a row")
        }
        Window::Calendar(CalendarUnit::Day, _) => format!("at most {most} around a midnight"),
        Window::Calendar(CalendarUnit::Week, _) => format!("at most {most} around the start of a week"),
        Window::Calendar(CalendarUnit::Month, _) => format!("at most {most} around the start of a month"),
    }
}

/// `60 a minute`, `10,000 every 30 s`, `5 a calendar day (Europe/Berlin)`.
pub fn rate(units: u64, window: &Window) -> String {
    let units = number(units);
    let name = window_name(window);
    match window {
        Window::Calendar(_, zone) => {
            let zone = zone.iana_name().map_or_else(|| "fixed offset".to_owned(), ToOwned::to_owned);
            format!("{units} a {name} ({zone})")
        }
        Window::Fixed(_) if name.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("{units} every {name}")
        }
        Window::Fixed(_) if name.starts_with("hour") => format!("{units} an {name}"),
        Window::Fixed(_) => format!("{units} a {name}"),
    }
}

/// `value / by` with as many digits as it needs. `by` is a power of ten.
fn decimal(value: u64, by: u64) -> String {
    let (whole, rest) = (value / by, value % by);
    if rest == 0 {
        return number(whole);
    }
    let digits = by.ilog10() as usize;
    let fraction = format!("{rest:0digits$}");
    format!("{}.{}", number(whole), fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests;
