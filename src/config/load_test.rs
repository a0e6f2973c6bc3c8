//! How the layers of the configuration combine, and what each mistake is answered with.

use std::path::{Path, PathBuf};

use super::*;

fn read(text: &str) -> Result<Config, ConfigErrors> {
    Config::from_toml(Path::new("b.toml"), text)
}

fn errors(text: &str) -> Vec<String> {
    read(text).unwrap_err().iter().map(|error| error.to_string()).collect()
}

#[test]
fn keys_may_be_dotted_nested_or_quoted() {
    for text in [
        "log.segment.bytes = 67108864\ncores = 2",
        "cores = 2\n[log.segment]\nbytes = \"64MiB\"",
        "cores = \"2\"\n[log]\nsegment.bytes = 0x4000000",
        "\"log.segment.bytes\" = \"64 MiB\"\n\"cores\" = 2",
        "log = { segment = { bytes = 67_108_864 } }\ncores = 2",
    ] {
        let config = read(text).unwrap();
        assert_eq!((config.log_segment_bytes, config.cores), (64 << 20, 2), "{text}");
    }
    let config = read("log.cleanup.policy = [\"compact\", \"delete\"]").unwrap();
    assert_eq!(config.log_cleanup_policy, Cleanup { delete: true, compact: true });
    let config = read("flush = \"os\"\n\"flush.interval.ms\" = \"20ms\"").unwrap();
    assert_eq!((config.flush, config.flush_interval_ms), (Flush::Os, 20));
    assert!(read("[[view]]\nname = \"default\"").is_ok());
    assert!(read("[[view]]").is_ok());
}

#[test]
fn mistakes_in_a_file_name_the_place_and_the_way_out() {
    for (text, expect) in [
        (
            "\nlog.segment.byte = 1",
            "b.toml:2: unknown key log.segment.byte; did you mean log.segment.bytes?",
        ),
        ("\n\nlisteners = \"a\"", "b.toml:3: unknown key listeners; did you mean listen?"),
        (
            "cores = 2\nflush = \"never\"",
            "b.toml:2: flush = \"never\" is not allowed; give one of commit, interval, os",
        ),
        ("cores = -1", "b.toml:1: cores = \"-1\" is out of bounds; give a number from 0 to 256"),
        (
            "cores = 1.5",
            "b.toml:1: cores = \"1.5\" is not a whole number; give a number from 0 to 256",
        ),
        ("cores = [[1], [{}]]", "b.toml:1: cores holds one value, not a table or a list of tables"),
        ("[cores]", "b.toml:1: cores holds one value, not a table or a list of tables"),
        ("[cores]\nx = 1", "b.toml:2: unknown key cores.x; did you mean cores?"),
        ("log = 5", "b.toml:1: unknown key log; did you mean pg?"),
        (
            "flush = \"os\"\nflush.interval.ms = 5",
            "b.toml:2: not TOML: cannot extend value of type string with a dotted key; write \
             \"flush.interval.ms\" in quotes, for flush is a key itself",
        ),
        (
            "[[view]]\n[[view]]",
            "b.toml:2: more than one [[view]] is not supported yet; keep the one called default",
        ),
        (
            "[[view]]\nname = \"blue\"",
            "b.toml:2: a [[view]] called \"blue\" is not supported yet; leave it out or write \
             name = \"default\"",
        ),
        (
            "[[view]]\nlisten = \"a:1\"",
            "b.toml:2: a [[view]] has no key listen yet; it takes name, all other keys stand at \
             the top",
        ),
        ("view = 1", "b.toml:1: write the view as [[view]] with name = \"default\""),
    ] {
        assert_eq!(errors(text), [expect], "{text}");
    }
    let syntax = errors("cores = 2\ncores = 3");
    assert!(syntax[0].starts_with("b.toml:2: not TOML: "), "{syntax:?}");
}

#[test]
fn all_mistakes_are_found_at_once_in_the_order_of_the_file() {
    let found = read("zzz = 1\ncores = 999\nadvertise = \"both\"").unwrap_err();
    let lines: Vec<String> = found.iter().map(|e| e.to_string()).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[0].contains(":1:") && lines[1].contains(":2:") && lines[2].contains(":3:"));
    assert!(found.to_string().ends_with("(and 2 more)"));
}

