//! Reads a Rust file the way the checks need it: comments and literals blanked, tests told from
//! product code, functions and imported paths found.
//!
//! A scanner of bytes, not a parser: it knows nesting, literals and `use` trees and nothing of
//! types or macros. Files come from this repository and are formatted by rustfmt.

/// One Rust file.
pub struct Source {
    /// Relative to the top of the repository, with `/`.
    pub path: String,
    pub text: String,
    /// `text` with comments and the insides of literals replaced by spaces, byte for byte.
    pub code: String,
    /// Lines before the `#[cfg(test)]` module at the end; all of them if there is none.
    pub product_lines: usize,
    /// Where each line ends.
    ends: Vec<usize>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// 1-based line of the `fn` keyword.
    pub line: usize,
    pub lines: usize,
    /// Parameters without `self`.
    pub parameters: usize,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let code = blank(text);
        let product_lines = product_lines(path, &code);
        let ends = code.match_indices('\n').map(|(at, _)| at).collect();
        Source { path: path.to_string(), text: text.to_string(), code, product_lines, ends }
    }

    pub fn is_product(&self) -> bool {
        self.is_under(&["src/", "shard/src/"])
    }

    pub fn is_under(&self, prefixes: &[&str]) -> bool {
        prefixes.iter().any(|prefix| self.path.starts_with(prefix))
    }

    /// The blanked lines with their 1-based numbers.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The blanked lines of product code.
    pub fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code_lines().take(self.product_lines)
    }

    /// The blanked lines of tests: the test module, or all of a file of tests.
    pub fn test_code(&self) -> impl Iterator<Item = (usize, &str)> {
        // `benches/` and `perf/` may wait to measure; their tests may not.
        let from = if self.is_under(&["tests/"]) { 0 } else { self.product_lines };
        self.code_lines().skip(from)
    }

    fn line_of(&self, at: usize) -> usize {
        self.ends.partition_point(|&end| end < at) + 1
    }

    pub fn functions(&self) -> Vec<Function> {
        words(&self.code)
            .filter(|&(_, word)| word == "fn")
            .filter_map(|(at, _)| self.function_at(at))
            .collect()
    }

    fn function_at(&self, at: usize) -> Option<Function> {
        let (name_at, name) = words(&self.code[at + 2..]).next()?;
        if !self.code[at + 2..at + 2 + name_at].trim().is_empty() {
            return None; // `fn(u8) -> u8`: a type
        }
        let code = self.code.as_bytes();
        let mut from = at + 2 + name_at + name.len();
        if code.get(from) == Some(&b'<') {
            from = closing(code, from)? + 1;
        }
        let open = from + self.code[from..].find('(')?;
        let close = closing(code, open)?;
        let body = body_start(code, close + 1)?;
        let line = self.line_of(at);
        let lines = self.line_of(closing(code, body)?) - line + 1;
        let parameters = parameters(&self.code[open + 1..close]);
        Some(Function { name: name.to_string(), line, lines, parameters })
    }

    /// Every path the product code names, `use` trees expanded and `super` resolved.
    pub fn paths(&self) -> Vec<(usize, String)> {
        let end = self.code.split_inclusive('\n').take(self.product_lines).map(str::len).sum();
        let code = &self.code[..end];
        let mut found = Vec::new();
        let mut done = 0;
        for (at, word) in words(code) {
            if at < done {
                continue;
            }
            let mut paths = Vec::new();
            if word == "use" {
                let stop = code[at..].find(';').map_or(code.len(), |length| at + length);
                expand("", &code[at + 3..stop], &mut paths);
                done = stop;
            } else {
                let rest = &code[at..];
                let stop = rest.find(|c: char| !(is_word(c) || c == ':')).unwrap_or(rest.len());
                paths.push(rest[..stop].trim_end_matches(':').to_string());
                done = at + stop;
            }
            let line = self.line_of(at);
            found.extend(paths.into_iter().map(|path| (line, self.resolved(&path))));
        }
        found
    }

    /// `super::x` in `src/net/frame.rs` is `crate::net::x`.
    fn resolved(&self, path: &str) -> String {
        let Some(inside) = self.path.split_once("src/").map(|(_, inside)| inside) else {
            return path.to_string();
        };
        let mut module: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
        if matches!(module.last(), Some(&"mod" | &"lib" | &"main")) {
            module.pop();
        }
        let mut rest = path;
        if let Some(inner) = rest.strip_prefix("self::") {
            rest = inner;
        } else if !rest.starts_with("super::") {
            return path.to_string();
        }
        while let Some(outer) = rest.strip_prefix("super::") {
            module.pop();
            rest = outer;
        }
        module.insert(0, "crate");
        module.push(rest);
        module.join("::")
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words of blanked code with their positions.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + code[at..].find(is_word)?;
        let length = code[begin..].find(|c| !is_word(c)).unwrap_or(code.len() - begin);
        at = begin + length;
        Some((begin, &code[begin..at]))
    })
}

