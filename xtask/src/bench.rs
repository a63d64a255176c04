//! `cargo xtask bench`: what the limiter costs, measured beside what else an operator could use.

mod frame;
mod lane;
mod network;
mod policy;
mod program;
mod report;
mod sender;
mod shield;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::workspace::Workspace;

/// Measures what the limiter costs, beside what else an operator could use.
#[derive(Args, Debug)]
pub struct Options {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Subcommand, Debug)]
enum Subject {
    Network(network::Options),
}

/// Runs the benchmark that was asked for.
pub fn run(workspace: &Workspace, Options { subject }: &Options) -> Result<()> {
    match subject {
        Subject::Network(options) => network::run(workspace, options),
    }
}
