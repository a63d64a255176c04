//! `ratelimit completions`.

use std::io;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Exit};

/// Print a script that completes commands in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ratelimit completions bash > /etc/bash_completion.d/ratelimit
  ratelimit completions zsh > /usr/share/zsh/site-functions/_ratelimit
  ratelimit completions fish > ~/.config/fish/completions/ratelimit.fish")]
pub(super) struct Args {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ratelimit", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_shell_knows_every_verb() {
        let command = Cli::command();
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command.clone(), "ratelimit", &mut script);
            let script = String::from_utf8(script).expect("text");
            for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
                let name = verb.get_name();
                assert!(script.contains(name), "{shell}: {name}");
            }
        }
    }
}
