//! Sets up the tool chain, builds, tests, benchmarks and demonstrates `ratelimit`.

use std::process::ExitCode;

use clap::Parser;
use xtask::{bench, build, demo, lint, setup, test, workspace::Workspace};

/// The chores of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Verb {
    Setup(setup::Options),
    Build(build::Options),
    Lint(lint::Options),
    Test(test::Options),
    Demo(demo::Options),
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let verb = Verb::parse();
    let done = Workspace::load().and_then(|workspace| match verb {
        Verb::Setup(options) => setup::run(&workspace, &options),
        Verb::Build(options) => build::run(&workspace, &options),
        Verb::Lint(options) => lint::run(&workspace, &options),
        Verb::Test(options) => test::run(&workspace, &options),
        Verb::Demo(options) => demo::run(&workspace, &options),
        Verb::Bench(options) => bench::run(&workspace, &options),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}
