//! The kinds of value a key may have, and how a text becomes one.
//!
//! A key names a [`Kind`] with its bounds; [`Kind::parse`] turns a text from the file, a flag or
//! `--set` into a [`Value`] that keeps them, or says what would have been allowed. [`Setting`] is
//! the other half: the Rust type of a field of `Config`, made from a value of the matching kind.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use super::units::{self, BadNumber};

/// What a key holds, with the bounds it keeps. Bounds are inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Bool,
    Count {
        min: i64,
        max: i64,
    },
    /// A size; −1 within the bounds means "no limit" or what the key says it means.
    Bytes {
        min: i64,
        max: i64,
    },
    /// A time in milliseconds; −1 as for sizes.
    Millis {
        min: i64,
        max: i64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words, separated by commas; at least one.
    Choices(&'static [&'static str]),
    Text,
    Path,
    /// `HOST:PORT`.
    Address,
    /// `HOST:PORT`, or empty for none.
    AddressOrNone,
    /// `ADDRESS:COUNT` pairs, separated by commas, or empty for none.
    AddressCounts,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Bool(bool),
    Number(i64),
    Text(String),
    Words(Vec<String>),
    Path(PathBuf),
    Address(Option<HostPort>),
    Counts(AddressCounts),
}

/// A number for each of some IP addresses.
pub type AddressCounts = BTreeMap<IpAddr, u32>;

/// A text that is not a value of its key's kind. Displayed after the key and the text.
#[derive(Clone, Debug, PartialEq)]
pub enum BadValue {
    Number(BadNumber, Kind),
    OutOfBounds(Kind),
    NotAllowed(Kind),
}

/// Where something listens or is reached: a name or an IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Without the brackets of an IPv6 address.
    pub host: String,
    pub port: u16,
}

/// A type of a field of `Config`.
pub trait Setting: Sized {
    /// `None` when the value is not of the kind this type stands for: an error in the key table,
    /// which a test holds to account.
    fn from_value(value: &Value) -> Option<Self>;
}

impl Kind {
    pub fn parse(&self, text: &str) -> Result<Value, BadValue> {
        let text = text.trim();
        let value = match *self {
            Kind::Bool => Value::Bool(parse_bool(text).ok_or(BadValue::NotAllowed(*self))?),
            Kind::Count { .. } | Kind::Bytes { .. } | Kind::Millis { .. } => {
                Value::Number(self.parse_number(text)?)
            }
            Kind::Choice(words) => {
                let known = words.contains(&text);
                known.then(|| Value::Text(text.into())).ok_or(BadValue::NotAllowed(*self))?
            }
            Kind::Choices(words) => {
                let chosen: Vec<String> = text.split(',').map(|w| w.trim().to_string()).collect();
                if !chosen.iter().all(|word| words.contains(&word.as_str())) {
                    return Err(BadValue::NotAllowed(*self));
                }
                Value::Words(chosen)
            }
            Kind::Text => Value::Text(text.into()),
            Kind::Path if text.is_empty() => return Err(BadValue::NotAllowed(*self)),
            Kind::Path => Value::Path(text.into()),
            Kind::AddressOrNone if text.is_empty() => Value::Address(None),
            Kind::Address | Kind::AddressOrNone => {
                let address = HostPort::parse(text).ok_or(BadValue::NotAllowed(*self))?;
                Value::Address(Some(address))
            }
            Kind::AddressCounts => {
                Value::Counts(parse_counts(text).ok_or(BadValue::NotAllowed(*self))?)
            }
        };
        Ok(value)
    }

    fn parse_number(&self, text: &str) -> Result<i64, BadValue> {
        let (parsed, min, max) = match *self {
            Kind::Count { min, max } => (units::parse_count(text), min, max),
            Kind::Bytes { min, max } => (units::parse_bytes(text), min, max),
            Kind::Millis { min, max } => (units::parse_millis(text), min, max),
            _ => return Err(BadValue::NotAllowed(*self)),
        };
        let number = parsed.map_err(|problem| BadValue::Number(problem, *self))?;
        if number < min || number > max {
            return Err(BadValue::OutOfBounds(*self));
        }
        Ok(number)
    }
}

