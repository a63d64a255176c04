//! A file that is there as a whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Puts a new file in the place of a file, once it is on the disk.
pub(crate) fn replace(
    file: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let name = file.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{} does not name a file", file.display()))
    })?;
    // In the same directory, since only within a file system a file takes the place of another at once.
    let mut temporary: OsString = name.to_owned();
    temporary.push(".new");
    let temporary = file.with_file_name(temporary);
    let result = write_to(&temporary, write).and_then(|()| fs::rename(&temporary, file));
    if result.is_err() {
        // What is left of it helps nobody; the first error is the one to tell.
        _ = fs::remove_file(&temporary);
        return result;
    }
    let directory =
        file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(directory)?.sync_all()
}

fn write_to(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut file = BufWriter::new(file);
    write(&mut file)?;
    file.flush()?;
    file.get_ref().sync_all()
}
