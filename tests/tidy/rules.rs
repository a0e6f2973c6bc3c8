//! The rules of one file: each takes a source and says where it departs from the house style.
//!
//! A rule knows nothing of exceptions; those are counted in `tests/tidy.rs`.

use crate::source::{words, Source};

/// A departure from a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: &'static str,
    pub line: usize,
    pub message: String,
}

pub type Rule = fn(&Source) -> Vec<Finding>;

pub const RULES: &[Rule] = &[
    header,
    size,
    names,
    columns,
    functions,
    layers,
    unsafety,
    leftovers,
    sleeps,
    error_table,
    outside_bytes,
    errors,
    switches,
];

const LINES_MAX: usize = 800;
const PRODUCT_LINES_MAX: usize = 500;
const COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;
const PARAMETERS_MAX: usize = 5;

/// Names that say nothing of what a module holds.
const EMPTY_NAMES: &[&str] =
    &["utils", "util", "helpers", "helper", "common", "misc", "manager", "managers", "types"];

/// Where `unsafe` may stand in product code.
const UNSAFE_HOMES: &[&str] = &["shard/src/disk/", "src/net/socket.rs"];

/// Code that touches bytes a client or a disk sent.
const OUTSIDE_BYTES: &[&str] = &["src/net/", "src/protocol/", "src/handlers/", "shard/src/batch/"];

const ERROR_TABLE: &str = "src/errors.rs";

/// What the files under `under` may not name.
struct Layer {
    under: &'static [&'static str],
    but: &'static [&'static str],
    never: &'static [&'static str],
    why: &'static str,
}

const LEAVES: &[&str] = &["src/query/", "src/iceberg/", "src/http/"];

const LAYERS: &[Layer] = &[
    Layer {
        under: &["shard/src/"],
        but: &[],
        never: &[
            "glommio",
            "tokio",
            "kafka_protocol",
            "datafusion",
            "basalt",
            "std::net",
            "futures",
            "std::time::Instant",
            "std::time::SystemTime",
            "futures_channel",
            "futures_lite",
        ],
        why: "the engine knows no sockets, requests, async runtime or clock",
    },
    Layer {
        under: &["shard/src/disk/", "shard/src/ids.rs"],
        but: &[],
        never: &["crate::batch", "crate::log", "crate::partition", "crate::table"],
        why: "the disk is the lowest layer",
    },
    Layer {
        under: &["shard/src/batch/"],
        but: &[],
        never: &["crate::log", "crate::partition", "crate::table", "crate::disk"],
        why: "batches know neither logs nor disks",
    },
    Layer {
        under: &["src/"],
        but: &["src/runtime.rs", "src/net/", "src/cores/"],
        never: &["glommio"],
        why: "glommio stays in src/runtime.rs, src/net/ and src/cores/",
    },
    Layer {
        under: &["src/"],
        but: LEAVES,
        never: &["tokio", "datafusion", "arrow", "parquet"],
        why: "tokio, DataFusion and Arrow stay in the leaves: query, iceberg, http",
    },
    Layer {
        under: &["src/"],
        but: &["src/broker.rs", "src/query/", "src/iceberg/", "src/http/"],
        never: &["crate::query", "crate::iceberg", "crate::http"],
        why: "only broker.rs names the leaves",
    },
    Layer {
        under: &["src/protocol/"],
        but: &[],
        never: &[
            "crate::net",
            "crate::handlers",
            "crate::cores",
            "crate::catalog",
            "crate::runtime",
            "crate::state_machine",
            "crate::coordinator",
            "crate::broker",
            "crate::cli",
            "shard::log",
            "shard::partition",
            "shard::table",
            "shard::disk::Disk",
            "shard::disk::RealDisk",
            "shard::disk::MapFile",
            "shard::disk::MapWriter",
        ],
        why: "protocol knows no connections, cores, logs or disks",
    },
    Layer {
        under: &["src/handlers/"],
        but: &[],
        never: &["crate::net", "crate::broker", "crate::cli", "crate::runtime"],
        why: "handlers know no connections",
    },
    Layer {
        under: &["src/cores/"],
        but: &[],
        never: &["crate::handlers", "crate::net", "crate::broker", "crate::cli"],
        why: "cores know no requests and no connections",
    },
    Layer {
        under: &["src/catalog/", "src/state_machine/", "src/coordinator/"],
        but: &[],
        never: &["crate::handlers", "crate::net", "crate::broker", "crate::cli", "std::net"],
        why: "state machines know no requests, connections or sockets",
    },
    Layer {
        under: &[
            "src/catalog/machine.rs",
            "src/coordinator/",
            "src/state_machine/contract.rs",
            "src/state_machine/timers.rs",
        ],
        but: &[],
        never: &[
            "tracing",
            "std::time::Instant",
            "std::time::SystemTime",
            "std::fs",
            "std::thread",
            "crate::cores",
            "crate::metrics",
        ],
        why: "a state machine has no I/O, clock, logs or metrics: time and ids come in",
    },
    Layer {
        under: &["src/config/", "src/metrics/", "src/config.rs", "src/metrics.rs"],
        but: &[],
        never: &[
            "crate::net",
            "crate::handlers",
            "crate::cores",
            "crate::catalog",
            "crate::broker",
            "crate::cli",
            "crate::protocol",
        ],
        why: "configuration and metrics are named by others and name nobody",
    },
];