/// What is allowed: "a size from 1MiB to 1GiB (like 4194304 or 4MiB), or -1".
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range =
            |f: &mut fmt::Formatter<'_>, (min, max), show: fn(i64) -> String| match (min, max) {
                (-1, i64::MAX) => write!(f, " of 0 or more, or -1"),
                (-1, _) => write!(f, " from 0 to {}, or -1", show(max)),
                (_, i64::MAX) => write!(f, " of at least {}", show(min)),
                _ => write!(f, " from {} to {}", show(min), show(max)),
            };
        match *self {
            Kind::Bool => write!(f, "true or false"),
            Kind::Count { min, max } => {
                write!(f, "a number")?;
                range(f, (min, max), |n| n.to_string())
            }
            Kind::Bytes { min, max } => {
                write!(f, "a size")?;
                range(f, (min, max), units::show_bytes)?;
                write!(f, " (bytes, or with B, KiB, MiB, GiB, TiB, KB, MB, GB, TB)")
            }
            Kind::Millis { min, max } => {
                write!(f, "a time")?;
                range(f, (min, max), units::show_millis)?;
                write!(f, " (milliseconds, or with ms, s, min, h, d)")
            }
            Kind::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Kind::Choices(words) => {
                write!(f, "one or more of {}, separated by commas", words.join(", "))
            }
            Kind::Text => write!(f, "a text"),
            Kind::Path => write!(f, "a path"),
            Kind::Address => write!(f, "HOST:PORT, like 127.0.0.1:9092 or [::1]:9092"),
            Kind::AddressOrNone => {
                write!(f, "HOST:PORT, like 127.0.0.1:9092 or [::1]:9092, or empty for none")
            }
            Kind::AddressCounts => {
                write!(f, "ADDRESS:COUNT pairs, like 10.0.0.7:500,[::1]:20, or empty for none")
            }
        }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadValue::Number(BadNumber::NotANumber, kind) => write!(f, "not a number; give {kind}"),
            BadValue::Number(BadNumber::UnknownUnit, kind) => {
                write!(f, "not a unit it can have; give {kind}")
            }
            BadValue::Number(BadNumber::NotWhole, kind) => {
                write!(f, "not a whole number; give {kind}")
            }
            BadValue::Number(BadNumber::TooLarge, kind) | BadValue::OutOfBounds(kind) => {
                write!(f, "out of bounds; give {kind}")
            }
            BadValue::NotAllowed(kind) => write!(f, "not allowed; give {kind}"),
        }
    }
}

impl Value {
    /// As Kafka's tools expect it: plain numbers, words joined by commas.
    pub fn plain(&self) -> String {
        match self {
            Value::Bool(value) => value.to_string(),
            Value::Number(value) => value.to_string(),
            Value::Text(value) => value.clone(),
            Value::Words(words) => words.join(","),
            Value::Path(path) => path.display().to_string(),
            Value::Address(address) => address.as_ref().map(|a| a.to_string()).unwrap_or_default(),
            Value::Counts(counts) => {
                let pair = |(address, count): (&IpAddr, &u32)| match address {
                    IpAddr::V4(address) => format!("{address}:{count}"),
                    IpAddr::V6(address) => format!("[{address}]:{count}"),
                };
                counts.iter().map(pair).collect::<Vec<_>>().join(",")
            }
        }
    }
}

impl HostPort {
    /// `HOST:PORT` or `[IPV6]:PORT`.
    pub fn parse(text: &str) -> Option<HostPort> {
        let (host, port) = text.rsplit_once(':')?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let host = match bracketed {
            Some(address) => address.parse::<std::net::Ipv6Addr>().ok().map(|_| address)?,
            None => host,
        };
        let clean = |c: char| !c.is_whitespace() && !matches!(c, '/' | '[' | ']' | ',');
        if host.is_empty() || !host.chars().all(clean) {
            return None;
        }
        if bracketed.is_none() && host.contains(':') {
            return None;
        }
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(HostPort { host: host.to_string(), port: port.parse().ok()? })
    }

    pub fn with_port(&self, port: u16) -> HostPort {
        HostPort { host: self.host.clone(), port }
    }

