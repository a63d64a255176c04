//! The rows that need servers: what a request costs, and what idle connections take.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::Stdio,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{
    CLIENT_CPU, Plan, Tools,
    load::Load,
    on_cpu,
    report::Report,
    row::{CONNECTIONS, Contender, Endpoint, PerRequest, Resident, Row, Served},
    server::Server,
};
use crate::lab::Process;

/// How long a server may still be busy with connections that have ended, or with its own memory.
const SETTLE: Duration = Duration::from_millis(50);

/// The daemon and the reference.
#[derive(Debug)]
struct Servers {
    ratelimit: Server,
    reference: Server,
}

/// The runs of one contender at one endpoint.
struct Series<'a> {
    case: Served,
    /// What the runs are made with and what they cost, until something fails.
    state: Result<(&'a Server, Load<'a>, Vec<f64>)>,
}

/// The rows of requests to the endpoints.
pub(super) fn endpoints(tools: &Tools, plan: Plan, report: &mut Report) {
    let servers = Servers::start(tools);
    for endpoint in Endpoint::ALL {
        let body = tools.files.path().join(endpoint.name());
        let written = tools.contenders.write_body(endpoint, &body);
        let servers = servers.as_ref().and_then(|servers| written.as_ref().map(|()| servers));
        let mut series: Vec<_> = [Contender::Ratelimit, Contender::Reference]
            .into_iter()
            .map(|contender| {
                let case = Served { endpoint, contender };
                eprintln!("warming up {case}");
                let server = servers.map(|servers| servers.of(contender));
                Series::warm_up(tools, plan, server, case, &body)
            })
            .collect();
        for run in 1..=plan.runs {
            eprintln!("{} requests to {}, run {run} of {}", plan.requests, endpoint.name(), plan.runs);
            for series in &mut series {
                series.run(plan.requests);
            }
        }
        report.rows.extend(series.into_iter().map(Series::into_row));
    }
}

// === impl Servers ===

impl Servers {
    /// Starts the daemon, and the reference with an answer of the daemon's.
    fn start(tools: &Tools) -> Result<Self> {
        let ratelimit = Server::daemon(tools)?;
        let answer = tools.files.path().join("answer");
        let address = ratelimit.address(Endpoint::Check);
        tools.contenders.probe(Endpoint::Check, address, Some(&answer))?;
        let reference = Server::reference(tools, &answer)?;
        Ok(Self { ratelimit, reference })
    }

    fn of(&self, contender: Contender) -> &Server {
        let Self { ratelimit, reference } = self;
        if contender == Contender::Reference { reference } else { ratelimit }
    }
}

// === impl Series ===

impl<'a> Series<'a> {
    /// Sees that the server answers as it should, and lets it do so for a while.
    fn warm_up(
        tools: &Tools,
        plan: Plan,
        server: Result<&'a Server, &anyhow::Error>,
        case: Served,
        body: &'a Path,
    ) -> Self {
        let Served { endpoint, .. } = case;
        let state = server.map_err(|err| anyhow!("{err:#}")).and_then(|server| {
            let address = server.address(endpoint);
            let answer = tools.contenders.probe(endpoint, address, None)?;
            let load = Load { endpoint, address, body, answer };
            load.run(plan.requests / 4)?;
            Ok((server, load, Vec::new()))
        });
        Self { case, state }
    }

    fn run(&mut self, requests: u32) {
        let Ok((server, load, costs)) = &mut self.state else { return };
        match cost(server, load, requests) {
            Ok(cost) => costs.push(cost),
            Err(err) => self.state = Err(err),
        }
    }

    fn into_row(self) -> Row {
        let Self { case, state } = self;
        let figure = state.and_then(|(_, _, costs)| PerRequest::of(&costs).context("no run was made"));
        Row::Request { case, outcome: figure.into() }
    }
}

/// CPU nanoseconds of the server's process a request. It rests at both readings.
fn cost(server: &Server, load: &Load<'_>, requests: u32) -> Result<f64> {
    thread::sleep(SETTLE);
    let before = server.cpu_time()?;
    load.run(requests)?;
    thread::sleep(SETTLE);
    let used = server.cpu_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() * 1e9 / f64::from(requests))
}

/// The row of idle connections.
pub(super) fn idle_connections(tools: &Tools, report: &mut Report) {
    eprintln!("holding {CONNECTIONS} idle connections");
    report.rows.push(Row::IdleConnections { connections: CONNECTIONS, outcome: resident(tools).into() });
}

/// What a daemon takes that has answered one request on each of its connections, all of which are open.
fn resident(tools: &Tools) -> Result<Resident> {
    /// The client makes another request on each connection before it ends.
    const PATIENCE: Duration = Duration::from_mins(1);

    raise_open_files(u64::from(CONNECTIONS) + 1_000)?;
    let server = Server::daemon(tools)?;
    let mut command = tools.contenders.command();
    command
        .args(["idle", &server.address(Endpoint::Check).to_string()])
        .args(["--connections", &CONNECTIONS.to_string()])
        .stdout(Stdio::piped());
    let client = on_cpu(CLIENT_CPU, || Process::spawn(&mut command))?;
    let output = client.take_stdout().context("the client has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("failed to read what the client says")?;
    ensure!(line.trim() == "open", "the client could not open all connections; it says above why");
    thread::sleep(SETTLE);
    let rss_bytes = server.resident()?;
    let status = client.terminate(PATIENCE)?;
    ensure!(status.success(), "the connections did not stay open; the client says above why");
    Ok(Resident { rss_bytes })
}

/// Lets this process, and those that it starts from now on, have this many files open.
fn raise_open_files(wanted: u64) -> Result<()> {
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).context("failed to read the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard.max(wanted))
        .with_context(|| format!("failed to raise the limit of open files to {wanted} (see ulimit -Hn)"))
}
