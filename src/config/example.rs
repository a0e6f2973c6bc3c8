//! The configuration as text: `config/basalt.toml`, and what `basalt config show` prints.
//!
//! Both read back through [`Config::from_toml`]. The example file is written by
//! `basalt config show --explain` without a file, and a test holds it to the key table.

use std::fmt::Write;

use super::error::Origin;
use super::keys::{Config, Effect, Key};
use super::load::{shorter_key, Entry};
use super::value::{Kind, Value};

const WIDTH: usize = 98;

const HEAD: &str = "\
# Every key of Basalt with its default and meaning. A broker needs no file at all: give one with
# --config FILE, with only the keys that differ. Stronger than the file are flags and --set
# key=value.
#
# Sizes are bytes or have a unit (B KiB MiB GiB TiB, KB MB GB TB), times are milliseconds or have a
# unit (ms s min h d); with a unit they stand in quotes. A key that begins with another key, like
# \"flush.interval.ms\", stands in quotes as well.
";

impl Config {
    /// Every key, its effective value and where it came from.
    pub fn show(&self) -> String {
        let mut out = String::new();
        for entry in &self.entries {
            let line = assignment(entry);
            match entry.origin {
                Origin::Default => writeln!(out, "{line}"),
                _ => writeln!(out, "{line:<50}  # {}", entry.origin),
            }
            .unwrap_or_default();
        }
        out
    }

    /// Every key with its meaning; a value that is not the default says so.
    pub fn explain(&self) -> String {
        let mut out = String::from(HEAD);
        let mut section = "";
        for entry in &self.entries {
            if entry.key.section != section {
                section = entry.key.section;
                out.push_str(&format!(
                    "\n# {} {}\n",
                    section,
                    "-".repeat(WIDTH - 3 - section.len())
                ));
            }
            out.push('\n');
            let allowed = allowed(&entry.key.kind);
            for text in [Some(meaning(entry.key)), allowed].into_iter().flatten() {
                for line in wrapped(&text) {
                    out.push_str(&format!("# {line}\n"));
                }
            }
            match entry.origin {
                Origin::Default => {}
                _ => out.push_str(&format!("# Default: {}\n", entry.key.default)),
            }
            out.push_str(&assignment(entry));
            out.push('\n');
        }
        out
    }
}

fn meaning(key: &Key) -> String {
    match key.effect {
        Effect::Live => key.meaning.to_string(),
        Effect::Planned => format!("{} No effect in this version.", key.meaning),
    }
}

/// What a key may be; how sizes and times are written stands at the head of the file.
fn allowed(kind: &Kind) -> Option<String> {
    match kind {
        Kind::Path | Kind::Text | Kind::Bool => None,
        kind => kind.to_string().split(" (").next().map(|range| format!("Allowed: {range}.")),
    }
}

/// `log.segment.bytes = "256MiB"`.
fn assignment(entry: &Entry) -> String {
    let name = entry.key.name;
    let name = if shorter_key(name).is_some() { format!("\"{name}\"") } else { name.to_string() };
    let bare = match &entry.value {
        Value::Bool(_) => true,
        Value::Number(_) => entry.text.parse::<i64>().is_ok() || is_grouped(&entry.text),
        _ => false,
    };
    let text = entry.text.trim();
    if bare {
        format!("{name} = {text}")
    } else {
        format!("{name} = {}", toml::Value::String(text.to_string()))
    }
}

/// `200_000`: digits, single underscores between them.
fn is_grouped(text: &str) -> bool {
    let mut parts = text.split('_');
    parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
        && !text.starts_with('0')
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH - 2 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Sources, KEYS};

    const EXAMPLE: &str = include_str!("../../config/basalt.toml");

    #[test]
    fn the_example_file_is_the_key_table() {
        let written = Config::default().explain();
        assert!(
            written == EXAMPLE,
            "config/basalt.toml is not what the key table says; write it anew: \
             cargo run -- config show --explain > config/basalt.toml"
        );
    }

    #[test]
    fn the_example_file_gives_every_key_its_default() {
        let config = Config::from_toml(Path::new("config/basalt.toml"), EXAMPLE).unwrap();
        let default = Config::default();
        assert_eq!(config.warnings(), [""; 0]);
        assert_eq!(config.entries.len(), KEYS.len());
        for (read, default) in config.entries.iter().zip(&default.entries) {
            assert_ne!(read.origin, Origin::Default, "{} is missing", read.key.name);
            assert_eq!(read.value, default.value, "{}", read.key.name);
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        let sources = Sources {
            sets: vec![
                "log.segment.bytes=64MiB".into(),
                "log.retention.ms=-1".into(),
                "data.dir=/tmp/a \"b\" \\ c".into(),
                "log.cleanup.policy=compact, delete".into(),
                "hot.ms = 0_1".into(),
            ],
            ..Sources::default()
        };
        let config = Config::load(&sources).unwrap();
        for text in [config.show(), config.explain()] {
            let again = Config::from_toml(Path::new("shown"), &text).unwrap();
            for (a, b) in config.entries.iter().zip(&again.entries) {
                assert_eq!(a.value, b.value, "{}", a.key.name);
            }
        }
        assert!(config.show().contains("log.segment.bytes = \"64MiB\""));
        assert!(config.show().contains("# --set"));
        assert!(config.explain().contains("# Default: 256MiB"));
    }
}
