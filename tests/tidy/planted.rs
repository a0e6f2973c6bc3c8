//! Planted violations: each rule finds its own, and only where it is one.

use crate::check;
use crate::source::Source;

const HEAD: &str = "//! What this file is about.\n";

fn rules_broken(path: &str, body: &str) -> Vec<&'static str> {
    let source = Source::new(path, &format!("{HEAD}{body}"));
    check(&source).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn violations_are_found() {
    let check = |path: &str, body: &str, rule: &str| {
        assert_eq!(rules_broken(path, body), [rule], "{path}: {body}");
    };
    check("src/net/utils.rs", "", "names");
    check("src/helpers/a.rs", "", "names");
    check("src/a.rs", &format!("// {}\n", "x".repeat(98)), "columns");
    check("src/a.rs", &"\n".repeat(500), "size");
    check("src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(798)), "size");
    check("src/a.rs", &format!("fn f() {{\n{}}}\n", "\n".repeat(69)), "function-lines");
    check("src/a.rs", "fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8) {}", "parameters");
    check("src/a.rs", "fn f() { todo!() }", "leftovers");
    check("tests/a.rs", "#[test]\n#[ignore]\nfn f() {}", "leftovers");
    check("tests/a.rs", "fn f() { std::thread::sleep(ONE); }", "sleeps");
    check("src/a.rs", "#[cfg(test)]\nmod tests {\n    use std::thread::sleep;\n}\n", "sleeps");
    check("src/errors.rs", "    _ => 1,", "error-arm");
    check("src/errors.rs", "    _ if true => 1,", "error-arm");
    check("src/handlers/a.rs", "use kafka_protocol::ResponseError;", "error-codes");
    check("src/a.rs", "fn f() -> Result<u8, String> {}", "errors");
    check("src/a.rs", "use anyhow::Result;", "errors");
    check("src/a.rs", "fn f() { if cfg!(test) {} }", "switches");
}

#[test]
fn layers_are_kept() {
    let check = |path: &str, body: &str| {
        assert_eq!(rules_broken(path, body), ["layers"], "{path}: {body}");
    };
    check("shard/src/log/a.rs", "use glommio::Task;");
    check("shard/src/log/a.rs", "fn f() { std::time::Instant::now(); }");
    check("shard/src/log/a.rs", "use std::{io, time::{Duration, SystemTime}};");
    check("shard/src/disk/real.rs", "use crate::log::Log;");
    check("shard/src/disk/real.rs", "use super::super::log::Log;");
    check("shard/src/batch/a.rs", "use crate::{ids, partition::Partition};");
    check("src/handlers/a.rs", "use glommio::timer;");
    check("src/cores/a.rs", "fn f() { tokio::spawn(g); }");
    check("src/protocol/guard.rs", "use shard::log::Log;");
    check("src/protocol/guard.rs", "use super::super::cores::Ask;");
    check("src/handlers/a.rs", "use crate::net::Connection;");
    check("src/cores/a.rs", "use crate::handlers;");
    check("src/catalog/machine.rs", "use tracing::info;");
    check("src/config/a.rs", "use crate::cores::Ask;");
    check("src/net/a.rs", "use crate::query::Query;");
}

#[test]
fn unsafety_is_argued() {
    let check = |path: &str, body: &str, rules: &[&str]| {
        assert_eq!(rules_broken(path, body), rules, "{path}: {body}");
    };
    check("src/cores/a.rs", "// SAFETY: held by none.\nunsafe { f() }", &["unsafe"]);
    check("shard/src/log/a.rs", "// SAFETY: held by none.\nunsafe { f() }", &["unsafe"]);
    check("shard/src/disk/a.rs", "let a = 1;\nunsafe { f() }", &["safety"]);
    check("src/net/socket.rs", "// SAFETY: no.\nlet a = 1;\nunsafe { f() }", &["safety"]);
    check("src/net/socket.rs", "// SAFETY: whole.\n// It is.\nlet a =\n    unsafe { f() };", &[]);
    check("shard/src/disk/a.rs", "/// # Safety\n/// It is.\nunsafe fn f() {}", &[]);
    check("tests/a.rs", "// SAFETY: alone.\nunsafe { f() }", &[]);
    check("src/lib.rs", "#![forbid(unsafe_code)]", &[]);
}

#[test]
fn outside_bytes_are_not_trusted() {
    let check = |body: &str, rules: &[&str]| {
        assert_eq!(rules_broken("src/protocol/a.rs", body), rules, "{body}");
    };
    check("let a = b[0];", &["outside-bytes"]);
    check("let a = f()[1..];", &["outside-bytes"]);
    check("let a = b.get(0).unwrap();", &["outside-bytes"]);
    check("let a = b.get(0).expect(\"it\");", &["outside-bytes"]);
    check("#[derive(A)]\nstruct B<'a>(&'a [u8], &'a mut [u8; 4]);", &[]);
    check("let [a, b] = vec![1, 2]; const C: [u8; 1] = [0];", &[]);
    check("#[cfg(test)]\nmod tests {\n    fn f() { a[0].unwrap(); }\n}", &[]);
}

#[test]
fn what_only_looks_like_a_violation_passes() {
    let check = |path: &str, body: &str| {
        assert_eq!(rules_broken(path, body), [""; 0], "{path}: {body}");
    };
    check("src/a.rs", "// todo!() and unsafe and _ => are words here\n");
    check("src/a.rs", &format!("//! | 0..4 | {} |\n", "x".repeat(98)));
    check("src/a.rs", "fn f() { g(\"unsafe { dbg!() }\"); }");
    check("src/a.rs", "fn f(&mut self, a: u8, b: u8, c: u8, d: u8, e: (u8, u8)) {}");
    check("src/a.rs", "fn f() { std::thread::sleep(ONE); }");
    check("perf/src/a.rs", "fn f() { std::thread::sleep(ONE); }");
    check("src/handlers/a.rs", "    _ => 1,");
    check("src/errors.rs", "use kafka_protocol::ResponseError;\nA { code: _ } => 1,");
    check("src/runtime.rs", "use glommio::LocalExecutorBuilder;");
    check("src/broker.rs", "use crate::query::Query;");
    check("src/protocol/a.rs", "use shard::disk::SharedBytes;\nuse super::guard;");
    check("src/cores/a.rs", "use crate::network::Thing;");
    assert_eq!(rules_broken("src/a.rs", ""), [""; 0]);
}

#[test]
fn a_file_without_a_header_is_found() {
    let broken = |text: &str| check(&Source::new("src/a.rs", text)).len();
    assert_eq!(broken("fn f() {}"), 1);
    assert_eq!(broken("//! x\nfn f() {}"), 1);
    assert_eq!(broken("\n//! What this file is about.\nfn f() {}"), 0);
}
