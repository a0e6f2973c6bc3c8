//! From texts to a [`Config`]: defaults < file < flags < `--set`, the later one wins.
//!
//! Everything wrong is collected before anything is refused, so that one run of
//! `basalt config check` lists it all. Dotted keys may be written as TOML nests them
//! (`log.segment.bytes = 1`, or `[log.segment]` and `bytes = 1`) or in quotes; a key that is also
//! the beginning of another one (`flush`, `flush.interval.ms`) needs the quotes for the longer.

use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::Spanned;

use super::choice::Advertise;
use super::error::{BadView, ConfigError, ConfigErrors, Conflict, Origin};
use super::keys::{Config, Effect, Key, KEYS};
use super::nearest::nearest;
use super::value::{HostPort, Value};

/// A key with its effective value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: &'static Key,
    pub value: Value,
    /// As it was written.
    pub text: String,
    pub origin: Origin,
}

/// What stands above the defaults.
#[derive(Clone, Debug, Default)]
pub struct Sources<'a> {
    pub file: Option<&'a Path>,
    /// Key, flag and value: `("cores", "--cores", "2")`.
    pub flags: Vec<(&'static str, &'static str, String)>,
    /// Each `key=value`.
    pub sets: Vec<String>,
}

/// A value given for a key, not yet understood.
struct Given {
    name: String,
    /// `None` for a table where one value belongs.
    text: Option<String>,
    at: Origin,
}

impl Config {
    pub fn load(sources: &Sources<'_>) -> Result<Config, ConfigErrors> {
        let mut loading = Loading::new();
        if let Some(path) = sources.file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.to_path_buf(), source })?;
            loading.file(path, &text);
        }
        for (key, flag, value) in &sources.flags {
            loading.give(Given {
                name: key.to_string(),
                text: Some(value.clone()),
                at: Origin::Flag(flag),
            });
        }
        for text in &sources.sets {
            loading.set(text);
        }
        loading.finish()
    }

    /// Defaults < the text of a file, whose `path` is only for messages.
    pub fn from_toml(path: &Path, text: &str) -> Result<Config, ConfigErrors> {
        let mut loading = Loading::new();
        loading.file(path, text);
        loading.finish()
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key.name == name)
    }

    /// What was asked for and does nothing yet, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let idle = |entry: &&Entry| {
            entry.key.effect == Effect::Planned
                && entry.origin != Origin::Default
                && entry.value != default_entry(entry.key).value
        };
        let line = |entry: &Entry| {
            format!("{}: {} has no effect in this version", entry.origin, entry.key.name)
        };
        self.entries.iter().filter(idle).map(line).collect()
    }

    /// Where clients are told to find a core, once the port it listens on is known. With
    /// `advertise = "one"` all cores are found at the same place.
    pub fn advertised_at(&self, core: u16, bound_port: u16) -> HostPort {
        match &self.advertised {
            Some(advertised) if advertised.port != 0 => {
                let step = match self.advertise {
                    Advertise::One => 0,
                    Advertise::PerCore => core,
                };
                advertised.with_port(advertised.port.saturating_add(step))
            }
            Some(advertised) => advertised.with_port(bound_port),
            None => self.listen.with_port(bound_port),
        }
    }

    fn conflicts(&self) -> Vec<ConfigError> {
        let mut found = Vec::new();
        match &self.advertised {
            Some(advertised) if advertised.is_unspecified() => {
                found.push(Conflict::AdvertisesEverything { advertised: advertised.to_string() });
            }
            None if self.listen.is_unspecified() => {
                found.push(Conflict::NothingToAdvertise { listen: self.listen.to_string() });
            }
            _ => {}
        }
        let message_max_bytes = u64::try_from(self.message_max_bytes).unwrap_or(0);
        for (small, small_value, large, large_value) in [
            (
                "message.max.bytes",
                message_max_bytes,
                "socket.request.max.bytes",
                self.socket_request_max_bytes,
            ),
            (
                "log.segment.initial.bytes",
                self.log_segment_initial_bytes,
                "log.segment.bytes",
                self.log_segment_bytes,
            ),
        ] {
            if small_value > large_value {
                found.push(Conflict::Order { small, small_value, large, large_value });
            }
        }
        if self.log_inline_max_bytes > self.log_segment_bytes / 4 {
            found.push(Conflict::InlineAboveSegment {
                inline: self.log_inline_max_bytes,
                segment: self.log_segment_bytes,
            });
        }
        found.into_iter().map(ConfigError::Conflict).collect()
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::from_entries(KEYS.iter().map(default_entry).collect())
    }
}

/// The defaults with what was given so far laid over them, and what was wrong with the rest.
struct Loading {
    entries: Vec<Entry>,
    errors: Vec<ConfigError>,
}

impl Loading {
    fn new() -> Loading {
        Loading { entries: KEYS.iter().map(default_entry).collect(), errors: Vec::new() }
    }

