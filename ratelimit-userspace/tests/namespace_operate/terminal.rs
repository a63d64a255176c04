//! A terminal with a person at it.

use std::{
    fs::File,
    io::{ErrorKind, Read as _, Write as _},
    os::unix::{fs::OpenOptionsExt as _, process::ExitStatusExt as _},
    process::ExitStatus,
};

use nix::{
    fcntl::OFlag,
    pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt},
};
use xtask::lab::Process;

use crate::{PATIENCE, eventually, host::Host};

/// A terminal and the `ratelimit` that leads its session.
pub(crate) struct Terminal {
    keys: PtyMaster,
    process: Process,
    shown: String,
}

// === impl Terminal ===

impl Terminal {
    /// Types a command and Enter.
    pub(crate) fn run(host: &Host, arguments: &[&str]) -> Self {
        let keys = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("a terminal");
        grantpt(&keys).and_then(|()| unlockpt(&keys)).expect("a terminal of this user");
        rustix::io::ioctl_fionbio(&keys, true).expect("reads that do not block");
        let name = ptsname_r(&keys).expect("a name");
        let screen = File::options().read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(name);
        let screen = screen.expect("its other side");
        let copy = || screen.try_clone().expect("a descriptor");
        let mut command = host.lab.server.command("setsid");
        command.arg("--ctty").arg(&host.binary).args(arguments);
        crate::address(&mut command, host);
        let process = Process::spawn(command.stdin(copy()).stdout(copy()).stderr(copy())).expect("it runs");
        Self { keys, process, shown: String::new() }
    }

    /// Waits until these words are shown.
    pub(crate) fn shows(&mut self, words: &str) {
        let ended = eventually(words, || {
            let ended = self.process.try_wait().expect("a process").is_some();
            self.look();
            (self.shown.contains(words) || ended).then_some(ended)
        });
        assert!(self.shown.contains(words), "`{words}` is not shown (ended: {ended}): {}", self.shown);
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("they are typed");
    }

    /// Waits for the end of the command: how it ended and all that it showed.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let status = self.process.wait(PATIENCE).expect("it ends");
        self.look();
        (status.code(), self.shown)
    }

    /// The window is closed, or the connection breaks. The signal that ended the command.
    pub(crate) fn dies(self) -> Option<i32> {
        let Self { keys, process, .. } = self;
        drop(keys);
        let status: ExitStatus = process.wait(PATIENCE).expect("it ends");
        status.signal()
    }

    /// Reads what is there.
    fn look(&mut self) {
        let mut buffer = [0; 1024];
        loop {
            match self.keys.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => self.shown.push_str(&String::from_utf8_lossy(&buffer[..length])),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Nobody has the other side any more.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => return,
                Err(error) => panic!("the terminal cannot be read: {error}"),
            }
        }
    }
}