fn finding(rule: &'static str, line: usize, message: impl Into<String>) -> Finding {
    Finding { rule, line, message: message.into() }
}

fn header(source: &Source) -> Vec<Finding> {
    let first = source.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let said = first.strip_prefix("//!").is_some_and(|said| said.trim().len() >= 10);
    if said {
        return Vec::new();
    }
    vec![finding("header", 1, "the file opens with `//!` and its idea in a sentence")]
}

fn size(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    let mut found = Vec::new();
    if lines > LINES_MAX {
        found.push(finding("size", lines, format!("{lines} lines; the hard stop is {LINES_MAX}")));
    } else if source.product_lines > PRODUCT_LINES_MAX {
        let message =
            format!("{} lines without tests, over {PRODUCT_LINES_MAX}", source.product_lines);
        found.push(finding("size", source.product_lines, message));
    }
    found
}

fn names(source: &Source) -> Vec<Finding> {
    let stem = source.path.trim_end_matches(".rs");
    stem.split('/')
        .filter(|part| EMPTY_NAMES.contains(part))
        .map(|part| finding("names", 1, format!("a module called `{part}` says nothing")))
        .collect()
}

fn columns(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    lines
        .filter(|(_, text)| !is_table_row(text))
        .map(|(line, text)| (line, text.chars().count()))
        .filter(|&(_, columns)| columns > COLUMNS_MAX)
        .map(|(line, columns)| finding("columns", line, format!("{columns} columns")))
        .collect()
}

/// A row of a table in a comment cannot be broken.
fn is_table_row(text: &str) -> bool {
    let text = text.trim();
    text.starts_with("//") && text.trim_start_matches(['/', '!', ' ']).starts_with('|')
}

fn functions(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for function in source.functions() {
        let name = &function.name;
        if function.lines > FUNCTION_LINES_MAX {
            let message = format!("`{name}` has {} lines", function.lines);
            found.push(finding("function-lines", function.line, message));
        }
        if function.parameters > PARAMETERS_MAX {
            let message = format!("`{name}` takes {} parameters", function.parameters);
            found.push(finding("parameters", function.line, message));
        }
    }
    found
}

