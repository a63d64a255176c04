//! What a daemon holds.

use std::{fmt, fs, path::Path};

use crate::site::Site;

/// How much the resident memory may grow over many reloads: that of the allocator, which settles slowly.
const SLACK: u64 = 4 << 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    descriptors: usize,
    /// KiB.
    resident: u64,
    /// Files in the pin directory.
    pins: usize,
}

impl Usage {
    pub(crate) fn of(site: &Site) -> Self {
        let process = Path::new("/proc").join(site.daemon().id().to_string());
        let status = fs::read_to_string(process.join("status")).expect("the daemon runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.strip_suffix("kB"));
        Self {
            descriptors: fs::read_dir(process.join("fd")).expect("the daemon runs").count(),
            resident: resident.and_then(|number| number.trim().parse().ok()).expect("a number"),
            pins: files(&site.host.pin_dir()),
        }
    }

    /// Whether nothing grew since then.
    ///
    /// # Panics
    /// If something did.
    pub(crate) fn is_flat(&self, earlier: &Self) {
        assert_eq!(self.descriptors, earlier.descriptors, "{earlier}, then {self}");
        assert_eq!(self.pins, earlier.pins, "{earlier}, then {self}");
        assert!(self.resident <= earlier.resident + SLACK, "{earlier}, then {self}");
    }
}

fn files(directory: &Path) -> usize {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("a file").path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { descriptors, resident, pins } = self;
        write!(f, "{descriptors} descriptors, {resident} KiB, {pins} pins")
    }
}
