//! The file system that a guest boots into: the tests, the programs that they start, and the libraries of
//! all of them, at the places where they are on this host.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{Kernel, debian::Files};
use crate::{build, exec, read, test::HOST_CRATES, toolchain::find_program, workspace::Workspace};

/// What the tests and the script start.
const PROGRAMS: &[&str] = &[
    "sh", "mount", "mkdir", "cat", "sleep", "id", "renice", "timeout", "ip", "ethtool", "nsenter", "ping",
    "bpftool", "insmod",
];
/// Modules that the tests need, those first that others need.
const MODULES: &[&str] = &["veth"];
/// Tests of `tests/namespace_lifecycle.rs` that run in a guest: the rest of the daemon's life does not depend
/// on the kernel.
const RESTARTS: &[&str] = &["killed", "foreign", "without_a_daemon", "generic", "next::"];

/// The test binaries, and the daemon that they start.
#[derive(Debug)]
pub(super) struct Tests {
    program: PathBuf,
    lifecycle: PathBuf,
    daemon: PathBuf,
    /// What they read at the place where they were built.
    data: [PathBuf; 2],
}

// === impl Tests ===

impl Tests {
    /// Builds them.
    pub(super) fn build(workspace: &Workspace) -> Result<Self> {
        let mut cargo = workspace.cargo();
        cargo
            .args(["test", "--no-run", "--quiet", "--message-format=json"])
            .args(HOST_CRATES)
            .args(["--test=program", "--test=namespace_lifecycle"]);
        let executables = build::executables(&read(&mut cargo)?)?;
        let built = |wanted: &str| {
            let found = executables.iter().find(|(name, _)| name == wanted);
            found.map(|(_, path)| path.clone()).with_context(|| format!("cargo built no {wanted}"))
        };
        let crate_root = workspace.root.join("ratelimit-userspace");
        Ok(Self {
            program: built("program")?,
            lifecycle: built("namespace_lifecycle")?,
            daemon: built("ratelimit")?,
            data: [crate_root.join("tests/config"), workspace.target.join("bpf")],
        })
    }

    fn binaries(&self) -> [&Path; 3] {
        [&self.program, &self.lifecycle, &self.daemon]
    }
}

/// Makes the file system for a kernel and returns its archive.
pub(super) fn make(
    workspace: &Workspace,
    tests: &Tests,
    kernel: &Files,
    about: &Kernel,
    filter: &[String],
) -> Result<PathBuf> {
    let home = workspace.target.join("kernels").join(about.suite);
    let (root, archive) = (home.join("root"), home.join("initramfs"));
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("failed to remove {}", root.display()))?;
    }
    let root = Root::new(root)?;
    for binary in tests.binaries() {
        root.add_program(binary)?;
        // Without what a debugger wants they are a tenth as large.
        exec(Command::new("strip").arg("--strip-debug").arg(root.place(binary)?))?;
    }
    for program in PROGRAMS {
        let program = find_program(program).with_context(|| format!("{program} is not on PATH"))?;
        root.add_program(&program)?;
    }
    for data in &tests.data {
        root.add_files(data)?;
    }
    for module in MODULES {
        root.add_module(&kernel.module(module)?, module)?;
    }
    root.write("init", &script(tests, about.supported, filter))?;
    exec(Command::new("chmod").arg("755").arg(root.0.join("init")))?;
    root.pack(&archive)?;
    Ok(archive)
}