    fn file(&mut self, path: &Path, text: &str) {
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => return self.errors.push(syntax_error(path, text, &error)),
        };
        let mut flat = Flat { found: Vec::new(), errors: Vec::new() };
        flat.table("", table.get_ref());
        flat.found.sort_by_key(|(offset, ..)| *offset);
        let at = |offset| Origin::in_file(path, text, offset);
        for (offset, name, text) in flat.found {
            self.give(Given { name, text, at: at(offset) });
        }
        let views = flat.errors.into_iter();
        self.errors
            .extend(views.map(|(offset, problem)| ConfigError::View { at: at(offset), problem }));
    }

    fn set(&mut self, text: &str) {
        match text.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => self.give(Given {
                name: name.trim().to_string(),
                text: Some(unquoted(value.trim()).to_string()),
                at: Origin::Set,
            }),
            _ => self.errors.push(ConfigError::NotAPair { text: text.to_string() }),
        }
    }

    fn give(&mut self, given: Given) {
        let Given { name, text, at } = given;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.key.name == name) else {
            let nearest = nearest(&name, KEYS.iter().map(|key| key.name));
            return self.errors.push(ConfigError::UnknownKey { at, key: name, nearest });
        };
        let key = entry.key;
        let Some(text) = text else {
            return self.errors.push(ConfigError::NotAValue { at, key: key.name });
        };
        match key.kind.parse(&text) {
            Ok(value) => *entry = Entry { key, value, text, origin: at },
            Err(problem) => {
                self.errors.push(ConfigError::BadValue { at, key: key.name, value: text, problem })
            }
        }
    }

    fn finish(self) -> Result<Config, ConfigErrors> {
        ConfigErrors::check(self.errors)?;
        let config = Config::from_entries(self.entries);
        ConfigErrors::check(config.conflicts())?;
        Ok(config)
    }
}

fn default_entry(key: &'static Key) -> Entry {
    match key.kind.parse(key.default) {
        Ok(value) => Entry { key, value, text: key.default.to_string(), origin: Origin::Default },
        Err(problem) => panic!("the default of {} is {problem}", key.name),
    }
}

/// The values of a TOML document under their dotted names, each with its byte offset.
struct Flat {
    found: Vec<(usize, String, Option<String>)>,
    errors: Vec<(usize, BadView)>,
}

impl Flat {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let name = match prefix {
                "" => key.get_ref().to_string(),
                _ => format!("{prefix}.{}", key.get_ref()),
            };
            let offset = key.span().start;
            match value.get_ref() {
                value if name == "view" => self.views(offset, value),
                DeValue::Table(inner) if KEYS.iter().all(|key| key.name != name) => {
                    // An empty table of a name nobody knows is a mistake too.
                    if inner.is_empty() {
                        self.found.push((offset, name, None));
                    } else {
                        self.table(&name, inner);
                    }
                }
                DeValue::Table(inner) if !inner.is_empty() => self.table(&name, inner),
                value => self.found.push((offset, name, scalar(value))),
            }
        }
    }

    fn views(&mut self, offset: usize, value: &DeValue<'_>) {
        let DeValue::Array(views) = value else {
            return self.errors.push((offset, BadView::Shape));
        };
        for (index, view) in views.iter().enumerate() {
            let offset = view.span().start;
            if index > 0 {
                self.errors.push((offset, BadView::Second));
            }
            match view.get_ref() {
                DeValue::Table(keys) => self.view(keys),
                _ => self.errors.push((offset, BadView::Shape)),
            }
        }
    }

    fn view(&mut self, keys: &DeTable<'_>) {
        for (key, value) in keys.iter() {
            let problem = match (key.get_ref().as_ref(), value.get_ref()) {
                ("name", DeValue::String(name)) if name == "default" => continue,
                ("name", DeValue::String(name)) => BadView::Name(name.to_string()),
                ("name", _) => BadView::Shape,
                (other, _) => BadView::Key(other.to_string()),
            };
            self.errors.push((key.span().start, problem));
        }
    }
}

/// A value as text; a list as its parts joined by commas.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => match number.radix() {
            10 => Some(number.as_str().to_string()),
            radix => i64::from_str_radix(number.as_str(), radix).ok().map(|n| n.to_string()),
        },
        DeValue::Float(number) => Some(number.as_str().to_string()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(value) => Some(value.to_string()),
        DeValue::Array(parts) => {
            let parts: Option<Vec<String>> =
                parts.iter().map(|part: &Spanned<DeValue<'_>>| scalar(part.get_ref())).collect();
            parts.map(|parts| parts.join(","))
        }
        DeValue::Table(_) => None,
    }
}

/// `--set 'flush="os"'` as in the file.
fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text)
}

fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.as_bytes().iter().take(offset);
    let line = text.lines().nth(before.filter(|byte| **byte == b'\n').count()).unwrap_or("");
    let name = line.split('=').next().unwrap_or("").trim();
    let mut message = error.message().replace('\n', ", ");
    if let Some(shorter) = shorter_key(name) {
        message = format!("{message}; write \"{name}\" in quotes, for {shorter} is a key itself");
    }
    ConfigError::Syntax { at: Origin::in_file(path, text, offset), message }
}

/// The key that is the beginning of this one, if there is one: TOML cannot nest below a value, so
/// the longer needs quotes.
pub(super) fn shorter_key(name: &str) -> Option<&'static str> {
    KEYS.iter().find(|key| key.name == name)?;
    let begins = |key: &&Key| name.strip_prefix(key.name).is_some_and(|rest| rest.starts_with('.'));
    KEYS.iter().find(begins).map(|key| key.name)
}
