//! Values that nobody is to see, and values that are not to be carried about.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Replaces values by their HMAC-SHA-256, cut to 128 bits, in hexadecimal: with the same key always the same,
/// without it neither to be reversed nor to be found by guessing.
#[derive(Clone)]
pub(super) struct Keyed {
    secret: Hmac<Sha256>,
    unwieldy: Hmac<Sha256>,
}

/// Bytes of a value that is carried as it is.
pub(super) const LONGEST_VALUE: usize = 8 << 10;

// === impl Keyed ===

impl fmt::Debug for Keyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").finish_non_exhaustive()
    }
}

impl Keyed {
    /// Derives a key for each purpose, so that what one says is of no use for another.
    pub(super) fn new(key: [u8; 32]) -> Self {
        let derived = |purpose: &[u8]| hmac(&hmac(&key).chain_update(purpose).finalize().into_bytes().into());
        Self { secret: derived(b"ratelimit: secret value"), unwieldy: derived(b"ratelimit: unwieldy value") }
    }

    /// What stands for a secret.
    pub(super) fn secret(&self, value: &[u8]) -> String {
        hexadecimal(&self.secret, value)
    }

    /// A value as text. One that is longer than 8 KiB or not UTF-8 is replaced by `hmac:` and its HMAC, so that
    /// different ones stay different.
    pub(super) fn text(&self, value: &[u8]) -> String {
        match str::from_utf8(value) {
            Ok(text) if text.len() <= LONGEST_VALUE => text.to_owned(),
            _ => format!("hmac:{}", hexadecimal(&self.unwieldy, value)),
        }
    }
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    // HMAC itself fills keys up to a block with zeros.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    Hmac::new(&block.into())
}

fn hexadecimal(keyed: &Hmac<Sha256>, value: &[u8]) -> String {
    let tag = keyed.clone().chain_update(value).finalize().into_bytes();
    let half = tag.first_chunk::<16>().map_or(0, |half| u128::from_be_bytes(*half));
    format!("{half:032x}")
}

#[cfg(test)]
mod tests;