/// What the guest does, in place of an init.
fn script(tests: &Tests, supported: bool, filter: &[String]) -> String {
    let Tests { program, lifecycle, daemon, .. } = tests;
    let modules: Vec<_> = MODULES.iter().map(|module| format!("insmod /modules/{module}.ko")).collect();
    let modules = modules.join("\n");
    let work = if supported {
        format!(
            "{program} --include-ignored --show-output {all}\n\
             {lifecycle} --include-ignored --test-threads=1 {restarts}\n",
            program = program.display(),
            lifecycle = lifecycle.display(),
            all = filter.join(" "),
            restarts = if filter.is_empty() { RESTARTS.join(" ") } else { filter.join(" ") },
        )
    } else {
        format!(
            "echo 'interfaces: [{{ name: lo }}]' > /tmp/rules.yaml\n\
             echo 'network: {{ mode: enforce }}' >> /tmp/rules.yaml\n\
             {daemon} daemon --config /tmp/rules.yaml\n\
             echo refused with exit code $?\n",
            daemon = daemon.display(),
        )
    };
    format!(
        "#!/bin/sh\n\
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sysfs /sys\n\
         mount -t devtmpfs devtmpfs /dev\n\
         mount -t bpf bpf /sys/fs/bpf\n\
         mount -t tmpfs tmpfs /run\n\
         mount -t tmpfs tmpfs /tmp\n\
         {modules}\n\
         ip link set lo up\n\
         {work}\
         echo {done}\n\
         echo b > /proc/sysrq-trigger\n\
         sleep 60\n",
        done = super::guest::DONE,
    )
}

/// A root directory under construction.
struct Root(PathBuf);

// === impl Root ===

impl Root {
    fn new(path: PathBuf) -> Result<Self> {
        for directory in
            ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "proc", "sys", "dev", "run", "tmp", "modules"]
        {
            create(&path.join(directory))?;
        }
        for directory in ["bin", "sbin", "lib", "lib64"] {
            symlink(format!("usr/{directory}"), path.join(directory))
                .with_context(|| format!("failed to link {directory}"))?;
        }
        Ok(Self(path))
    }

    /// Where a file of the host is in the guest.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let relative =
            path.strip_prefix("/").with_context(|| format!("{} is not absolute", path.display()))?;
        Ok(self.0.join(relative))
    }

    fn add(&self, path: &Path) -> Result<()> {
        let place = self.place(path)?;
        place.parent().map(create).transpose()?;
        fs::copy(path, &place).with_context(|| format!("failed to copy {}", path.display()))?;
        Ok(())
    }

    /// A program with its libraries.
    fn add_program(&self, path: &Path) -> Result<()> {
        self.add(path)?;
        for library in libraries(&read(Command::new("ldd").arg(path))?) {
            self.add(&library)?;
        }
        Ok(())
    }

    /// The files of a directory.
    fn add_files(&self, directory: &Path) -> Result<()> {
        let entries =
            fs::read_dir(directory).with_context(|| format!("failed to read {}", directory.display()))?;
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()) {
            self.add(&path)?;
        }
        Ok(())
    }

    fn add_module(&self, path: &Path, name: &str) -> Result<()> {
        let place = self.0.join("modules").join(format!("{name}.ko"));
        if path.extension().is_some_and(|extension| extension == "xz") {
            let plain =
                fs::File::create(&place).with_context(|| format!("failed to create {}", place.display()))?;
            return exec(Command::new("xz").args(["--decompress", "--stdout"]).arg(path).stdout(plain));
        }
        fs::copy(path, &place).with_context(|| format!("failed to copy {}", path.display()))?;
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(name), text).with_context(|| format!("failed to write {name}"))
    }

    /// Writes all of it into an archive that the kernel unpacks.
    fn pack(&self, archive: &Path) -> Result<()> {
        let list = read(Command::new("find").arg(".").current_dir(&self.0))?;
        let output =
            fs::File::create(archive).with_context(|| format!("failed to create {}", archive.display()))?;
        let mut cpio = Command::new("cpio");
        cpio.args(["--create", "--format=newc", "--quiet", "--owner=0:0"]).current_dir(&self.0);
        let mut child = cpio.stdin(Stdio::piped()).stdout(output).spawn().context("failed to start cpio")?;
        let mut input = child.stdin.take().context("it is piped")?;
        std::io::Write::write_all(&mut input, list.as_bytes()).context("cpio does not read")?;
        drop(input);
        let status = child.wait().context("failed to wait for cpio")?;
        ensure!(status.success(), "cpio failed ({status})");
        Ok(())
    }
}

fn create(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("failed to create {}", directory.display()))
}

/// The files that `ldd` names: "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)", and the loader alone.
fn libraries(ldd: &str) -> BTreeSet<PathBuf> {
    ldd.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_says() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                   \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(ldd), expected.map(PathBuf::from).into());
    }
}
