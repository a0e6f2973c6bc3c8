//! The command line: what may be asked of the `basalt` binary.
//!
//! Parsing only. Flags of `serve` are short names of configuration keys and become [`Sources`];
//! `main` runs what was asked. Usage errors end the process with status 2 (clap's), everything
//! else that goes wrong with one line on standard error and status 1.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Sources;

/// A Kafka-compatible event broker in which every topic is also a table.
#[derive(Debug, Parser)]
#[command(name = "basalt", version, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, PartialEq, Subcommand)]
pub enum Command {
    /// Start a broker (what happens without a command).
    Serve(ServeArgs),
    /// Look at configurations.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Show what a running broker counts, per core.
    Stats {
        /// Where the broker serves HTTP (its `http` key).
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8092")]
        http: String,
    },
    /// Run a statement that reads topics, in a running broker.
    ///
    /// Every topic is a table: basalt sql "SELECT * FROM my_topic LIMIT 10". Ends with status 1
    /// when the statement fails, or when not all of its rows came.
    #[cfg(feature = "sql")]
    Sql {
        #[arg(value_name = "STATEMENT")]
        statement: String,
        /// How rows are shown.
        #[arg(long, value_name = "table|csv|json|arrow", default_value = "table")]
        format: RowFormat,
        /// Where the broker serves HTTP (its `http` key).
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8092")]
        http: String,
    },
    /// Look into the logs of a data directory.
    Log {
        #[command(subcommand)]
        command: LogCommand,
    },
}

/// How `basalt sql` shows rows.
#[cfg(feature = "sql")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RowFormat {
    /// Columns that fit, for people.
    Table,
    Csv,
    /// One object a line.
    Json,
    /// Arrow's stream format.
    Arrow,
}

#[derive(Debug, PartialEq, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration file and list everything wrong with it.
    Check {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the effective configuration, and where each value comes from.
    Show {
        /// With the meaning of every key, as in config/basalt.toml.
        #[arg(long)]
        explain: bool,
        #[command(flatten)]
        serve: Box<ServeArgs>,
    },
}

#[derive(Debug, PartialEq, Subcommand)]
pub enum LogCommand {
    /// Print the frames of a log directory or of one segment file.
    Dump {
        #[arg(value_name = "DIR|FILE")]
        path: PathBuf,
    },
    /// Give up what is damaged in the logs of a data directory and keep the rest.
    Salvage {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ServeArgs {
    /// Configuration file (TOML); see config/basalt.toml for every key.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the broker keeps its data [key: data.dir].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Where Kafka clients connect [key: listen].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// The address clients are told to connect to [key: advertised].
    #[arg(long, value_name = "HOST:PORT")]
    advertised: Option<String>,
    /// Whether clients see one broker or one per core [key: advertise].
    #[arg(long, value_name = "one|per-core")]
    advertise: Option<String>,
    /// Threads that serve clients [key: cores].
    #[arg(long, value_name = "N")]
    cores: Option<String>,
    /// When acks=all is answered [key: flush].
    #[arg(long, value_name = "commit|interval|os")]
    flush: Option<String>,
    /// Where metrics, SQL and Iceberg are served over HTTP [key: http].
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Where clients of PostgreSQL connect [key: pg].
    #[arg(long, value_name = "HOST:PORT")]
    pg: Option<String>,
    /// Any configuration key; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
}

impl Cli {
    /// What to do: `serve` when no command is named.
    pub fn command(self) -> Command {
        self.command.unwrap_or(Command::Serve(self.serve))
    }
}

impl ServeArgs {
    /// The layers of the configuration these arguments name.
    pub fn sources(&self) -> Sources<'_> {
        let flags = [
            ("data.dir", "--data-dir", &self.data_dir),
            ("listen", "--listen", &self.listen),
            ("advertised", "--advertised", &self.advertised),
            ("advertise", "--advertise", &self.advertise),
            ("cores", "--cores", &self.cores),
            ("flush", "--flush", &self.flush),
            ("http", "--http", &self.http),
            ("pg", "--pg", &self.pg),
        ];
        let given = flags
            .into_iter()
            .filter_map(|(key, flag, value)| value.clone().map(|value| (key, flag, value)));
        Sources { file: self.config.as_deref(), flags: given.collect(), sets: self.sets.clone() }
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use clap::CommandFactory;

    use super::*;
    use crate::config::{Config, Flush, KEYS};

    fn parse(line: &str) -> Result<Command, ErrorKind> {
        let words = std::iter::once("basalt").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(Cli::command).map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_sound() {
        <Cli as CommandFactory>::command().debug_assert();
    }

    #[test]
    fn serve_is_the_default_and_takes_every_flag() {
        let line = "--data-dir d --listen h:1 --advertised a:2 --advertise per-core --cores 3 \
                    --flush os --http h:4 --pg h:5 --set log.warm.bytes=8MiB --set cores=5";
        let bare = parse(line).unwrap();
        assert_eq!(bare, parse(&format!("serve {line}")).unwrap());
        assert_eq!(parse("").unwrap(), Command::Serve(ServeArgs::default()));
        let Command::Serve(args) = bare else { panic!("{bare:?}") };
        let config = Config::load(&args.sources()).unwrap();
        assert_eq!((config.cores, config.flush), (5, Flush::Os));
        assert_eq!(config.log_warm_bytes, 8 << 20);
        assert_eq!((config.http.unwrap().port, config.pg.unwrap().port), (4, 5));
        for (key, ..) in args.sources().flags {
            assert!(KEYS.iter().any(|known| known.name == key), "{key}");
        }
    }

    #[test]
    fn commands() {
        assert_eq!(
            parse("config check a.toml"),
            Ok(Command::Config { command: ConfigCommand::Check { file: "a.toml".into() } })
        );
        let Ok(Command::Config { command: ConfigCommand::Show { explain: true, serve } }) =
            parse("config show --explain --cores 2")
        else {
            panic!()
        };
        assert_eq!(serve.sources().flags, [("cores", "--cores", "2".to_string())]);
        assert_eq!(parse("stats"), Ok(Command::Stats { http: "127.0.0.1:8092".into() }));
        #[cfg(feature = "sql")]
        assert_eq!(
            parse("sql --format csv --http h:1 SELECT"),
            Ok(Command::Sql {
                statement: "SELECT".into(),
                format: RowFormat::Csv,
                http: "h:1".into()
            })
        );
        assert_eq!(
            parse("log dump d/0"),
            Ok(Command::Log { command: LogCommand::Dump { path: "d/0".into() } })
        );
        assert_eq!(
            parse("log salvage d"),
            Ok(Command::Log { command: LogCommand::Salvage { dir: "d".into() } })
        );
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error() {
        for line in
            ["start", "--cors 2", "config", "config check", "log dump", "serve stats", "--cores"]
        {
            let kind = parse(line).unwrap_err();
            assert!(!matches!(kind, ErrorKind::DisplayVersion), "{line}");
        }
        let words = ["basalt", "--cors", "2"];
        assert_eq!(Cli::try_parse_from(words).unwrap_err().exit_code(), 2);
    }
}
