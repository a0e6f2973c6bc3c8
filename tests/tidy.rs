//! Holds the tree to the house style: what a machine can check, checked on each run.
//!
//! Rules stand in `tidy/rules.rs`, the reading of files in `tidy/source.rs`; here are the walk,
//! the exceptions and the planted violations that prove each rule. An exception is a count that
//! may shrink and never grow: a smaller number of findings fails too, until it is written down.

#[path = "tidy/planted.rs"]
mod planted;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;

use rules::{Finding, RULES};
use source::Source;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Findings that are accepted today: rule, file, how many.
const RATCHET: &[(&str, &str, usize)] = &[
    ("function-lines", "shard/src/log/recover.rs", 1),
    // A job measures how long it ran; the log itself is told the time.
    ("layers", "shard/src/log/jobs.rs", 1),
    // Of buffers of our own, whose lengths are in their types or were made a line above.
    ("outside-bytes", "shard/src/batch/builder.rs", 2),
    ("outside-bytes", "shard/src/batch/codec/mod.rs", 4),
    ("outside-bytes", "shard/src/batch/header.rs", 3),
    ("outside-bytes", "shard/src/batch/marker.rs", 1),
    ("parameters", "shard/src/log/recover.rs", 1),
    ("size", "shard/src/log/engine.rs", 1),
    ("size", "shard/src/log/upkeep.rs", 1),
];

/// Where Rust files stand.
const ROOTS: &[&str] = &["src", "shard", "benches", "perf", "tests"];

/// What stands at the top of the repository, apart from dotfiles.
const TOP: &[&str] = &[
    "Cargo.toml",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "Cargo.lock",
    "LICENSE",
    "README.md",
    "benches",
    "config",
    "perf",
    "shard",
    "src",
    "tests",
];

/// What a build or a run leaves there, unknown to git.
const LEFT_AT_TOP: &[&str] = &["target", "basalt-data"];

/// The modules of the broker.
const BROKER: &[&str] = &[
    "banner",
    "broker",
    "catalog",
    "cli",
    "config",
    "coordinator",
    "cores",
    "errors",
    "handlers",
    "http",
    "iceberg",
    "inspect",
    "lib",
    "main",
    "metrics",
    "net",
    "inspect",
    "preflight",
    "protocol",
    "query",
    "quota",
    "runtime",
    "security",
    "state_machine",
];

/// The modules of the engine.
const ENGINE: &[&str] = &["batch", "disk", "ids", "lib", "log", "partition", "table"];

fn check(source: &Source) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(source)).collect()
}

fn entries(dir: &Path) -> Vec<String> {
    let read = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry of the tree").file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<String> = read.map(name).filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

fn sources(top: &Path, inside: &str, into: &mut Vec<Source>) {
    for name in entries(&top.join(inside)) {
        let path = format!("{inside}/{name}");
        if top.join(&path).is_dir() {
            if !LEFT_AT_TOP.contains(&name.as_str()) {
                sources(top, &path, into);
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(top.join(&path)).expect("a file of UTF-8");
            into.push(Source::new(&path, &text));
        }
    }
}

/// Files that a `#[cfg(test)] mod name;` names hold no product code.
fn mark_test_files(all: &mut [Source]) {
    let mut files = Vec::new();
    for source in &*all {
        let (dir, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let stem = file.trim_end_matches(".rs");
        let is_front = matches!(stem, "mod" | "lib" | "main");
        let dir = if is_front { dir.to_string() } else { format!("{dir}/{stem}") };
        let lines: Vec<&str> = source.code.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]") {
            let name = pair[1].rsplit(' ').next().and_then(|name| name.strip_suffix(';'));
            files.extend(name.map(|name| format!("{dir}/{name}.rs")));
        }
    }
    for source in all.iter_mut().filter(|source| files.contains(&source.path)) {
        source.product_lines = 0;
    }
}

/// Complaints about findings over the accepted counts, and about counts that could be lower.
fn complaints(found: &[(String, Finding)], ratchet: &[(&str, &str, usize)]) -> Vec<String> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (path, finding) in found {
        *counts.entry((finding.rule, path)).or_default() += 1;
    }
    let accepted = |rule: &str, path: &str| {
        let entry = ratchet.iter().find(|entry| entry.0 == rule && entry.1 == path);
        entry.map_or(0, |entry| entry.2)
    };
    let is_over = |path: &str, rule: &str| counts[&(rule, path)] > accepted(rule, path);
    let mut lines: Vec<String> = found
        .iter()
        .filter(|(path, finding)| is_over(path, finding.rule))
        .map(|(path, finding)| {
            format!("{path}:{}: {}: {}", finding.line, finding.rule, finding.message)
        })
        .collect();
    for (rule, path, count) in ratchet {
        let seen = counts.get(&(*rule, *path)).copied().unwrap_or(0);
        if seen < *count {
            lines.push(format!("{path}: {rule}: {seen} left of {count}: lower it in RATCHET"));
        }
    }
    lines
}

#[test]
fn the_tree_is_tidy() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = Vec::new();
    for root in ROOTS {
        sources(top, root, &mut all);
    }
    mark_test_files(&mut all);
    assert!(all.len() > 10, "only {} files seen", all.len());
    let found: Vec<(String, Finding)> = all
        .iter()
        .flat_map(|source| check(source).into_iter().map(|finding| (source.path.clone(), finding)))
        .collect();
    let lines = complaints(&found, RATCHET);
    assert!(lines.is_empty(), "\n{}\n{} complaints\n", lines.join("\n"), lines.len());
}

#[test]
fn the_layout_is_fixed() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stray = |dir: &str, known: &[&str]| {
        let names = entries(&top.join(dir)).into_iter();
        let is_known = |name: &str| known.contains(&name.trim_end_matches(".rs"));
        names.filter(|name| !is_known(name)).map(|name| format!("{dir}{name}")).collect::<Vec<_>>()
    };
    let mut strays = stray("", &[TOP, LEFT_AT_TOP].concat());
    strays.extend(stray("src/", BROKER));
    strays.extend(stray("shard/src/", ENGINE));
    assert!(strays.is_empty(), "outside the fixed layout: {}", strays.join(", "));
}

#[test]
fn files_of_tests_are_known() {
    let mut all = [
        Source::new("src/net/mod.rs", "//! The net.\n#[cfg(test)]\nmod samples;\nmod frame;\n"),
        Source::new("src/net/samples.rs", "fn f() {}\n"),
        Source::new("src/net/frame.rs", "//! A frame.\n#[cfg(test)]\nmod checks;\n"),
        Source::new("src/net/frame/checks.rs", "fn f() {}\n"),
    ];
    mark_test_files(&mut all);
    assert_eq!(all.map(|source| source.product_lines), [4, 0, 3, 0]);
}

#[test]
fn the_ratchet_holds_both_ways() {
    let found = |count: usize| {
        let one = || Finding { rule: "columns", line: 7, message: "101 columns".to_string() };
        (0..count).map(|_| ("src/a.rs".to_string(), one())).collect::<Vec<_>>()
    };
    let ratchet = [("columns", "src/a.rs", 2)];
    assert_eq!(complaints(&found(2), &ratchet), [""; 0]);
    let lower = "src/a.rs: columns: 1 left of 2: lower it in RATCHET";
    assert_eq!(complaints(&found(1), &ratchet), [lower]);
    assert_eq!(complaints(&found(3), &ratchet), ["src/a.rs:7: columns: 101 columns"; 3]);
    assert_eq!(complaints(&found(1), &[]), ["src/a.rs:7: columns: 101 columns"]);
}
