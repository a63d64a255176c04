//! One daemon a pin directory: an advisory lock on the directory of links, which the kernel drops with
//! the process however that ends.

use std::{fmt, fs, io, os::fd::OwnedFd, path::Path};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, major, minor, open, stat};

/// The lock, held while this lives.
#[derive(Debug)]
pub struct Lock {
    _directory: OwnedFd,
}

/// Who holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The process, if this process can see it.
    pub pid: Option<u32>,
    /// Its command line.
    pub command: Option<String>,
}

// === impl Lock ===

impl Lock {
    /// Takes the lock on a directory, or `None` when another process holds it.
    pub(super) fn take(directory: &Path) -> io::Result<Option<Self>> {
        loop {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = open(directory, flags, Mode::empty())?;
            match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            // `detach` removes the directory under its lock: one that is gone protects nothing.
            let mine = fstat(&opened)?;
            let named = stat(directory)?;
            if (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino) {
                return Ok(Some(Self { _directory: opened }));
            }
        }
    }
}

/// Who holds the lock on `directory`, from /proc/locks, without touching the lock.
pub(super) fn holder(directory: &Path) -> Option<Holder> {
    let status = stat(directory).ok()?;
    let file = (major(status.st_dev), minor(status.st_dev), status.st_ino);
    let pid = find(&fs::read_to_string("/proc/locks").ok()?, file)?;
    // A process of another PID namespace shows as 0 or negative.
    let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0);
    let command = pid.and_then(|pid| fs::read(format!("/proc/{pid}/cmdline")).ok()).and_then(|line| {
        let words = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
        (!words.is_empty()).then_some(words)
    });
    Some(Holder { pid, command })
}

/// The process that holds an exclusive flock on a file, in the text of /proc/locks: lines such as
/// `3: FLOCK  ADVISORY  WRITE 8681 00:27:13143 0 EOF`, with the device in hexadecimal. Lines with `->`
/// only wait.
fn find(locks: &str, (major, minor, inode): (u32, u32, u64)) -> Option<i64> {
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, "WRITE", pid, place, ..] if place == file => pid.parse().ok(),
        _ => None,
    })
}

// === impl Holder ===

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.command) {
            (Some(pid), Some(command)) => write!(f, "process {pid} (`{command}`)"),
            (Some(pid), None) => write!(f, "process {pid}"),
            (None, _) => f.write_str("a process that cannot be seen from here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:27:13143 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:27:1314 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 13 00:27:13143 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 8681 00:27:13143 0 EOF\n";
        assert_eq!(find(locks, (0, 0x27, 13143)), Some(8681));
        assert_eq!(find(locks, (0, 0x28, 13143)), None);
    }

    #[test]
    fn a_second_taker_is_refused_and_sees_the_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let lock = Lock::take(directory.path()).expect("no error").expect("the lock");
        assert!(Lock::take(directory.path()).expect("no error").is_none());
        let holder = holder(directory.path()).expect("a holder");
        assert_eq!(holder.pid, Some(std::process::id()));
        assert!(holder.command.is_some());
        drop(lock);
        assert!(Lock::take(directory.path()).expect("no error").is_some());
    }
}
