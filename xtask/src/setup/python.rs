//! A Python of our own, below the target folder, with the gRPC client that the tests set against our server:
//! generated from Envoy's protobufs by gRPC's own authors.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{apt_install, apt_line, can_install};
use crate::{exec, toolchain::find_program, workspace::Workspace};

/// Everything that is installed, dependencies too: pip resolves nothing.
const REQUIREMENTS: &str = "\
grpcio==1.85.1
grpcio-health-checking==1.85.1
protobuf==7.36.2
typing_extensions==4.16.0
xds-protos==1.85.0
";

/// What Debian has apart from `python3`.
const PACKAGES: &[&str] = &["python3", "python3-venv"];

/// The interpreter that has the client; what is missing is installed.
pub fn python(workspace: &Workspace) -> Result<PathBuf> {
    let home = workspace.tools().join("python");
    let python = home.join("bin/python");
    // Written last, so an interrupted installation is begun anew.
    let installed = home.join("requirements.txt");
    if fs::read_to_string(&installed).is_ok_and(|requirements| requirements == REQUIREMENTS)
        && python.exists()
    {
        return Ok(python);
    }
    println!("installing Envoy's protobufs for Python into {}", home.display());
    create(&home)?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
    exec(Command::new(&python).args(pip).args(REQUIREMENTS.lines()))?;
    fs::write(&installed, REQUIREMENTS)
        .with_context(|| format!("failed to write {}", installed.display()))?;
    Ok(python)
}

/// Makes an empty environment.
fn create(home: &Path) -> Result<()> {
    let create = || exec(Command::new("python3").args(["-m", "venv", "--clear"]).arg(home));
    if find_program("python3").is_some() && create().is_ok() {
        return Ok(());
    }
    if !can_install() {
        bail!(
            "python3 with its venv module must be installed first; on Debian, as root:\n    {}",
            apt_line(PACKAGES)
        );
    }
    apt_install(PACKAGES)?;
    create()
}
