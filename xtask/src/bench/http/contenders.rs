//! The benchmark `http` of the userspace crate: what it measures by itself, and what it lends to others.

use std::{
    net::SocketAddr,
    path::Path,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};

use super::{CLIENT_CPU, SERVER_CPU, on_cpu, row::Endpoint};
use crate::{lab::capture, read, workspace::Workspace};

/// The built benchmark.
#[derive(Debug)]
pub(super) struct Contenders {
    program: PathBuf,
}

/// The runs of one contender.
#[derive(Debug, Deserialize)]
pub(super) struct Series<C> {
    /// Which contender, and of what.
    #[serde(flatten)]
    pub(super) case: C,
    /// What each run cost.
    pub(super) costs: Vec<f64>,
}

/// The target's name in its manifest, and the package it is in.
const TARGET: &str = "http";
const PACKAGE: &str = "ratelimit-userspace";

// === impl Contenders ===

impl Contenders {
    /// Builds it, with optimisations.
    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        #[derive(Deserialize)]
        struct Message {
            target: Option<Target>,
            executable: Option<PathBuf>,
        }
        #[derive(Deserialize)]
        struct Target {
            name: String,
            kind: Vec<String>,
        }

        let mut cargo = workspace.cargo();
        cargo.args(["bench", "--no-run", "--message-format=json-render-diagnostics"]).args([
            "--package",
            PACKAGE,
            "--bench",
            TARGET,
        ]);
        let messages = read(&mut cargo)?;
        for line in messages.lines() {
            let message: Message = serde_json::from_str(line)
                .with_context(|| format!("failed to read cargo's message {line}"))?;
            if let Message { target: Some(Target { name, kind }), executable: Some(program) } = message
                && name == TARGET
                && kind == ["bench"]
            {
                return Ok(Self { program });
            }
        }
        bail!("{PACKAGE} built no benchmark named {TARGET}")
    }

    /// Measures in process; `work` is a verb of the benchmark and its options.
    pub(super) fn measure<C: DeserializeOwned + Send>(&self, work: &[&str]) -> Result<Vec<Series<C>>> {
        let json = on_cpu(SERVER_CPU, || capture(self.command().args(work)))?;
        serde_json::from_str(&json).with_context(|| format!("failed to read the figures {json}"))
    }

    /// Writes the body of the request that an endpoint is loaded with.
    pub(super) fn write_body(&self, endpoint: Endpoint, file: &Path) -> Result<()> {
        capture(self.command().args(["body", endpoint.name()]).arg(file)).map(drop)
    }

    /// Sees that this one request is answered with permission, and how long the body of the answer is; the
    /// answer is kept in `save`.
    pub(super) fn probe(&self, endpoint: Endpoint, address: SocketAddr, save: Option<&Path>) -> Result<u64> {
        #[derive(Deserialize)]
        struct Probed {
            length: u64,
        }

        let mut probe = self.command();
        probe.args(["probe", endpoint.name(), &address.to_string()]);
        if let Some(file) = save {
            probe.arg("--save").arg(file);
        }
        let json = on_cpu(CLIENT_CPU, || capture(&mut probe))?;
        let Probed { length } =
            serde_json::from_str(&json).with_context(|| format!("failed to read the probe's {json}"))?;
        Ok(length)
    }

    /// To run it; its errors show.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::null());
        command
    }
}
