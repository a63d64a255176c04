//! Packets of a capture, through the real program.

use std::io::{self, BufWriter, Write};

use ratelimit::{
    config::policy::Network,
    network::{
        compile::{Slots, compile},
        kernel,
        program::{Clock, Program, StateMaps},
    },
    replay::{
        Judgement,
        capture::Capture,
        replay,
        summary::{Outcome, Summary, Tally},
    },
};
use serde::Serialize;

use super::{write_json, write_table};
use crate::cli::output::{number, table};

/// One packet, for programs.
#[derive(Serialize)]
struct Line<'a> {
    packet: u64,
    time: f64,
    verdict: &'static str,
    reason: &'static str,
    rule: Option<&'a str>,
    limit: Option<usize>,
    would_drop: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

pub(super) fn run(mut capture: Capture, network: &Network, json: bool) -> anyhow::Result<()> {
    kernel::check()?;
    let (slots, _) = Slots::assign(&Slots::default(), network.rules.iter().map(|rule| rule.name.as_str()));
    let compiled = compile(network, &slots)?;
    // Always the same key, so that two runs agree to the last packet; nobody can aim at a private table.
    let capacity = network.sources.capacity;
    let state = StateMaps { pins: None, capacity, block_sets: 2, hash_key: [0, 0], epoch: 0 };
    let mut program = Program::load(&compiled, &state, Clock::Replay)?;

    let rules = &compiled.descriptions;
    let mut tally = Tally::new(rules.iter().map(|rule| (rule.name.clone(), rule.limits.len())));
    let mut out = BufWriter::new(io::stdout().lock());
    let mut packet = 0;
    let outcome = replay(&mut capture, &mut program, |judgement| {
        packet += 1;
        tally.count(judgement);
        if json {
            let rule = judgement.rule.and_then(|rule| rules.get(rule)).map(|rule| rule.name.as_str());
            write_json(&mut out, &line(packet, rule, judgement))?;
        }
        Ok(())
    });
    // A damaged capture still tells what came before the damage.
    let summary = tally.finish();
    if json {
        write_json(&mut out, &serde_json::json!({ "summary": summary }))?;
    } else {
        let limits = rules.iter().map(|rule| rule.limits.as_slice()).collect::<Vec<_>>();
        write_text(&mut out, &summary, &limits)?;
    }
    out.flush()?;
    outcome?;
    Ok(())
}

fn line<'a>(packet: u64, rule: Option<&'a str>, judgement: &Judgement) -> Line<'a> {
    Line {
        packet,
        time: judgement.seconds,
        verdict: if judgement.dropped { "drop" } else { "pass" },
        reason: judgement.reason.name(),
        rule,
        limit: judgement.limit,
        would_drop: judgement.would_drop,
        truncated: judgement.truncated,
    }
}

fn write_text(out: &mut impl Write, summary: &Summary, limits: &[&[String]]) -> io::Result<()> {
    let Summary {
        outcome,
        packets,
        bytes,
        seconds,
        reasons,
        rules,
        sources,
        sources_error,
        clamped,
        truncated,
        headers_cut,
    } = summary;
    writeln!(
        out,
        "{} packets, {} bytes in {seconds:.3} s: {} passed, {} dropped{}",
        number(*packets),
        number(*bytes),
        number(outcome.passed.packets),
        number(outcome.dropped.packets),
        match outcome.would_drop.packets {
            0 => String::new(),
            would => format!(", {} passed only because something monitors", number(would)),
        },
    )?;

    let headings = ["PASSED", "DROPPED", "WOULD DROP"];
    let mut by_reason = table(&[&["REASON"], headings.as_slice()].concat(), 1);
    for (reason, outcome) in reasons {
        by_reason.add_row([vec![(*reason).to_owned()], columns(outcome)].concat());
    }
    let mut by_rule = table(&[&["RULE"], headings.as_slice()].concat(), 1);
    for (rule, limits) in rules.iter().zip(limits) {
        by_rule.add_row([vec![rule.name.clone()], columns(&rule.outcome)].concat());
        for (refused, limit) in rule.refused_by_limit.iter().zip(*limits).filter(|(refused, _)| **refused > 0)
        {
            by_rule.add_row([format!("  {} refused by {limit}", number(*refused))]);
        }
    }
    let mut by_source = table(&["SOURCE", "PACKETS", "REFUSED", "BYTES"], 1);
    for source in sources {
        by_source.add_row([
            source.address.to_string(),
            number(source.packets),
            number(source.refused),
            number(source.bytes),
        ]);
    }
    for table in [by_reason, by_rule, by_source].iter().filter(|table| !table.is_empty()) {
        writeln!(out)?;
        write_table(out, table)?;
    }

    if *sources_error > 0 {
        writeln!(
            out,
            "\nMore sources than are counted apart: these may have sent up to {} more.",
            number(*sources_error)
        )?;
    }
    if *clamped > 0 {
        writeln!(
            out,
            "\n{} packets stepped back in time and were taken at the time of the one before.",
            number(*clamped)
        )?;
    }
    if *truncated > 0 {
        writeln!(
            out,
            "\n{} packets were cut short by the capture, {} of them within their headers: those were judged \
             on what is there.",
            number(*truncated),
            number(*headers_cut),
        )?;
    }
    Ok(())
}

fn columns(outcome: &Outcome) -> Vec<String> {
    let Outcome { passed, dropped, would_drop } = outcome;
    [passed, dropped, would_drop].iter().map(|count| number(count.packets)).collect()
}
