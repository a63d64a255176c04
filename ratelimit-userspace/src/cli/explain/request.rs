//! `ratelimit explain` of a request.

use std::{
    io::{self, Write},
    net::IpAddr,
};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::Method;
use ratelimit::{
    config::http::Http,
    http::{
        clock::Clock,
        explain::{Counter, Explained, ExplainedRule, Explanation},
        identify::Identifier,
        limiter::Limiter,
        wire::Question,
    },
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{
    Exit,
    output::number,
    question::{self, Entries, Source},
};

/// What is asked about.
#[derive(Debug, clap::Args)]
#[group(id = "about_request")]
#[command(next_help_heading = "A request")]
pub(super) struct Flags {
    /// A request: method and target
    #[arg(long, value_name = "METHOD TARGET", conflicts_with_all = ["domain", "descriptor"], requires = "config")]
    request: Option<String>,
    /// The address that the request comes from; absent: a trusted peer, as on a Unix socket
    #[arg(long, value_name = "ADDRESS", requires = "request")]
    peer: Option<IpAddr>,
    /// A header of the request, as in 'X-Api-Key: k'; repeatable
    #[arg(long, value_name = "NAME: VALUE", requires = "request")]
    header: Vec<String>,
    /// The domain of the descriptors
    #[arg(long, value_name = "NAME", requires = "descriptor")]
    domain: Option<String>,
    /// A descriptor: key=value, more entries behind commas; `\,` is a comma within a value; repeatable
    #[arg(long, value_name = "ENTRIES", requires_all = ["domain", "config"])]
    descriptor: Vec<Entries>,
    /// How often the request counts
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1)]
    hits: i64,
}

/// For programs.
#[derive(Serialize)]
struct Report<'a> {
    counted: &'static str,
    #[serde(flatten)]
    explanation: &'a Explanation,
}

pub(super) fn run(flags: &Flags, source: &Source, json: bool) -> anyhow::Result<Exit> {
    let http = source.http()?;
    let question = flags.question()?;
    let (live, explanation) = match live(source, &http, &question)? {
        Some(explanation) => (true, explanation),
        None => (false, offline(http, question)?),
    };
    let mut out = io::stdout().lock();
    if json {
        let counted = if live { "daemon" } else { "nothing" };
        serde_json::to_writer(&mut out, &Report { counted, explanation: &explanation })?;
        writeln!(out)?;
    } else {
        write_text(&mut out, &explanation, live)?;
    }
    Ok(Exit::Success)
}

/// What the daemon says. `None`: there is none.
fn live(source: &Source, http: &Http, question: &Value) -> anyhow::Result<Option<Explanation>> {
    if http.listen.is_none() {
        return Ok(None);
    }
    let body = Bytes::from(serde_json::to_vec(question)?);
    match source.ask(http, Method::POST, "/v1/explain", body) {
        Ok(Some(answer)) => {
            let explanation = serde_json::from_slice(&answer);
            explanation.map(Some).context("the daemon answered in words of another version")
        }
        Ok(None) => bail!("what listens there does not explain; is it a `ratelimit daemon` of this version?"),
        Err(error) if question::unreachable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the rules file alone says. Secrets have another stand-in than the daemon's.
fn offline(mut http: Http, question: Value) -> anyhow::Result<Explanation> {
    const KEY: [u8; 32] = [0; 32];
    let identifier = Identifier::new(&http, KEY);
    http.domains = identifier.domains(&http);
    let question: Question = serde_json::from_value(question)?;
    let identity = question.identify(&identifier)?;
    Ok(Explanation::new(&Limiter::new(&http, KEY), identity, Clock::new().now()))
}

fn write_text(out: &mut impl Write, explanation: &Explanation, live: bool) -> io::Result<()> {
    let Explanation { domain, descriptors, answer } = explanation;
    match domain {
        Some(domain) => writeln!(out, "domain {domain}")?,
        None => writeln!(out, "no item of `identify` makes a descriptor of this request")?,
    }
    if domain.is_some() && descriptors.is_empty() {
        writeln!(out, "  no descriptor: what its entries are made of is missing, so nothing limits it")?;
    }
    for Explained { entries, rule, replaced, counter } in descriptors {
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
        writeln!(out, "\n{}", entries.join(", "))?;
        match (rule, replaced) {
            (Some(rule), _) => write_rule(out, rule)?,
            (None, Some(replaced)) => writeln!(out, "  rule {replaced} does not apply: another replaces it")?,
            (None, None) => writeln!(out, "  no rule matches")?,
        }
        if let Some(Counter { identity, used, limit, remaining, reset }) = counter {
            let [used, limit, remaining] = [used, limit, remaining].map(|units| number(*units));
            writeln!(
                out,
                "  counter {identity}: {used} used, {remaining} of {limit} left, reset in {reset} s"
            )?;
        }
    }
    writeln!(out, "\ndecision: {}", decision(answer))?;
    if !live {
        writeln!(out, "No daemon answers, so this is as if nothing had been counted yet.")?;
    }
    Ok(())
}

fn write_rule(out: &mut impl Write, rule: &ExplainedRule) -> io::Result<()> {
    let ExplainedRule { name, id, means, shadow, quota, replaces } = rule;
    let place = if name == id { String::new() } else { format!(" ({id})") };
    writeln!(out, "  rule {name}{place}: {means}")?;
    if *shadow {
        writeln!(out, "  shadow mode: counted, never denies")?;
    }
    if *quota {
        writeln!(out, "  quota: denies only when all quotas of the request do")?;
    }
    if !replaces.is_empty() {
        writeln!(out, "  replaces {}", replaces.join(", "))?;
    }
    Ok(())
}

fn decision(answer: &Value) -> String {
    let word = answer["decision"].as_str().unwrap_or("unknown");
    let rule = answer["rule"].as_str().map(|rule| format!(", by {rule}")).unwrap_or_default();
    let wait = match (word, &answer["retry_after"], &answer["delay"]) {
        ("deny", Value::Number(seconds), _) => format!("; it passes after {seconds} s"),
        ("deny", _, _) => "; it never passes".to_owned(),
        ("delay", _, Value::Number(seconds)) => format!("; held for {seconds} s"),
        _ => String::new(),
    };
    format!("{word}{rule}{wait}")
}

// === impl Flags ===

impl Flags {
    /// As `/v1/check` takes it.
    fn question(&self) -> anyhow::Result<Value> {
        let Self { request, peer, header, domain, descriptor, hits } = self;
        let Some(request) = request else {
            let entries = descriptor.iter().map(|Entries(entries)| json!({ "entries": entries }));
            let entries: Vec<Value> = entries.collect();
            return Ok(json!({ "domain": domain, "descriptors": entries, "hits": hits }));
        };
        let (method, target) = request
            .split_once(' ')
            .with_context(|| format!("`{request}` is no request; write it as in 'GET /path'"))?;
        let mut headers = serde_json::Map::new();
        for header in header {
            let (name, value) = header
                .split_once(':')
                .with_context(|| format!("`{header}` is no header; write it as in 'Name: value'"))?;
            let values = headers.entry(name.trim().to_lowercase()).or_insert_with(|| json!([]));
            if let Value::Array(values) = values {
                values.push(json!(value.trim()));
            }
        }
        let mut request = json!({ "method": method, "path": target.trim(), "headers": headers });
        if let Some(peer) = peer {
            request["peer"] = json!(peer);
        }
        Ok(json!({ "request": request, "hits": hits }))
    }
}