/// The position of the bracket that closes the one at `open`.
fn closing(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0;
    let angles = code[open] == b'<';
    for (at, &byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            b'<' if angles => depth += 1,
            b'>' if angles && code[at - 1] != b'-' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Where the body of a function begins, unless it has none.
fn body_start(code: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, &byte) in code.iter().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

fn parameters(inside: &str) -> usize {
    split(inside)
        .iter()
        .map(|parameter| parameter.split(':').next().unwrap_or_default())
        .filter(|name| !words(name).any(|(_, word)| word == "self"))
        .count()
}

/// Parts between commas outside all brackets, without empty ones.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut begin) = (0, 0);
    let mut last = ' ';
    for (at, c) in list.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if last != '-' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
        last = c;
    }
    parts.push(&list[begin..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Expands a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(before: &str, tree: &str, into: &mut Vec<String>) {
    let tree = tree.trim().trim_start_matches("::");
    if let Some((head, rest)) = tree.split_once('{') {
        let inside = rest.rfind('}').map_or(rest, |end| &rest[..end]);
        for part in split(inside) {
            expand(&format!("{before}{}", head.trim()), part, into);
        }
    } else {
        let path = tree.split(" as ").next().unwrap_or(tree).trim();
        let path = format!("{before}{path}");
        into.push(path.trim_end_matches("::self").to_string());
    }
}

/// A file of tests beside product code is all test; else the tests are the module at the end.
fn product_lines(path: &str, code: &str) -> usize {
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    if stem == "tests" || path.contains("/tests/") {
        return 0;
    }
    let lines: Vec<&str> = code.lines().collect();
    let is_tests = |line: usize| {
        lines[line].trim() == "#[cfg(test)]"
            && lines.get(line + 1).is_some_and(|next| {
                let next = next.trim().trim_start_matches("pub(crate) ");
                next.starts_with("mod ") && next.ends_with('{')
            })
    };
    (0..lines.len()).find(|&line| is_tests(line)).unwrap_or(lines.len())
}

/// Replaces comments and the insides of literals by spaces.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (from, end) = literal_or_comment(bytes, at);
        for byte in &mut code[from..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        let is_delimited = from > at;
        at = if is_delimited { end + 1 } else { end.max(at + 1) };
    }
    String::from_utf8_lossy(&code).into_owned()
}

/// What to blank at `at`: the range is empty where plain code stands.
fn literal_or_comment(bytes: &[u8], at: usize) -> (usize, usize) {
    let rest = &bytes[at..];
    let is_new = at == 0 || !is_word(bytes[at - 1] as char);
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        return (at, at + length);
    }
    if rest.starts_with(b"/*") {
        return (at, block_comment(bytes, at));
    }
    if rest[0] == b'"' {
        return (at + 1, string_end(bytes, at + 1));
    }
    if is_new {
        if let Some(range) = raw_string(bytes, at) {
            return range;
        }
    }
    if rest[0] == b'\'' {
        if rest.get(1) == Some(&b'\\') {
            let length = rest[3..].iter().position(|&byte| byte == b'\'').unwrap_or(0);
            return (at + 1, at + 3 + length);
        }
        let char_end = (2..=5).find(|&length| rest.get(length) == Some(&b'\''));
        let is_char = |length: &usize| {
            std::str::from_utf8(&rest[1..*length]).is_ok_and(|inside| inside.chars().count() == 1)
        };
        if let Some(length) = char_end.filter(is_char) {
            return (at + 1, at + length);
        }
    }
    (at, at)
}

fn block_comment(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut end) = (0, at);
    while end < bytes.len() {
        if bytes[end..].starts_with(b"/*") {
            depth += 1;
            end += 2;
        } else if bytes[end..].starts_with(b"*/") {
            depth -= 1;
            end += 2;
            if depth == 0 {
                break;
            }
        } else {
            end += 1;
        }
    }
    end.min(bytes.len())
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut end = from;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    end.min(bytes.len())
}

