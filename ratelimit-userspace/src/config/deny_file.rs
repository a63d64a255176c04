//! Deny files: one address or prefix a line.

use std::path::Path;

use ipnet::IpNet;

use super::{
    diagnostic::{Code, Diagnostics, Mistake, Reported},
    list_file::{self, Kind},
    value::address,
};

/// Entries that `deny` and all `deny_files` may hold together.
pub const MAX_DENY_ENTRIES: usize = list_file::MAX_ENTRIES;

const KIND: Kind = Kind { name: "deny file", line: "an address or a prefix a line, and comments after `#`" };

/// Adds the entries of a deny file to `deny`. Errors are those of [`list_file::read`].
pub(super) fn read(
    path: &Path,
    deny: &mut Vec<IpNet>,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Result<(), Reported>, Mistake> {
    list_file::read(path, KIND, diagnostics, |entry, _| {
        // Neither addresses nor prefixes hold the sign, so here it needs no blank before it.
        let prefix = entry.split('#').next().unwrap_or_default().trim_ascii_end();
        let prefix = address::prefix(prefix)?;
        if deny.len() >= MAX_DENY_ENTRIES {
            return Err(too_many("`deny` and `deny_files` hold"));
        }
        deny.push(prefix);
        Ok(())
    })
}

/// One entry above [`MAX_DENY_ENTRIES`].
pub(super) fn too_many(what: &str) -> Mistake {
    Mistake::new(Code::TooMany, format!("{what} more than {MAX_DENY_ENTRIES} entries"))
        .expected(format!("at most {MAX_DENY_ENTRIES} entries in all; neighbouring prefixes can be merged"))
}
