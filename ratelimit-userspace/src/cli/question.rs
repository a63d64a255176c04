//! What `explain` and `reset` are about: descriptors, and the daemon that counts them.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, StatusCode};
use ratelimit::{
    config::{self, http::Http},
    http::client::{self, ClientError},
};
use serde::Deserialize;

/// Where the rules and the daemon are.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// The rules file
    #[arg(long, short, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// File with the bearer token that the daemon wants from peers that are not on its host
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// The entries of one descriptor, as typed.
#[derive(Clone, Debug)]
pub(super) struct Entries(pub(super) Vec<(String, String)>);

/// How the daemon puts a refusal (RFC 9457).
#[derive(Debug, Deserialize)]
struct Problem {
    detail: String,
}

// === impl Source ===

impl Source {
    /// The daemon of a rules file.
    pub(super) fn new(config: PathBuf, token_file: Option<PathBuf>) -> Self {
        Self { config, token_file }
    }

    /// The `http:` section of the rules file.
    pub(super) fn http(&self) -> anyhow::Result<Http> {
        let http = config::load(&self.config)?.config.http;
        http.with_context(|| format!("{} has no http: section", self.config.display()))
    }

    /// Asks the daemon. `Ok(None)`: it knows no such thing.
    pub(super) fn ask(
        &self,
        http: &Http,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> anyhow::Result<Option<Bytes>> {
        let listen = http.listen.as_ref().with_context(|| {
            format!(
                "{} has no `listen:` in its http: section, so no daemon can be asked",
                self.config.display()
            )
        })?;
        let token = self.token_file.as_ref().map(|file| {
            fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
        });
        let token = token.transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("failed to start a runtime")?;
        let token = token.as_deref().map(str::trim);
        let (status, answer) = runtime.block_on(client::send(listen, method, target, token, body))?;
        match status {
            status if status.is_success() || status == StatusCode::TOO_MANY_REQUESTS => Ok(Some(answer)),
            StatusCode::NOT_FOUND => Ok(None),
            status => match serde_json::from_slice(&answer) {
                Ok(Problem { detail }) => bail!("the daemon at {listen} refuses: {detail}"),
                Err(_) => bail!("the daemon at {listen} answered with status {status}"),
            },
        }
    }
}

/// Whether an error says that there is no daemon to ask.
pub(super) fn unreachable(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Unreachable { .. }))
}

/// The target that stands for the counter of a descriptor.
pub(super) fn counter(domain: &str, entries: &[(String, String)]) -> String {
    const PATH: &str = "/v1/counters?";
    let mut query = form_urlencoded::Serializer::for_suffix(String::from(PATH), PATH.len());
    query.append_pair("domain", domain);
    for (key, value) in entries {
        query.append_pair("key", key).append_pair("value", value);
    }
    query.finish()
}

// === impl Entries ===

/// `key=value`, more of them behind commas; `\,` is a comma within a value, `\\` a backslash.
impl std::str::FromStr for Entries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        let mut entry = String::new();
        let mut characters = text.chars();
        let mut finish = |entry: &mut String| {
            let (key, value) = entry.split_once('=').ok_or_else(|| {
                format!("`{entry}` is no entry; write key=value, more of them behind commas")
            })?;
            if key.is_empty() {
                return Err(format!("`{entry}` has no key; write key=value"));
            }
            entries.push((key.to_owned(), value.to_owned()));
            entry.clear();
            Ok(())
        };
        while let Some(character) = characters.next() {
            match character {
                ',' => finish(&mut entry)?,
                '\\' => entry.extend(characters.next()),
                _ => entry.push(character),
            }
        }
        finish(&mut entry)?;
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Result<Vec<(String, String)>, String> {
        text.parse().map(|Entries(entries)| entries)
    }

    #[test]
    fn entries_are_told_apart_by_commas() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(entries("a=1"), Ok(vec![pair("a", "1")]));
        assert_eq!(entries("a=1,b=x=y"), Ok(vec![pair("a", "1"), pair("b", "x=y")]));
        assert_eq!(entries(r"a=1\,2,b=\\"), Ok(vec![pair("a", "1,2"), pair("b", "\\")]));
        assert_eq!(entries("a="), Ok(vec![pair("a", "")]));
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        for text in ["", "a", "=1", "a=1,", ",a=1"] {
            assert!(entries(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_counter_is_named_by_its_entries_in_order() {
        let entries = [("key".to_owned(), "a&b".to_owned()), ("route".to_owned(), "/x y".to_owned())];
        let target = "/v1/counters?domain=api&key=key&value=a%26b&key=route&value=%2Fx+y";
        assert_eq!(counter("api", &entries), target);
    }
}
