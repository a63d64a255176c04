//! What a rule is called: `domain/key=value/key=prefix*/key`.

use std::fmt::Write;

use crate::config::http::{Descriptor, ValuePattern};

/// The id of a domain.
pub(super) fn of_domain(name: &str) -> String {
    let mut id = String::new();
    escape(&mut id, name);
    id
}

/// The id of a descriptor below another, or below a domain.
pub(super) fn below(parent: &str, descriptor: &Descriptor) -> String {
    let mut id = format!("{parent}/");
    escape(&mut id, &descriptor.key);
    match &descriptor.value {
        ValuePattern::Any => {}
        ValuePattern::Exact(value) => {
            id.push('=');
            escape(&mut id, value);
        }
        ValuePattern::Prefix(prefix) => {
            id.push('=');
            escape(&mut id, prefix);
            id.push('*');
        }
    }
    id
}

/// Writes what separates the parts of an id, and what would garble a terminal or a log, as `%XX`.
fn escape(id: &mut String, text: &str) {
    for character in text.chars() {
        if matches!(character, '/' | '=' | '*' | '%') || character.is_control() {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a string does not fail.
                _ = write!(id, "%{byte:02X}");
            }
        } else {
            id.push(character);
        }
    }
}