/// `r"…"`, `r#"…"#`, `br"…"` and the like; the whole literal is blanked.
fn raw_string(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = &bytes[at..];
    let prefix = [&b"br"[..], b"cr", b"r"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let hashes = rest[prefix.len()..].iter().take_while(|&&byte| byte == b'#').count();
    let open = prefix.len() + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend(std::iter::repeat_n(b'#', hashes));
    let length = rest[open + 1..].windows(close.len()).position(|window| window == close)?;
    Some((at, at + open + 1 + length + close.len()))
}

#[test]
fn literals_and_comments_are_blanked() {
    let check = |text: &str, expect: &str| assert_eq!(blank(text), expect, "{text}");
    check("(\"\", \"a\")", "(\"\", \" \")");
    check("a // b\nc", "a     \nc");
    check("a /* b /* c */ d */ e", "a                   e");
    check(r#"x("a\"b", 'c', '\'', b"d")"#, r#"x("    ", ' ', '  ', b" ")"#);
    check(r##"x(r#"a"b"#) y"##, "x(        ) y");
    check("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}");
    check("'\"' // \"\n\"//\" y", "' '     \n\"  \" y");
}

#[test]
fn functions_are_measured() {
    let text = "trait T { fn none(&self); }\n\
        fn five<F: Fn(u8) -> u8>(a: u8, b: (u8, u8), c: [u8; 2], d: F, e: Vec<u8>) -> [u8; 2] {\n\
        let f: fn(u8) = g;\n}\n\
        impl X { pub fn one(&mut self, a: HashMap<u8, u8>) where A: B { } }";
    let functions = Source::new("src/x.rs", text).functions();
    let seen: Vec<_> =
        functions.iter().map(|f| (f.name.as_str(), f.line, f.lines, f.parameters)).collect();
    assert_eq!(seen, [("five", 2, 3, 5), ("one", 5, 1, 1)]);
}

#[test]
fn paths_are_expanded_and_resolved() {
    let text = "use crate::{a::{self, b}, c as d};\nuse super::super::e;\nfn f() { g::h(1) }\n\
        #[cfg(test)]\nmod tests {\n    use not::seen;\n}\n";
    let paths = Source::new("src/net/frame.rs", text).paths();
    let named: Vec<_> = paths.iter().filter(|(_, path)| path.contains("::")).collect();
    let expect = [(1, "crate::a"), (1, "crate::a::b"), (1, "crate::c"), (2, "crate::e")];
    for (seen, expect) in named.iter().zip(expect.iter().chain(&[(3, "g::h")])) {
        assert_eq!((seen.0, seen.1.as_str()), *expect);
    }
    assert_eq!(named.len(), 5, "{named:?}");
}
