//! What a starting broker says on standard output.
//!
//! First a short banner: how it does I/O, what an acknowledgement means, where clients go and a
//! line to paste. Then, once every listener answers, exactly one `ready` line that scripts wait
//! for:
//!
//! ```text
//! ready kafka=127.0.0.1:9092 http=127.0.0.1:8092 cores=2 data=./basalt-data pid=1234
//! ```
//!
//! `http=` and `pg=` are there when something listens for them. Texts only; the caller prints and
//! flushes them.

use std::path::Path;

use crate::config::{Advertise, Config, Flush, HostPort};

/// What is known just before the broker serves.
#[derive(Debug)]
pub struct Facts<'a> {
    pub config: &'a Config,
    /// The address bound, with its real port.
    pub listening: &'a HostPort,
    /// The same for HTTP and for clients of PostgreSQL; `None` when nothing listens.
    pub http: Option<&'a HostPort>,
    pub pg: Option<&'a HostPort>,
    pub cores: usize,
    /// Whether each core has a CPU of its own.
    pub pinned: bool,
    /// Like "6.18.44".
    pub kernel: &'a str,
    pub pid: u32,
}

pub fn banner(facts: &Facts<'_>) -> String {
    let config = facts.config;
    let advertised = config.advertised_at(0, facts.listening.port);
    let pinned = if facts.pinned { "pinned" } else { "not pinned" };
    let cores = match facts.cores {
        1 => "1 core".to_string(),
        cores => format!("{cores} cores"),
    };
    format!(
        "basalt {}\n\
         io          io_uring, kernel {}, {cores}, {pinned}\n\
         durability  {}\n\
         listening   {}\n\
         advertised  {advertised} ({})\n\
         data        {}\n\
         try         echo hello | kcat -b {advertised} -t demo -P && \
         kcat -b {advertised} -t demo -C -o beginning -e\n",
        env!("CARGO_PKG_VERSION"),
        facts.kernel,
        durability(config),
        facts.listening,
        match config.advertise {
            Advertise::One => "one broker for all cores",
            Advertise::PerCore => "a broker per core, ports counting up from it",
        },
        config.data_dir.display(),
    )
}

pub fn ready(facts: &Facts<'_>) -> String {
    let service = |name: &str, at: Option<&HostPort>| match at {
        Some(at) => format!(" {name}={at}"),
        None => String::new(),
    };
    format!(
        "ready kafka={}{}{} cores={} data={} pid={}",
        facts.listening,
        service("http", facts.http),
        service("pg", facts.pg),
        facts.cores,
        one_word(&facts.config.data_dir),
        facts.pid
    )
}

fn durability(config: &Config) -> String {
    match config.flush {
        Flush::Commit => "commit: acks=all survives a power cut".to_string(),
        Flush::Interval => format!(
            "interval: a power cut may take the last {} ms; a killed process takes nothing",
            config.flush_interval_ms
        ),
        Flush::Os => "os: a power cut may take the last seconds; a killed process takes nothing, \
                      as with Apache Kafka's defaults"
            .to_string(),
    }
}

/// The ready line is split at blanks by those who read it.
fn one_word(path: &Path) -> String {
    let text = path.display().to_string();
    text.chars().map(|c| if c.is_whitespace() || c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(config: &'a Config, listening: &'a HostPort, cores: usize) -> Facts<'a> {
        let (http, pg, pinned) = (None, None, true);
        Facts { config, listening, http, pg, cores, pinned, kernel: "6.18.44", pid: 1234 }
    }

    #[test]
    fn the_ready_line() {
        let config = Config::default();
        let listening = config.listen.clone();
        assert_eq!(
            ready(&facts(&config, &listening, 2)),
            "ready kafka=127.0.0.1:9092 cores=2 data=./basalt-data pid=1234"
        );
        let [http, pg] = [8092, 5433].map(|port| listening.with_port(port));
        let all = Facts { http: Some(&http), pg: Some(&pg), ..facts(&config, &listening, 2) };
        let line = ready(&all);
        let start = "ready kafka=127.0.0.1:9092 http=127.0.0.1:8092 pg=127.0.0.1:5433 cores=2 ";
        assert!(line.starts_with(start), "{line}");
        let config = Config { data_dir: "/a b/c\nd".into(), ..Config::default() };
        let line = ready(&facts(&config, &listening, 2));
        assert!(line.ends_with("data=/a?b/c?d pid=1234"), "{line}");
    }

    #[test]
    fn the_banner_names_what_clients_and_operators_need() {
        let config = Config::from_toml(
            Path::new("t"),
            "listen = \"0.0.0.0:0\"\nadvertised = \"b.example:0\"\nadvertise = \"per-core\"\n\
             flush = \"interval\"",
        )
        .unwrap();
        let listening = config.listen.with_port(4000);
        let text = banner(&facts(&config, &listening, 1));
        for part in [
            "io          io_uring, kernel 6.18.44, 1 core, pinned\n",
            "durability  interval: a power cut may take the last 100 ms;",
            "listening   0.0.0.0:4000\n",
            "advertised  b.example:4000 (a broker per core",
            "data        ./basalt-data\n",
            "kcat -b b.example:4000 -t demo -P && kcat -b b.example:4000 -t demo -C",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(text.lines().count() <= 7);
    }

    #[test]
    fn each_durability_says_what_a_power_cut_does() {
        for name in Flush::NAMES {
            let text = format!("flush = \"{name}\"");
            let config = Config::from_toml(Path::new("t"), &text).unwrap();
            let line = durability(&config);
            assert!(line.starts_with(name) && line.contains("power cut"), "{line}");
        }
    }
}
