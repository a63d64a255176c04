//! What people see: a line while it runs, tables when it is done.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use super::{
    client::{Experience, TIMEOUT},
    scene::Phase,
    shield::RuleCount,
};

/// The line that shows what goes on: rewritten in place on a terminal, one after the other elsewhere.
#[derive(Debug)]
pub(super) struct View {
    terminal: bool,
}

// === impl View ===

impl View {
    pub(super) fn new() -> Self {
        Self { terminal: io::stdout().is_terminal() }
    }

    /// How often it is worth a new line.
    pub(super) fn interval(&self) -> Duration {
        if self.terminal { Duration::from_millis(500) } else { Duration::from_secs(2) }
    }

    /// Shows how far the phase is; `flood` is what it offered so far, and since when.
    pub(super) fn show(
        &self,
        title: &str,
        left: Duration,
        flood: Option<(u64, Duration)>,
        shed: Option<u64>,
        honest: &Experience,
    ) {
        let mut line = format!("{title:<18} {:>3} s left", left.as_secs_f64().ceil());
        if let Some((offered, elapsed)) = flood {
            push(&mut line, format_args!("   {}/s offered", count(per_second(offered, elapsed))));
        }
        if let Some(shed) = shed {
            push(&mut line, format_args!(", {} shed", count(shed)));
        }
        if honest.requests() > 0 {
            push(
                &mut line,
                format_args!("   honest: {} of {} answered", honest.answered(), honest.requests()),
            );
        }
        if let Some(median) = honest.percentile(50) {
            push(&mut line, format_args!(", median {}", latency(median)));
        }
        if self.terminal {
            print!("\r\x1b[K{line}");
        } else {
            println!("{line}");
        }
        // A reader that has gone away does not stop the demo from cleaning up.
        let _ = io::stdout().flush();
    }

    /// Leaves a clean line behind.
    pub(super) fn clear(&self) {
        println!("{}", if self.terminal { "\r\x1b[K" } else { "" });
    }
}

/// The phases side by side.
pub(super) fn table(phases: &[&Phase]) -> String {
    let mut text = row("", ["honest answered", "median", "p99", "packets/s offered", "lost in queue"]);
    for phase in phases {
        let Phase { title, honest, offered, received, elapsed, cpu: _ } = phase;
        let answered =
            format!("{} of {} ({}%)", honest.answered(), honest.requests(), honest.success_percent());
        let percentile = |percent| honest.percentile(percent).map_or_else(|| "-".to_owned(), latency);
        let (rate, lost) = if *offered == 0 {
            ("-".to_owned(), "-".to_owned())
        } else {
            let lost = offered.saturating_sub(*received);
            (count(per_second(*offered, *elapsed)), format!("{}%", lost * 100 / offered))
        };
        text += &row(title, [&answered, &percentile(50), &percentile(99), &rate, &lost]);
    }
    text
}

/// What the limiter did, and what of the flood never reached it.
pub(super) fn rules(phase: &Phase, rules: &[RuleCount]) -> String {
    let mut text = format!("Under the limiter, of {} packets offered:\n", count(phase.offered));
    let judged = rules.iter().map(|rule| rule.passed + rule.shed).sum();
    for RuleCount { name, passed, shed } in rules {
        push(
            &mut text,
            format_args!("  rule {name:<12} passed {:>9}   shed {:>9}\n", count(*passed), count(*shed)),
        );
    }
    push(
        &mut text,
        format_args!(
            "  {:<36} {:>9}\n",
            "lost in the receiving queue, about",
            count(phase.offered.saturating_sub(judged))
        ),
    );
    text
}

/// What a packet cost the receiving CPU.
pub(super) fn cost(bare: &Phase, shielded: &Phase, shed: u64) -> String {
    format!(
        "CPU time of the receiving thread: {} ns a packet without the limiter; with it {} ns a shed packet.\n\
         (That is all of its work, passed packets included, over the packets shed; and a veth pair copies every\n\
         packet of a socket for XDP, which a network card does not. `cargo xtask bench network` measures the\n\
         shedding alone. A packet lost in the queue never reached the limiter; an honest one is sent again\n\
         after a second, which is what the p99 shows.)",
        nanoseconds(bare.cpu, bare.received),
        nanoseconds(shielded.cpu, shed),
    )
}

fn row(title: &str, cells: [&str; 5]) -> String {
    let [honest, median, p99, offered, lost] = cells;
    format!("{title:<18} {honest:>18} {median:>10} {p99:>10} {offered:>18} {lost:>14}\n")
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("a string takes any text");
}

fn latency(latency: Duration) -> String {
    if latency >= TIMEOUT {
        format!("> {} s", TIMEOUT.as_secs())
    } else {
        format!("{:.1} ms", latency.as_secs_f64() * 1000.0)
    }
}

fn per_second(count: u64, elapsed: Duration) -> u64 {
    let rate = u128::from(count) * 1_000_000_000 / elapsed.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn nanoseconds(time: Duration, packets: u64) -> u128 {
    time.as_nanos() / u128::from(packets.max(1))
}

/// A number with at most five digits and its unit of thousands.
fn count(number: u64) -> String {
    match number {
        0..100_000 => number.to_string(),
        100_000..100_000_000 => format!("{} k", number / 1000),
        _ => format!("{} M", number / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_size() {
        assert_eq!(count(99_999), "99999");
        assert_eq!(count(100_000), "100 k");
        assert_eq!(count(123_456_789), "123 M");
        assert_eq!(per_second(5, Duration::from_millis(500)), 10);
        assert_eq!(nanoseconds(Duration::from_micros(1), 0), 1000);
        assert_eq!(latency(TIMEOUT), "> 2 s");
        assert_eq!(latency(Duration::from_micros(1250)), "1.2 ms");
    }
}
