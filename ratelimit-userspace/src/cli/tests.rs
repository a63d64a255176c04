use clap::CommandFactory as _;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_verb_has_an_example() {
    for verb in Cli::command().get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
        let name = verb.get_name().to_owned();
        let help = verb.render_long_help().to_string();
        assert!(help.contains(&format!("ratelimit {name}")), "{name}:\n{help}");
    }
}

#[test]
fn errors_choose_the_exit_code() {
    let lacking = Lacking::Kernel { release: "5.10.0".to_owned() };
    assert_eq!(classify(&anyhow::Error::new(lacking)), Exit::Unsupported);
    let wrapped = DaemonError::from(Lacking::TypeInformation);
    assert_eq!(classify(&anyhow::Error::new(wrapped)), Exit::Unsupported);
    let state = DaemonError::from(StateError::from(Lacking::TypeInformation));
    assert_eq!(classify(&anyhow::Error::new(state)), Exit::Unsupported);
    let missing = config::load(Path::new("/nonexistent/rules.yaml")).expect_err("no such file");
    assert_eq!(classify(&anyhow::Error::new(DaemonError::from(missing))), Exit::Usage);
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    assert_eq!(classify(&anyhow::Error::new(denied).context("failed to look")), Exit::Unsupported);
    assert_eq!(classify(&anyhow::anyhow!("anything else")), Exit::Failure);
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let error = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("failed to print");
    assert!(is_broken_pipe(&error));
    assert!(!is_broken_pipe(&anyhow::anyhow!("broken pipe")));
}
