//! Numbers as people write them: `256MiB`, `15min`, `1000`.
//!
//! One rule for every key. A plain integer counts the key's own unit (bytes, or milliseconds);
//! a number may instead carry a unit, and may then have a fraction (`1.5GiB`) as long as the
//! result is whole. Units are exact and case counts, so that nothing has to be guessed:
//! sizes take `B KiB MiB GiB TiB` (powers of 1024) or `KB MB GB TB` (powers of 1000), times take
//! `ms s min h d`. `_` may separate digits. −1 stands for "no limit" where a key allows it.
//!
//! Parsing only; bounds are the key's business.

const SIZES: &[(&str, i64)] = &[
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

const TIMES: &[(&str, i64)] =
    &[("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// What kept a text from being a number of the wanted kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumber {
    NotANumber,
    UnknownUnit,
    NotWhole,
    TooLarge,
}

/// Bytes: `1048576`, `1MiB`, `1.5GiB`.
pub fn parse_bytes(text: &str) -> Result<i64, BadNumber> {
    parse(text, SIZES)
}

/// Milliseconds: `900000`, `15min`, `7d`.
pub fn parse_millis(text: &str) -> Result<i64, BadNumber> {
    parse(text, TIMES)
}

/// A count: `1000`, `1_000`.
pub fn parse_count(text: &str) -> Result<i64, BadNumber> {
    parse(text, &[])
}

/// The shortest exact spelling of a number of bytes: 268435456 is `256MiB`.
pub fn show_bytes(bytes: i64) -> String {
    show(bytes, &["TiB", "GiB", "MiB", "KiB"], SIZES)
}

/// The shortest exact spelling of a time: 900000 is `15min`.
pub fn show_millis(millis: i64) -> String {
    show(millis, &["d", "h", "min", "s", "ms"], TIMES)
}

fn parse(text: &str, units: &[(&str, i64)]) -> Result<i64, BadNumber> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '-' | '+' | '_' | '.')))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let number = number.replace('_', "");
    let unit = unit.trim_start();
    if unit.is_empty() {
        return parse_whole(&number);
    }
    if !number.contains(|c: char| c.is_ascii_digit()) {
        return Err(BadNumber::NotANumber);
    }
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    scale(&number, factor.ok_or(BadNumber::UnknownUnit)?)
}

fn parse_whole(number: &str) -> Result<i64, BadNumber> {
    let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        let fraction = number.parse::<f64>().is_ok();
        return Err(if fraction { BadNumber::NotWhole } else { BadNumber::NotANumber });
    }
    number.parse().map_err(|_| BadNumber::TooLarge)
}

/// `number` times `factor`, exactly: "1.5" × 1024 = 1536, "1.0001" × 1024 is not whole.
fn scale(number: &str, factor: i64) -> Result<i64, BadNumber> {
    let Some((whole, fraction)) = number.split_once('.') else {
        return parse_whole(number)?.checked_mul(factor).ok_or(BadNumber::TooLarge);
    };
    let fraction = fraction.trim_end_matches('0');
    if whole.starts_with('-') || fraction.starts_with(['-', '+']) {
        return Err(BadNumber::NotANumber);
    }
    if fraction.len() > 9 {
        return Err(BadNumber::NotWhole);
    }
    let whole = parse_whole(whole)?.checked_mul(factor).ok_or(BadNumber::TooLarge)?;
    if fraction.is_empty() {
        return Ok(whole);
    }
    let denominator = 10_i128.pow(fraction.len() as u32);
    let part = i128::from(parse_whole(fraction)?) * i128::from(factor);
    if part % denominator != 0 {
        return Err(BadNumber::NotWhole);
    }
    let part = i64::try_from(part / denominator).map_err(|_| BadNumber::TooLarge)?;
    whole.checked_add(part).ok_or(BadNumber::TooLarge)
}

fn show(number: i64, largest_first: &[&str], units: &[(&str, i64)]) -> String {
    if number <= 0 || number == i64::MAX {
        return number.to_string();
    }
    for name in largest_first {
        let factor = units.iter().find(|(unit, _)| unit == name).map_or(1, |(_, factor)| *factor);
        if number % factor == 0 {
            return format!("{}{name}", number / factor);
        }
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expect) in [
            ("0", Ok(0)),
            ("-1", Ok(-1)),
            ("1_000", Ok(1000)),
            (" 256MiB ", Ok(256 << 20)),
            ("256 MiB", Ok(256 << 20)),
            ("1.5KiB", Ok(1536)),
            ("1.50KiB", Ok(1536)),
            ("2.0GB", Ok(2_000_000_000)),
            ("100KB", Ok(100_000)),
            ("7B", Ok(7)),
            ("", Err(BadNumber::NotANumber)),
            ("MiB", Err(BadNumber::NotANumber)),
            ("-", Err(BadNumber::NotANumber)),
            ("1-2", Err(BadNumber::NotANumber)),
            ("-1.5KiB", Err(BadNumber::NotANumber)),
            ("1.", Err(BadNumber::NotWhole)),
            ("1.5", Err(BadNumber::NotWhole)),
            ("1.0001KiB", Err(BadNumber::NotWhole)),
            ("256mib", Err(BadNumber::UnknownUnit)),
            ("256M", Err(BadNumber::UnknownUnit)),
            ("5min", Err(BadNumber::UnknownUnit)),
            ("9223372036854775807", Ok(i64::MAX)),
            ("9223372036854775808", Err(BadNumber::TooLarge)),
            ("9000000TiB", Err(BadNumber::TooLarge)),
        ] {
            assert_eq!(parse_bytes(text), expect, "{text:?}");
        }
    }

    #[test]
    fn times_and_counts() {
        for (text, expect) in [
            ("250", Ok(250)),
            ("250ms", Ok(250)),
            ("1.5s", Ok(1500)),
            ("15min", Ok(900_000)),
            ("7d", Ok(604_800_000)),
            ("1m", Err(BadNumber::UnknownUnit)),
            ("soon", Err(BadNumber::NotANumber)),
        ] {
            assert_eq!(parse_millis(text), expect, "{text:?}");
        }
        assert_eq!(parse_count("16"), Ok(16));
        assert_eq!(parse_count("16MiB"), Err(BadNumber::UnknownUnit));
    }

    #[test]
    fn what_is_shown_reads_back() {
        for bytes in [-1, 0, 1, 1023, 1024, 1_048_588, 256 << 20, 3 << 40, i64::MAX] {
            assert_eq!(parse_bytes(&show_bytes(bytes)), Ok(bytes));
        }
        for millis in [-1, 0, 1, 999, 1000, 90_000, 604_800_000, i64::MAX] {
            assert_eq!(parse_millis(&show_millis(millis)), Ok(millis));
        }
        assert_eq!(show_bytes(256 << 20), "256MiB");
        assert_eq!(show_millis(604_800_000), "7d");
        assert_eq!(show_millis(90_000), "90s");
    }
}
