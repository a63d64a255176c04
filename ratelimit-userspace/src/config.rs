//! The rules file: what was typed (`file`) becomes what it means ([`policy`]), or a list of
//! [`diagnostic`]s that covers every mistake in it.
//!
//! One pass reads the YAML into a tree that knows where everything stands, a second one reads the tree. The
//! rule files that `http` names are read in the same way, within the second pass.
//!
//! A mistake never ends the reading: it is noted with its place, and what depends on it is left out.

mod deny_file;
pub mod diagnostic;
mod file;
pub mod http;
mod interface_pattern;
mod list_file;
pub mod policy;
mod resolve;
mod section;
mod shape;
mod token_file;
mod value;
mod warnings;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use ipnet::IpNet;

pub use self::deny_file::MAX_DENY_ENTRIES;
use self::{
    diagnostic::{Code, Diagnostic, Diagnostics, Mistake, Place, Reported},
    file::Node,
    policy::Config,
};

/// Bytes a rules file may hold.
pub const MAX_FILE_BYTES: u64 = 32 << 20;

/// A rules file without mistakes.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// What it means.
    pub config: Config,
    /// What is allowed but probably not meant.
    pub warnings: Vec<Diagnostic>,
}

/// Why a rules file gives no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The file cannot be read at all.
    #[error("{}: {}", .0.file, .0.message)]
    Unreadable(Box<Diagnostic>),
    /// The file has mistakes.
    #[error("{}", invalid(.errors, .warnings))]
    Invalid {
        /// Every mistake, in file order; those in files that it names come last. Never empty.
        errors: Vec<Diagnostic>,
        /// What would be warned of if it were valid, as far as the mistakes let it be known.
        warnings: Vec<Diagnostic>,
    },
}

/// Reads a rules file and the files it names.
pub fn load(path: &Path) -> Result<Loaded, Failure> {
    let file = path.display().to_string();
    match read_bounded(path, MAX_FILE_BYTES) {
        Ok(bytes) => parse(&bytes, path),
        Err(error) => {
            let mistake = Mistake::new(Code::UnreadableFile, format!("the file cannot be read: {error}"))
                .expected("a rules file that this user may read");
            Err(Failure::Unreadable(Box::new(Diagnostic::whole_file(&file, mistake))))
        }
    }
}

/// Reads the text of a rules file. `path` stands for it in messages, and the files that it names are looked
/// for in the directory that it lies in.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Loaded, Failure> {
    let file = path.display().to_string();
    let text = String::from_utf8_lossy(bytes);
    let mut diagnostics = Diagnostics::new(&file, &text);
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let config = document(bytes, &text, "`network` or `http`", &mut diagnostics)
        .and_then(|root| resolve::config(&root, directory, &mut diagnostics));
    let (errors, warnings) = diagnostics.finish();
    match config {
        Ok(config) if errors.is_empty() => Ok(Loaded { config, warnings }),
        _ => Err(Failure::Invalid { errors, warnings }),
    }
}

/// Reads an address or a prefix as rules files have them, for commands that take one. An address stands for
/// itself alone. The error says what is wrong and what was probably meant.
pub fn prefix(text: &str) -> Result<IpNet, String> {
    value::address::prefix(text).map_err(|mistake| mistake.or_expected("an address or a prefix").in_a_line())
}

/// Reads a protocol's name or number as rules files have them.
pub fn protocol(text: &str) -> Result<u8, String> {
    let expected = "a protocol, such as tcp, or its number";
    value::header::protocol(text).map_err(|mistake| mistake.or_expected(expected).in_a_line())
}

/// Reads the TCP flags of one packet, named as in rules files: those that are set, by commas.
pub fn tcp_flags(text: &str) -> Result<u8, String> {
    let expected = "the flags that are set, as in syn,ack; null for none";
    match value::header::tcp_flags(text) {
        Ok(policy::TcpFlags { set, .. }) if !text.contains('!') => Ok(set),
        Ok(_) => Err(format!("a packet has a flag or not; {expected}")),
        Err(mistake) => Err(mistake.or_expected(expected).in_a_line()),
    }
}

/// Reads an ICMP type's name or number as rules files have them.
pub fn icmp_type(text: &str, family: ratelimit_common::address::Family) -> Result<u8, String> {
    use ratelimit_common::address::Family;

    let types = value::header::icmp_types(text, family == Family::V4, family == Family::V6);
    let types = types.map_err(|mistake| mistake.or_expected("an ICMP type").in_a_line())?;
    match types[..] {
        [policy::IcmpType::V4(number) | policy::IcmpType::V6(number)] => Ok(number),
        // One family has one type of a name.
        _ => Err(format!("{text} is no type of ICMP")),
    }
}

/// The tree of a file that must hold `settings`. `text` is what the findings show of it.
fn document(
    bytes: &[u8],
    text: &str,
    settings: &str,
    diagnostics: &mut Diagnostics<'_>,
) -> Result<Node, Reported> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let message = format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20);
        let mistake = Mistake::new(Code::TooLarge, message).expected("long lists of addresses in deny_files");
        Err(diagnostics.error(Place::START, mistake))
    } else if let Err(error) = str::from_utf8(bytes) {
        let place = Place::after(&bytes[..error.valid_up_to()]);
        Err(diagnostics
            .error(place, Mistake::new(Code::InvalidUtf8, "the file is not UTF-8 text from here on")))
    } else {
        file::parse(text, settings, diagnostics)
    }
}

/// As [`read_bounded`]. A pipe could block for ever, and could not be read again on the next start.
fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read_bounded(path, limit)
}

/// The bytes of a file; one more than `limit` when there are more.
fn read_bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn invalid(errors: &[Diagnostic], warnings: &[Diagnostic]) -> String {
    let mut text = match errors {
        [_] => "the rules file is invalid".to_owned(),
        _ => format!("the rules file is invalid ({} errors)", errors.len()),
    };
    for finding in errors.iter().chain(warnings) {
        text.push('\n');
        text.push_str(&finding.to_string());
    }
    text
}
