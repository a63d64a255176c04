//! Requests of a trace, through the limiter.

use std::io::{self, BufWriter, Write};

use ratelimit::{
    config::http::Http,
    http::{identify::Identifier, limiter::Limiter, trace::Answered},
    replay::{
        recording::RequestTrace,
        requests::{Decisions, Tally, replay},
    },
};

use super::{write_json, write_table};
use crate::cli::output::{number, table};

/// Always the same, so that two runs agree; nobody can aim at a private table.
const KEY: [u8; 32] = [0; 32];

pub(super) fn run(mut trace: RequestTrace, mut http: Http, json: bool) -> anyhow::Result<()> {
    let identifier = Identifier::new(&http, KEY);
    http.domains = identifier.domains(&http);
    let limiter = Limiter::new(&http, KEY);
    let mut tally = Tally::new(limiter.rules().rules());
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = replay(
        &mut trace,
        &identifier,
        |ask, now| limiter.decide(ask, now),
        |judgement| {
            tally.count(judgement);
            if json {
                write_json(&mut out, &Answered::new(&judgement.time, &judgement.answer))?;
            }
            Ok(())
        },
    );
    // A damaged trace still tells what came before the damage.
    if !json {
        write_text(&mut out, &tally)?;
    }
    out.flush()?;
    outcome?;
    Ok(())
}

fn write_text(out: &mut impl Write, tally: &Tally) -> io::Result<()> {
    let Decisions { allowed, denied, delayed, shadow } = tally.decisions;
    writeln!(
        out,
        "{} requests in {} s: {} allowed, {} denied, {} delayed, {} that shadow rules would have denied",
        number(tally.decisions.total()),
        tally.span(),
        number(allowed),
        number(denied),
        number(delayed),
        number(shadow),
    )?;

    let mut by_rule = table(&["RULE", "DOMAIN", "ALLOWED", "DENIED", "DELAYED", "SHADOW"], 2);
    for rule in &tally.rules {
        by_rule.add_row(row(&rule.label, &rule.domain, &rule.decisions));
    }
    if tally.no_rule.total() > 0 {
        by_rule.add_row(row("(no rule)", "", &tally.no_rule));
    }
    if !by_rule.is_empty() {
        writeln!(out)?;
        write_table(out, &by_rule)?;
    }

    let notes = [
        (tally.unmatched, "match no item of `identify`, so nothing limits them"),
        (tally.no_descriptor, "end with no descriptor, so nothing limits them"),
        (tally.missing_entry, "are denied because an entry with `missing: deny` has no value"),
        (tally.store_full, "are denied because memory is full"),
    ];
    for (count, words) in notes.iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "\nRequests that {words}: {}.", number(*count))?;
    }
    Ok(())
}

fn row(label: &str, domain: &str, decisions: &Decisions) -> Vec<String> {
    let Decisions { allowed, denied, delayed, shadow } = *decisions;
    let names = [label, domain].map(ToOwned::to_owned);
    names.into_iter().chain([allowed, denied, delayed, shadow].map(number)).collect()
}
