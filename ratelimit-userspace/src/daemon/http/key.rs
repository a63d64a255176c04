//! The key that counters are found under and secrets are hidden with.
//!
//! It must outlive the process where counters do: under another key the same client is another counter.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use rustix::rand::{GetRandomFlags, getrandom};

/// The file in the state directory that holds it.
const FILE: &str = "http.key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The kernel gives no random bytes.
    #[error("failed to draw a random key")]
    Random(#[source] io::Error),
    /// The state directory cannot be used.
    #[error("failed to {verb} {}", .path.display())]
    State {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{} does not hold a key of 32 bytes; remove it to have a new one, under which all counters begin anew",
        .0.display()
    )]
    Damaged(PathBuf),
    /// Others may read the file.
    #[error(
        "{} can be read by others than its owner, who could find out which clients are counted; `chmod 600 {}`",
        .0.display(), .0.display()
    )]
    Exposed(PathBuf),
}

/// The key that the state directory holds, drawn now if there is none; without a directory, one that ends
/// with the process.
pub(super) fn obtain(state_dir: Option<&Path>) -> Result<[u8; 32], KeyError> {
    let Some(state_dir) = state_dir else { return draw() };
    fs::create_dir_all(state_dir).map_err(failed("create", state_dir))?;
    let path = state_dir.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => {
            let mode = fs::metadata(&path).map_err(failed("look at", &path))?.permissions().mode();
            if mode & 0o077 != 0 {
                return Err(KeyError::Exposed(path));
            }
            bytes.try_into().map_err(|_| KeyError::Damaged(path))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = draw()?;
            write(&path, &key).map_err(failed("write", &path))?;
            Ok(key)
        }
        Err(error) => Err(failed("read", &path)(error)),
    }
}

/// Writes the file whole or not at all.
fn write(path: &Path, key: &[u8; 32]) -> io::Result<()> {
    let staged = path.with_extension("key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(key)?;
    file.sync_all()?;
    fs::rename(&staged, path)
}

fn draw() -> Result<[u8; 32], KeyError> {
    let mut key = [0; 32];
    // Up to 256 bytes come at once: getrandom(2).
    getrandom(&mut key[..], GetRandomFlags::empty()).map_err(|error| KeyError::Random(error.into()))?;
    Ok(key)
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> KeyError + use<'a> {
    move |source| KeyError::State { verb, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
