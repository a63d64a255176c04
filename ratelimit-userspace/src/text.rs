//! Text for people.

use std::fmt::Display;

/// `1234567` as `1,234,567`.
pub fn number(value: impl Display) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (1_048_576, "1,048,576")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(u64::MAX), "18,446,744,073,709,551,615");
    }
}