    /// Whether it names every interface (`0.0.0.0`, `[::]`): good to listen on, useless to
    /// advertise.
    pub fn is_unspecified(&self) -> bool {
        self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified())
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

fn parse_counts(text: &str) -> Option<AddressCounts> {
    let pair = |pair: &str| {
        let HostPort { host, .. } = HostPort::parse(&format!("{}:0", pair.rsplit_once(':')?.0))?;
        let count = pair.rsplit_once(':')?.1;
        let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
        Some((host.parse().ok()?, count.parse().ok().filter(|_| digits)?))
    };
    let pairs = text.split(',').map(str::trim).filter(|_| !text.is_empty());
    pairs.map(pair).collect()
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

impl Setting for bool {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {
        $(
            impl Setting for $type {
                fn from_value(value: &Value) -> Option<Self> {
                    match value {
                        Value::Number(number) => <$type>::try_from(*number).ok(),
                        _ => None,
                    }
                }
            }

            /// −1 is `None`.
            impl Setting for Option<$type> {
                fn from_value(value: &Value) -> Option<Self> {
                    match value {
                        Value::Number(-1) => Some(None),
                        value => <$type>::from_value(value).map(Some),
                    }
                }
            }
        )*
    };
}

numbers!(i32, i64, u32, u64, usize);

impl Setting for String {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }
}

impl Setting for PathBuf {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Path(path) => Some(path.clone()),
            _ => None,
        }
    }
}

impl Setting for HostPort {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Address(address) => address.clone(),
            _ => None,
        }
    }
}

impl Setting for AddressCounts {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Counts(counts) => Some(counts.clone()),
            _ => None,
        }
    }
}

impl Setting for Option<HostPort> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Address(address) => Some(address.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, expect) in [
            ("127.0.0.1:9092", Some(("127.0.0.1", 9092))),
            ("broker.example:0", Some(("broker.example", 0))),
            ("[::1]:9092", Some(("::1", 9092))),
            ("::1:9092", None),
            ("[broker]:9092", None),
            (":9092", None),
            ("host", None),
            ("host:", None),
            ("host:+1", None),
            ("host:65536", None),
            ("PLAINTEXT://host:9092", None),
            ("a b:1", None),
        ] {
            let parsed = HostPort::parse(text);
            let expect = expect.map(|(host, port)| HostPort { host: host.into(), port });
            assert_eq!(parsed, expect, "{text}");
            if let Some(parsed) = parsed {
                assert_eq!(parsed.to_string(), text);
            }
        }
        assert!(HostPort::parse("0.0.0.0:1").unwrap().is_unspecified());
        assert!(HostPort::parse("[::]:1").unwrap().is_unspecified());
        assert!(!HostPort::parse("localhost:1").unwrap().is_unspecified());
    }

    #[test]
    fn counts_of_addresses() {
        for (text, expect) in [
            ("", Some("")),
            ("127.0.0.1:5", Some("127.0.0.1:5")),
            (" 10.0.0.2:7 , [::1]:0 ", Some("10.0.0.2:7,[::1]:0")),
            ("localhost:5", None),
            ("127.0.0.1", None),
            ("127.0.0.1:", None),
            ("127.0.0.1:-1", None),
            ("127.0.0.1:1,", None),
            ("127.0.0.1:4294967296", None),
        ] {
            let parsed = Kind::AddressCounts.parse(text);
            let plain = parsed.as_ref().ok().map(Value::plain);
            assert_eq!(plain.as_deref(), expect, "{text}: {parsed:?}");
        }
    }

    #[test]
    fn a_bad_value_says_what_is_allowed() {
        let size = Kind::Bytes { min: 1 << 20, max: 1 << 30 };
        for (kind, text, expect) in [
            (Kind::Bool, "yes", "not allowed; give true or false"),
            (
                Kind::Count { min: 1, max: 10 },
                "11",
                "out of bounds; give a number from 1 to 10",
            ),
            (
                Kind::Millis { min: -1, max: i64::MAX },
                "-2",
                "out of bounds; give a time of 0 or more, or -1 (milliseconds, or with ms, s, min, \
                 h, d)",
            ),
            (
                size,
                "2mb",
                "not a unit it can have; give a size from 1MiB to 1GiB (bytes, or with B, KiB, \
                 MiB, GiB, TiB, KB, MB, GB, TB)",
            ),
            (Kind::Choice(&["a", "b"]), "c", "not allowed; give one of a, b"),
            (
                Kind::Choices(&["a", "b"]),
                "a,",
                "not allowed; give one or more of a, b, separated by commas",
            ),
            (Kind::Path, "", "not allowed; give a path"),
            (
                Kind::Address,
                "here",
                "not allowed; give HOST:PORT, like 127.0.0.1:9092 or [::1]:9092",
            ),
        ] {
            assert_eq!(kind.parse(text).unwrap_err().to_string(), expect, "{text}");
        }
    }
}
