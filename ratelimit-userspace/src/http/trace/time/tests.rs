use proptest::prelude::*;

use super::*;

#[test]
fn decimal_seconds_are_read_exactly() {
    let cases = [
        ("0", 0),
        ("-0", 0),
        ("-0.000e9", 0),
        ("12.5", 12_500_000_000),
        ("0.1", 100_000_000),
        ("0.3", 300_000_000),
        ("1.000000001", 1_000_000_001),
        ("0.0000000004999999999999999999999999", 0),
        ("0.0000000005", 1),
        ("0.00000000149", 1),
        ("0.0000000015", 2),
        ("0.9999999995", 1_000_000_000),
        ("1e3", 1_000_000_000_000),
        ("1.25E-2", 12_500_000),
        ("125e-1", 12_500_000_000),
        ("1E+2", 100_000_000_000),
        ("0.000001e6", 1_000_000_000),
        ("5e-10", 1),
        ("49e-11", 0),
        ("1e-99999999999999999999999", 0),
        ("0e99999999999999999999999", 0),
        ("1700000000.123456789", 1_700_000_000_123_456_789),
        ("18446744073.709551615", u64::MAX),
        ("18446744073.7095516154999", u64::MAX),
        ("1844674407370955161500000000000e-20", 18_446_744_073_709_551_615),
    ];
    for (text, expected) in cases {
        assert_eq!(nanos(text), Ok(expected), "{text}");
    }
}

#[test]
fn impossible_times_are_refused() {
    let cases = [
        ("-1", TimeError::Negative),
        ("-1e-30", TimeError::Negative),
        ("18446744073.709551616", TimeError::TooLarge),
        ("18446744073.7095516155", TimeError::TooLarge),
        ("99999999999", TimeError::TooLarge),
        ("1700000000000", TimeError::TooLarge),
        ("1e99", TimeError::TooLarge),
        ("1e99999999999999999999999", TimeError::TooLarge),
        ("\"12.5\"", TimeError::NotANumber),
        ("null", TimeError::NotANumber),
        ("[1]", TimeError::NotANumber),
        ("true", TimeError::NotANumber),
    ];
    for (text, expected) in cases {
        assert_eq!(nanos(text), Err(expected), "{text}");
    }
    let long = "9".repeat(100_000);
    assert_eq!(nanos(&long), Err(TimeError::TooLarge));
    assert_eq!(nanos(&format!("0.{}", "0".repeat(100_000) + "1")), Ok(0));
    assert_eq!(nanos(&format!("1{}e-100000", "0".repeat(100_000))), Ok(1_000_000_000));
}

proptest! {
    #[test]
    fn every_nanosecond_is_told_apart(expected: u64, places in 0_usize..30, exponent in -8_i32..12) {
        // The same number with its point anywhere.
        let digits = format!("{expected:0>60}");
        let point = usize::try_from(51 - exponent).unwrap();
        let text = format!("{}.{}{}e{exponent}", &digits[..point].trim_start_matches('0'), &digits[point..], "0".repeat(places));
        let text = if text.starts_with('.') { format!("0{text}") } else { text };
        prop_assert_eq!(nanos(&text), Ok(expected), "{}", text);
    }

    #[test]
    fn any_number_can_be_read(text in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,25})?") {
        let _ = nanos(&text);
    }
}