fn layers(source: &Source) -> Vec<Finding> {
    let laws: Vec<_> = LAYERS
        .iter()
        .filter(|layer| source.is_under(layer.under) && !source.is_under(layer.but))
        .collect();
    let mut found = Vec::new();
    for (line, path) in source.paths() {
        let names = |never: &&&str| {
            path.strip_prefix(**never).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        for layer in &laws {
            if layer.never.iter().any(|never| names(&never)) {
                found.push(finding("layers", line, format!("names `{path}`: {}", layer.why)));
            }
        }
    }
    found
}

fn unsafety(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let lines: Vec<&str> = source.text.lines().collect();
    for (line, code) in source.code_lines() {
        if !words(code).any(|(_, word)| word == "unsafe") {
            continue;
        }
        if source.is_product() && !source.is_under(UNSAFE_HOMES) {
            let message = format!("`unsafe` stands only in {}", UNSAFE_HOMES.join(" and "));
            found.push(finding("unsafe", line, message));
        }
        if !is_argued(&lines, line) {
            found.push(finding("safety", line, "`unsafe` without `// SAFETY:` right above"));
        }
    }
    found
}

/// Whether the comment right above the statement of `line` (or on it) argues for its safety.
fn is_argued(lines: &[&str], line: usize) -> bool {
    let argues = |text: &str| text.contains("SAFETY:") || text.contains("# Safety");
    if argues(lines[line - 1]) {
        return true;
    }
    let above = lines[..line - 1].iter().rev().map(|text| text.trim());
    let mut seen_comment = false;
    for text in above {
        let is_comment = text.starts_with("//") || text.starts_with("#[");
        if is_comment && argues(text) {
            return true;
        }
        let begins_statement = text.is_empty() || text.ends_with([';', '{', '}']);
        if !is_comment && (seen_comment || begins_statement) {
            return false;
        }
        seen_comment |= is_comment;
    }
    false
}

fn leftovers(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, code) in source.code_lines() {
        for left in ["#[ignore", "todo!", "unimplemented!", "dbg!"] {
            if code.contains(left) {
                found.push(finding("leftovers", line, format!("`{left}` is left over")));
            }
        }
    }
    found
}

fn sleeps(source: &Source) -> Vec<Finding> {
    source
        .test_code()
        .filter(|(_, code)| words(code).any(|(_, word)| word == "sleep"))
        .map(|(line, _)| finding("sleeps", line, "a test waits for a condition, not for a time"))
        .collect()
}

fn error_table(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_table = source.path == ERROR_TABLE;
    for (line, code) in source.product_code().filter(|_| source.is_product()) {
        let arm = code.trim_start();
        let is_catch_all = arm.starts_with("_ =>") || arm.starts_with("_ if ");
        if is_table && (is_catch_all || arm.starts_with("_ |")) {
            found.push(finding("error-arm", line, "the error table has no `_` arm"));
        }
        if !is_table && words(code).any(|(_, word)| word == "ResponseError") {
            let message = format!("Kafka's error codes are named in {ERROR_TABLE} only");
            found.push(finding("error-codes", line, message));
        }
    }
    found
}

fn outside_bytes(source: &Source) -> Vec<Finding> {
    if !source.is_under(OUTSIDE_BYTES) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (line, code) in source.product_code() {
        for call in [".unwrap()", ".expect("] {
            if code.contains(call) {
                let message = format!("`{call}` where bytes from outside are handled");
                found.push(finding("outside-bytes", line, message));
            }
        }
        if indexes(code) {
            let message = "indexing where bytes from outside are handled: use `get`";
            found.push(finding("outside-bytes", line, message));
        }
    }
    found
}

/// Whether a line of blanked code indexes: a bracket right after a name or a closing bracket.
fn indexes(code: &str) -> bool {
    let is_value_end = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')' | ']' | '?');
    code.match_indices('[').any(|(at, _)| code[..at].ends_with(is_value_end))
}

fn errors(source: &Source) -> Vec<Finding> {
    let mut found = Vec::new();
    for (line, code) in source.product_code().filter(|_| source.is_product()) {
        if source.path != "src/main.rs" && words(code).any(|(_, word)| word == "anyhow") {
            found.push(finding("errors", line, "`anyhow` stands in src/main.rs only"));
        }
        for text in [", String>", ", &'static str>", ", Box<dyn Error", ", Box<dyn std::error"] {
            if code.contains("Result<") && code.contains(text) {
                found.push(finding("errors", line, "an error is an enum, not a text"));
            }
        }
    }
    found
}

fn switches(source: &Source) -> Vec<Finding> {
    source
        .product_code()
        .filter(|(_, code)| source.is_product() && code.contains("cfg!(test)"))
        .map(|(line, _)| finding("switches", line, "product code does not know of tests"))
        .collect()
}