#[test]
fn conflicts_name_both_keys() {
    for (text, expect) in [
        (
            "listen = \"0.0.0.0:9092\"",
            "listen = \"0.0.0.0:9092\" takes connections on every interface, but clients need one \
             address to be told: set advertised to the HOST:PORT they reach this broker at",
        ),
        (
            "advertised = \"[::]:9092\"",
            "advertised = \"[::]:9092\" is no address a client can connect to: set it to the \
             HOST:PORT they reach this broker at",
        ),
        (
            "message.max.bytes = \"200MiB\"",
            "message.max.bytes = 209715200 must not be above socket.request.max.bytes = \
             104857600: change one of them",
        ),
        (
            "log.segment.bytes = \"8MiB\"",
            "log.inline.max.bytes = 4194304 must not be above a quarter of log.segment.bytes = \
             8388608: change one of them",
        ),
    ] {
        assert_eq!(errors(text), [expect], "{text}");
    }
    assert!(read("listen = \"0.0.0.0:9092\"\nadvertised = \"b.example:19092\"").is_ok());
}

#[test]
fn later_layers_win_and_origins_are_kept() {
    let directory = std::env::temp_dir().join(format!("basalt-config-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("layers.toml");
    std::fs::write(&file, "cores = 1\nflush = \"os\"\nhttp = \"127.0.0.1:1\"\nreserve.bytes = 1\n")
        .unwrap();
    let config = Config::load(&Sources {
        file: Some(&file),
        flags: vec![("cores", "--cores", "2".into()), ("flush", "--flush", "interval".into())],
        sets: vec!["flush=\"commit\"".into(), "http = ".into()],
    })
    .unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!((config.cores, config.flush, &config.http), (2, Flush::Commit, &None));
    let origin = |name| config.entry(name).map(|entry| entry.origin.to_string());
    assert_eq!(origin("cores").as_deref(), Some("--cores"));
    assert_eq!(origin("flush").as_deref(), Some("--set"));
    assert_eq!(origin("listen").as_deref(), Some("default"));
    let warnings = config.warnings();
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].ends_with("layers.toml:4: reserve.bytes has no effect in this version"));
}

#[test]
fn mistakes_on_the_command_line() {
    for (flag, set, expect) in [
        (None, "cores", "--set cores: write it as --set key=value"),
        (None, "=1", "--set =1: write it as --set key=value"),
        (None, "core=1", "--set: unknown key core; did you mean cores?"),
        (
            Some("many"),
            "cores=1",
            "--cores: cores = \"many\" is not a number; give a number from 0 to 256",
        ),
    ] {
        let sources = Sources {
            file: None,
            flags: flag.map(|v: &str| ("cores", "--cores", v.into())).into_iter().collect(),
            sets: vec![set.into()],
        };
        assert_eq!(Config::load(&sources).unwrap_err().to_string(), expect);
    }
    let missing = Sources { file: Some(Path::new("/no/such.toml")), ..Sources::default() };
    let error = Config::load(&missing).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the configuration /no/such.toml: "), "{error}");
}

#[test]
fn defaults_are_what_the_documents_say() {
    let config = Config::default();
    assert_eq!(config.data_dir, PathBuf::from("./basalt-data"));
    assert_eq!(config.listen.to_string(), "127.0.0.1:9092");
    assert_eq!((config.flush, config.advertise), (Flush::Commit, Advertise::One));
    assert_eq!(config.log_segment_bytes, 256 << 20);
    assert_eq!(config.log_inline_max_bytes, 4 << 20);
    assert_eq!(config.socket_request_max_bytes, 100 << 20);
    assert_eq!(config.message_max_bytes, 1_048_588);
    assert_eq!(config.log_retention_ms, Some(604_800_000));
    assert_eq!((config.log_retention_bytes, config.reserve_bytes), (None, None));
    assert_eq!(config.log_message_timestamp_before_max_ms, i64::MAX);
    assert!(config.warnings().is_empty());
}

#[test]
fn the_advertised_address_follows_the_bound_port() {
    for (listen, advertised, one, per_core) in [
        ("127.0.0.1:0", "", "127.0.0.1:5555", "127.0.0.1:5555"),
        ("127.0.0.1:9092", "", "127.0.0.1:5555", "127.0.0.1:5555"),
        ("0.0.0.0:9092", "b.example:19092", "b.example:19092", "b.example:19094"),
        ("0.0.0.0:0", "b.example:0", "b.example:5555", "b.example:5555"),
    ] {
        let text = format!("listen = \"{listen}\"\nadvertised = \"{advertised}\"\n");
        let config = read(&text).unwrap();
        assert_eq!(config.advertised_at(2, 5555).to_string(), one);
        let config = read(&format!("{text}advertise = \"per-core\"")).unwrap();
        assert_eq!(config.advertised_at(2, 5555).to_string(), per_core);
    }
}
