//! What can be wrong with a configuration, each said in one line that a person can act on.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::value::BadValue;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    /// A flag by its name, `--cores`.
    Flag(&'static str),
    /// `--set`.
    Set,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{at}: not TOML: {message}")]
    Syntax { at: Origin, message: String },
    #[error("{at}: unknown key {key}; did you mean {nearest}?")]
    UnknownKey { at: Origin, key: String, nearest: &'static str },
    #[error("{at}: {key} = {value:?} is {problem}")]
    BadValue { at: Origin, key: &'static str, value: String, problem: BadValue },
    #[error("{at}: {key} holds one value, not a table or a list of tables")]
    NotAValue { at: Origin, key: &'static str },
    #[error("--set {text}: write it as --set key=value")]
    NotAPair { text: String },
    #[error("{at}: {problem}")]
    View { at: Origin, problem: BadView },
    #[error(transparent)]
    Conflict(Conflict),
}

/// What a `[[view]]` may not be in this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadView {
    #[error("more than one [[view]] is not supported yet; keep the one called default")]
    Second,
    #[error(
        "a [[view]] called {0:?} is not supported yet; leave it out or write name = \"default\""
    )]
    Name(String),
    #[error("a [[view]] has no key {0} yet; it takes name, all other keys stand at the top")]
    Key(String),
    #[error("write the view as [[view]] with name = \"default\"")]
    Shape,
}

/// Two keys that cannot both be had. Displayed with both values and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error(
        "listen = \"{listen}\" takes connections on every interface, but clients need one address \
         to be told: set advertised to the HOST:PORT they reach this broker at"
    )]
    NothingToAdvertise { listen: String },
    #[error(
        "advertised = \"{advertised}\" is no address a client can connect to: set it to the \
         HOST:PORT they reach this broker at"
    )]
    AdvertisesEverything { advertised: String },
    #[error(
        "{small} = {small_value} must not be above {large} = {large_value}: change one of them"
    )]
    Order { small: &'static str, small_value: u64, large: &'static str, large_value: u64 },
    #[error(
        "log.inline.max.bytes = {inline} must not be above a quarter of log.segment.bytes = \
         {segment}: change one of them"
    )]
    InlineAboveSegment { inline: u64, segment: u64 },
}

/// Everything found wrong at once: at least one error.
#[derive(Debug, thiserror::Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `Err` with all of `errors`, if there are any.
    pub fn check(errors: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ConfigErrors(errors))
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> ConfigErrors {
        ConfigErrors(vec![error])
    }
}

/// One line: the first error and how many more there are.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(first) = self.0.first() {
            write!(f, "{first}")?;
        }
        match self.0.len().saturating_sub(1) {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

impl Origin {
    /// The place of byte `offset` of the file's text.
    pub(super) fn in_file(path: &Path, text: &str, offset: usize) -> Origin {
        let before = text.as_bytes().iter().take(offset);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        Origin::File { path: path.to_path_buf(), line }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => write!(f, "default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Flag(flag) => write!(f, "{flag}"),
            Origin::Set => write!(f, "--set"),
        }
    }
}
