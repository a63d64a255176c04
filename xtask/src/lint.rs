//! `cargo xtask lint`: formatting, clippy, documentation, and the rules of the house that no tool knows.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use toml::{Table, Value};

use crate::{
    build, exec, read,
    workspace::{Member, Workspace},
};

/// Checks formatting, lints, documentation and manifests.
#[derive(Args, Debug)]
pub struct Options {}

/// What may stand at the root, besides the member crates.
const ROOT: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitattributes",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "SECURITY.md",
    "clippy.toml",
    "rustfmt.toml",
];

/// A named check.
type Check = (&'static str, fn(&Workspace) -> Result<()>);

/// Cheap ones first.
const CHECKS: &[Check] = &[
    ("formatting", formatting),
    ("manifests", manifests),
    ("files", files),
    ("clippy, BPF crate", clippy_bpf),
    ("clippy, host crates", clippy_host),
    ("documentation", documentation),
];

/// Runs all checks, the later ones also after a failure, and fails if one did.
pub fn run(workspace: &Workspace, Options {}: &Options) -> Result<()> {
    // The userspace crate compiles only with an object to embed.
    build::objects(workspace)?;
    let mut failed = Vec::new();
    for (name, check) in CHECKS {
        println!("lint: {name}");
        if let Err(err) = check(workspace) {
            eprintln!("error: {name}: {err:#}");
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        bail!("{} of {} checks failed: {}", failed.len(), CHECKS.len(), failed.join("; "));
    }
    println!("lint: {} checks passed", CHECKS.len());
    Ok(())
}

fn formatting(workspace: &Workspace) -> Result<()> {
    exec(workspace.cargo().args(["fmt", "--all", "--", "--check"]))
}

fn clippy_host(workspace: &Workspace) -> Result<()> {
    exec(
        workspace
            .cargo()
            .args(["clippy", "--quiet", "--workspace", "--exclude", build::CRATE, "--all-targets"])
            .args(["--", "--deny=warnings"]),
    )
}

/// Clippy cannot read the `core` of the BPF compiler (it is of another version), so the crate is checked
/// for the host; apart from the others, whose features would bring `std` into it.
fn clippy_bpf(workspace: &Workspace) -> Result<()> {
    exec(
        workspace
            .cargo()
            .args(["clippy", "--quiet", "--package", build::CRATE, "--target-dir"])
            .arg(workspace.target.join("bpf-lint"))
            .args(["--", "--deny=warnings", "-Cpanic=abort"])
            .env("RUSTC_BOOTSTRAP", "1"),
    )
}

fn documentation(workspace: &Workspace) -> Result<()> {
    exec(
        workspace
            .cargo()
            .args(["doc", "--quiet", "--no-deps", "--lib"])
            .args(["--package=ratelimit-common", "--package=ratelimit-userspace"])
            .env("RUSTDOCFLAGS", "--deny=warnings"),
    )
}

fn manifests(workspace: &Workspace) -> Result<()> {
    let mut faults = Vec::new();
    for Member { name, manifest_path, .. } in &workspace.members {
        let text = fs::read_to_string(manifest_path)
            .with_context(|| format!("failed to read {}", manifest_path.display()))?;
        let manifest =
            text.parse().with_context(|| format!("failed to parse {}", manifest_path.display()))?;
        faults.extend(manifest_faults(&manifest).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    fail_with(&faults)
}

/// What a member's manifest says itself, though it ought to come from the workspace.
fn manifest_faults(manifest: &Table) -> Vec<String> {
    let mut faults = Vec::new();
    let inherits = |value: Option<&Value>| {
        value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
    };
    if !inherits(manifest.get("lints")) {
        faults.push("[lints] must say workspace = true".to_owned());
    }
    let targets = manifest.get("target").and_then(Value::as_table);
    let tables = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table).chain([manifest]);
    for table in tables {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = table.get(kind).and_then(Value::as_table);
            for (name, dependency) in dependencies.into_iter().flatten() {
                if !inherits(Some(dependency)) {
                    faults.push(format!("[{kind}] {name} must say workspace = true"));
                }
            }
        }
    }
    faults
}

fn files(workspace: &Workspace) -> Result<()> {
    let listing = read(
        Command::new("git")
            // The checkout may belong to another user, as in a container.
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&workspace.root),
    )?;
    let members: Vec<&str> = workspace
        .members
        .iter()
        .filter_map(|member| member.manifest_path.parent()?.strip_prefix(&workspace.root).ok()?.to_str())
        .collect();
    let mut faults = Vec::new();
    for path in listing.split_terminator('\0') {
        if !belongs(path, &members) {
            faults.push(format!("{path}: does not belong at the root"));
        }
        // A file that is deleted but not yet committed is still listed; one that is no text is no matter.
        let Ok(text) = fs::read_to_string(workspace.root.join(path)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if names_private_path(line, &workspace.root) {
                faults.push(format!("{path}:{}: names a folder of one machine", number + 1));
            }
        }
    }
    faults.dedup();
    fail_with(&faults)
}

/// Whether a file's first folder (or its name, at the root) is one that is meant to be there.
fn belongs(path: &str, members: &[&str]) -> bool {
    let first = path.split('/').next().unwrap_or(path);
    ROOT.contains(&first) || members.contains(&first)
}

/// Whether a line names somebody's home, or the folder in which this checkout happens to be.
fn names_private_path(line: &str, root: &Path) -> bool {
    // Written in two parts, so as not to find themselves.
    let homes = [concat!("/home", "/"), concat!("/Users", "/")];
    let root = root.to_str().filter(|root| root.matches('/').count() > 1);
    homes.iter().any(|home| line.contains(home)) || root.is_some_and(|root| line.contains(root))
}

fn fail_with(faults: &[String]) -> Result<()> {
    if !faults.is_empty() {
        bail!("{}", faults.join("\n  "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(manifest: &str) -> Vec<String> {
        manifest_faults(&manifest.parse().unwrap())
    }

    #[test]
    fn a_manifest_that_inherits_everything_is_clean() {
        let manifest = "[lints]\nworkspace = true\n[dependencies]\na = { workspace = true, features = ['x'] }\n\
                        [target.'cfg(loom)'.dev-dependencies]\nb.workspace = true\n";
        assert_eq!(faults(manifest), Vec::<String>::new());
    }

    #[test]
    fn own_lints_and_versions_are_found_wherever_they_stand() {
        assert_eq!(faults("[lints.rust]\nunsafe_code = 'allow'\n"), ["[lints] must say workspace = true"]);
        let manifest = "[lints]\nworkspace = true\n[dependencies]\na = '1'\n[build-dependencies]\n\
                        b = { path = '../b' }\n[target.'cfg(unix)'.dependencies]\nc = { version = '2' }\n";
        assert_eq!(
            faults(manifest),
            [
                "[dependencies] c must say workspace = true",
                "[dependencies] a must say workspace = true",
                "[build-dependencies] b must say workspace = true",
            ]
        );
    }

    #[test]
    fn only_members_and_the_usual_files_stand_at_the_root() {
        let members = ["xtask", "ratelimit-common"];
        assert!(belongs("Cargo.toml", &members));
        assert!(belongs("ratelimit-common/src/lib.rs", &members));
        assert!(belongs(".ci/run", &members));
        assert!(!belongs("notes.txt", &members));
        assert!(!belongs("scripts/build.sh", &members));
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let root = Path::new("/srv/checkout");
        assert!(names_private_path(concat!("see /home", "/someone/x"), root));
        assert!(names_private_path("cd /srv/checkout/target", root));
        assert!(!names_private_path("cd /srv/www", root));
        // A checkout in a folder such as /src would find itself everywhere.
        assert!(!names_private_path("a/src/b", Path::new("/src")));
    }
}
