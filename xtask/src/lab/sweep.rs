//! Names that say whose they are, and the removal of what a killed process left behind.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Once,
        atomic::{AtomicU64, Ordering},
    },
};

use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const PREFIX: &str = "ratelimit-lab-";
/// Where `ip netns` keeps its names.
pub(super) const NETNS: &str = "/run/netns";

/// A name no other lab uses: prefix, process id, a number, and what it is for.
pub(super) fn unique_name(role: &str) -> String {
    static SWEPT: Once = Once::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    SWEPT.call_once(sweep);
    format!("{PREFIX}{}-{}-{role}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs once and before this process makes its first name, so one that already holds our process id
/// is from an earlier owner of that id.
fn sweep() {
    for path in abandoned(Path::new(NETNS)) {
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            remove_namespace(name);
        }
    }
    for path in abandoned(&env::temp_dir()) {
        remove_directory(&path);
    }
}

fn abandoned(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_str().and_then(owner).is_some_and(is_gone))
        .map(|entry| entry.path())
        .collect()
}

fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_gone(pid: u32) -> bool {
    pid == process::id() || !Path::new(&format!("/proc/{pid}")).exists()
}

/// Ends the processes that live in the namespace, takes its devices away and removes its name.
///
/// The devices go first: a namespace outlives its name while a socket still refers to it, and the far
/// end of a veth pair would stay with it.
pub(super) fn remove_namespace(name: &str) {
    for pid in quiet_lines(&["netns", "pids", name]).iter().filter_map(|line| line.parse::<u32>().ok()) {
        if pid != process::id() {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
    }
    for line in quiet_lines(&["-n", name, "-brief", "link", "show", "type", "veth"]) {
        if let Some(device) = line.split(['@', ' ']).next() {
            quiet_lines(&["-n", name, "link", "delete", device]);
        }
    }
    quiet_lines(&["netns", "delete", name]);
}

/// Unmounts what is mounted on the directory and removes it with its contents.
pub(super) fn remove_directory(path: &Path) {
    // EINVAL when nothing is mounted there, the usual case.
    while umount2(path, MntFlags::MNT_DETACH).is_ok() {}
    drop(fs::remove_dir_all(path));
}

/// Clean-up has nobody to report to: what is already gone is as good as removed.
fn quiet_lines(arguments: &[&str]) -> Vec<String> {
    Command::new("ip").args(arguments).output().map_or_else(
        |_| Vec::new(),
        |output| String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_processes_are_abandoned() {
        assert_eq!(owner("ratelimit-lab-17-0-demo"), Some(17));
        assert_eq!(owner("ratelimit-lab-x-0"), None);
        assert_eq!(owner("other-17-0"), None);
        assert!(!is_gone(1));
        // Above the largest pid_max, 2^22.
        assert!(is_gone((1 << 22) + 1));
    }
}
