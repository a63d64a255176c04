//! Who may ask, and who may change what was counted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use http::HeaderValue;
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::listener::Peer;
use crate::config::http::Access as Config;

/// Who may do what, with the tokens as they stood in their files.
#[derive(Clone, Debug)]
pub struct Access {
    allow_from: Vec<IpNet>,
    tokens: Tokens,
}

/// The tokens as they stood in their files.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    ask: Option<Token>,
    write: Option<Token>,
}

/// What an asker may do. Whoever may write may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Nothing.
    None,
    /// Have requests decided and counted.
    Ask,
    /// Also refund, override limits, commit and reset.
    Write,
}

/// Why somebody is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// A token would help, and none that is known came.
    #[error("this needs `Authorization: Bearer TOKEN` with a token that the limiter knows")]
    Unauthenticated,
    /// No token would help.
    #[error(
        "this address may not ask; add it to `access: {{ allow_from: [...] }}` of the limiter, or configure a \
         `token_file` there and send the token"
    )]
    Forbidden,
    /// It may ask, but not do this.
    #[error(
        "refunds, limits of one's own, commits and resets need the write right: ask from the limiter's own \
         host or with the token of its `write_token_file`"
    )]
    NeedsWrite,
}

/// A token file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("failed to read the token file {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds no token that a header could carry.
    #[error(
        "{} must hold one token of visible ASCII characters on a line of its own; `openssl rand -hex 32` makes \
         a good one", .0.display()
    )]
    Invalid(PathBuf),
}

/// The digest of a token: of one length, so that comparing takes one time, and no secret to print.
#[derive(Clone, Debug)]
struct Token([u8; 32]);

// === impl Access ===

impl Access {
    /// As the configuration has it; reads the token files.
    pub fn new(config: &Config) -> Result<Self, TokenError> {
        let Config { allow_from, token_file, write_token_file } = config;
        let tokens = Tokens::read(token_file.as_deref(), write_token_file.as_deref())?;
        Ok(Self { allow_from: allow_from.clone(), tokens })
    }

    /// What `peer` may do, given the value of its `Authorization`.
    pub fn rights(&self, peer: Peer, authorization: Option<&HeaderValue>) -> Rights {
        let address = match peer {
            Peer::Unix => return Rights::Write,
            Peer::Address(address) if address.is_loopback() => return Rights::Write,
            Peer::Address(address) => address,
        };
        match self.tokens.rights(authorization) {
            Rights::None if self.allow_from.iter().any(|network| network.contains(&address)) => Rights::Ask,
            rights => rights,
        }
    }

    /// Whether these rights are enough, and if not, what to say.
    pub fn demand(&self, needed: Rights, has: Rights) -> Result<(), AccessError> {
        if has >= needed {
            Ok(())
        } else if has >= Rights::Ask {
            Err(AccessError::NeedsWrite)
        } else if self.tokens.any() {
            Err(AccessError::Unauthenticated)
        } else {
            Err(AccessError::Forbidden)
        }
    }
}

// === impl Tokens ===

impl Tokens {
    /// Reads the files of the token to ask and of the one to write.
    pub fn read(ask: Option<&Path>, write: Option<&Path>) -> Result<Self, TokenError> {
        Ok(Self { ask: ask.map(Token::read).transpose()?, write: write.map(Token::read).transpose()? })
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.ask.is_some() || self.write.is_some()
    }

    /// What the value of `Authorization` gives the right to. Both tokens are compared always.
    pub fn rights(&self, authorization: Option<&HeaderValue>) -> Rights {
        if !self.any() {
            return Rights::None;
        }
        let Some(sent) = authorization.and_then(|value| bearer(value.as_bytes())) else {
            return Rights::None;
        };
        let sent = Token::new(sent);
        let is = |token: &Option<Token>| {
            bool::from(token.as_ref().map_or_else(|| Choice::from(0), |token| token.is(&sent)))
        };
        match (is(&self.ask), is(&self.write)) {
            (_, true) => Rights::Write,
            (true, false) => Rights::Ask,
            (false, false) => Rights::None,
        }
    }
}

/// The token of `Bearer TOKEN`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

// === impl Token ===

impl Token {
    fn new(token: &[u8]) -> Self {
        Self(Sha256::digest(token).into())
    }

    fn read(path: &Path) -> Result<Self, TokenError> {
        let text = fs::read(path).map_err(|source| TokenError::Read { path: path.to_owned(), source })?;
        let token = text.trim_ascii();
        if token.is_empty() || !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Invalid(path.to_owned()));
        }
        Ok(Self::new(token))
    }

    fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

#[cfg(test)]
mod tests;
