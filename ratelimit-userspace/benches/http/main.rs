//! What `cargo xtask bench http` measures with: the limiter and its rivals in one process, the servers that
//! the daemon is compared with, and the client that opens idle connections.
//!
//! Measurements print JSON for `cargo xtask`, which sums the runs up and judges them.

mod contender;
mod decision;
mod endpoint;
mod heap;
mod idle;
mod keys;
mod memory;
mod reference;
mod rules;
mod stopwatch;

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::endpoint::Endpoint;

/// Contenders of `cargo xtask bench http`, which is what to run.
#[derive(Debug, Parser)]
#[command(name = "http")]
struct Cli {
    /// Accepted because `cargo bench` gives it.
    #[arg(long, hide = true)]
    bench: bool,
    #[command(subcommand)]
    work: Option<Work>,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// Nanoseconds a decision, over random keys.
    Decision {
        /// Keys, all of which have a counter.
        #[arg(long)]
        keys: u32,
        /// Runs of each contender.
        #[arg(long)]
        runs: u32,
    },
    /// Bytes a key.
    Memory {
        /// Keys that have a counter.
        #[arg(long)]
        keys: u32,
    },
    /// Nanoseconds a decision when one of several rules matches.
    Rules {
        /// Rules.
        #[arg(long, value_delimiter = ',')]
        rules: Vec<u32>,
        /// Runs of each contender.
        #[arg(long)]
        runs: u32,
        /// Milliseconds a run, at least.
        #[arg(long)]
        window: u64,
    },
    /// Writes the body of the request that an endpoint is loaded with.
    Body {
        endpoint: Endpoint,
        /// The file to write.
        file: PathBuf,
    },
    /// Makes that request once, sees that it is allowed, and prints the length of the answer's body.
    Probe {
        endpoint: Endpoint,
        /// Who is asked.
        address: SocketAddr,
        /// Keeps the answer in this file.
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Serves the check endpoint with one answer for all, and an empty rate-limit service.
    Reference {
        /// Where the check endpoint listens.
        #[arg(long)]
        check: SocketAddr,
        /// Where the rate-limit service listens.
        #[arg(long)]
        grpc: SocketAddr,
        /// The answer, as the probe of another server saved it.
        #[arg(long)]
        answer: PathBuf,
    },
    /// Opens connections, makes one request on each, says so, holds them until SIGTERM, and sees that each
    /// still serves.
    Idle {
        /// A check endpoint.
        address: SocketAddr,
        /// How many.
        #[arg(long)]
        connections: usize,
    },
}

/// What the runs of one contender cost.
#[derive(Debug, Serialize)]
struct Series<C> {
    #[serde(flatten)]
    case: C,
    costs: Vec<f64>,
}

fn main() -> ExitCode {
    let Some(work) = Cli::parse().work else {
        println!("`cargo xtask bench http` runs this benchmark");
        return ExitCode::SUCCESS;
    };
    match run(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(work: Work) -> Result<()> {
    match work {
        Work::Decision { keys, runs } => print(&decision::run(keys, runs)?),
        Work::Memory { keys } => print(&memory::run(keys)?),
        Work::Rules { rules, runs, window } => {
            print(&rules::run(&rules, runs, Duration::from_millis(window))?)
        }
        Work::Body { endpoint, file } => endpoint.write_body(&file),
        Work::Probe { endpoint, address, save } => print(&endpoint.probe(address, save.as_deref())?),
        Work::Reference { check, grpc, answer } => reference::serve(check, grpc, &answer),
        Work::Idle { address, connections } => idle::run(address, connections),
    }
}

fn print(value: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(value)?);
    Ok(())
}
