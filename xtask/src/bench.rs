//! `cargo xtask bench`: what the limiter costs, measured beside what else an operator could use.

mod escalate;
mod http;
mod network;
mod report;

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
    Http(http::Options),
    Escalate(escalate::Options),
}

/// Runs the benchmark that was asked for.
pub fn run(workspace: &Workspace, Options { subject }: &Options) -> Result<()> {
    match subject {
        Subject::Network(options) => network::run(workspace, options),
        Subject::Http(options) => http::run(workspace, options),
        Subject::Escalate(options) => escalate::run(workspace, options),
    }
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn options_of_all_benchmarks_go_together() {
        Options::augment_args(Command::new("bench")).debug_assert();
    }
}
