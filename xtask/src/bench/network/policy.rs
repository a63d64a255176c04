//! Rules files under which nearly every packet of the benchmark is shed.

use std::{
    collections::BTreeSet,
    fmt::{self, Display, Formatter, Write as _},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::frame::PORT;

/// Sources that the table is configured for.
pub(super) const CAPACITY: u32 = 1 << 20;

/// One packet a source a day: for the length of a benchmark, one packet.
const LIMIT: &str = "{ per: source, rate: 1/d, burst: 1 }";

/// What tells one policy from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// Rules. A single one has no match; of several, each names a port, and the last one the
    /// benchmark's.
    pub(super) rules: u32,
    /// IPv4 deny prefixes, none of which covers a source.
    pub(super) deny: u32,
}

// === impl Policy ===

impl Policy {
    /// Writes the rules file, and the deny list if there is one, into `folder`; returns the former.
    pub(super) fn write(self, folder: &Path, device: &str) -> Result<PathBuf> {
        let path = folder.join("ratelimit.yaml");
        let mut text = format!(
            "interfaces: [{{ name: {device}, mode: native }}]\n\
             network:\n  \
               on_stop: detach\n  \
               sources: {{ capacity: {CAPACITY}, when_full: pass }}\n"
        );
        if self.deny > 0 {
            let list = folder.join("deny.txt");
            fs::write(&list, deny_list(self.deny))
                .with_context(|| format!("failed to write {}", list.display()))?;
            writeln!(text, "  deny_files: [{}]", list.display())?;
        }
        text.push_str("  rules:\n");
        for number in 1..self.rules {
            let port = 10_000 + number;
            writeln!(
                text,
                "    - {{ name: other-{number}, match: {{ protocol: udp, destination_port: {port} }}, \
                 limits: [{LIMIT}] }}"
            )?;
        }
        let matches = match self.rules {
            1 => String::new(),
            _ => format!("match: {{ protocol: udp, destination_port: {PORT} }}, "),
        };
        writeln!(text, "    - {{ name: flood, {matches}limits: [{LIMIT}] }}")?;
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    }
}

impl Display for Policy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { rules, deny } = self;
        let s = if *rules == 1 { "" } else { "s" };
        write!(f, "{rules} rule{s}")?;
        if *deny > 0 {
            write!(f, " and {deny} deny prefixes")?;
        }
        Ok(())
    }
}

/// `count` different prefixes of four lengths, spread over the whole address space but for the network
/// that holds the sources and the links.
fn deny_list(count: u32) -> String {
    const LENGTHS: [u32; 4] = [32, 24, 28, 22];
    /// Odd, so that multiplication visits every address once; near 2^32 over the golden ratio, so that
    /// it spreads them.
    const SPREAD: u32 = 0x9e37_79b1;

    let mut seen = BTreeSet::new();
    let mut text = String::new();
    let mut number = 0_u32;
    while seen.len() < count as usize {
        number += 1;
        let length = LENGTHS[number as usize % LENGTHS.len()];
        let address = Ipv4Addr::from(number.wrapping_mul(SPREAD) & (u32::MAX << (32 - length)));
        let elsewhere = address.octets()[0] != 10;
        if elsewhere && seen.insert((address, length)) {
            writeln!(text, "{address}/{length}").expect("a string takes all that is written to it");
        }
    }
    text
}
