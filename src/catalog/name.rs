//! Which topic names there may be.
//!
//! Kafka's rule: 1 to 249 of `[A-Za-z0-9._-]`, not `.` or `..`; and since metrics once wrote `.` as
//! `_`, two topics may not differ in that alone.

use thiserror::Error;

pub const NAME_BYTES_MAX: usize = 249;

/// Why a name is not one.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NameProblem {
    #[error("a topic name cannot be empty")]
    Empty,
    #[error("a topic name cannot be '.' or '..'")]
    Dots,
    #[error("a topic name of {bytes} bytes is longer than {NAME_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("'{letter}' is none of the letters, digits, '.', '_' and '-' a topic name is made of")]
    Letter { letter: char },
}

/// Whether a new topic may have this name.
pub fn check(name: &str) -> Result<(), NameProblem> {
    if name.is_empty() {
        return Err(NameProblem::Empty);
    }
    if name == "." || name == ".." {
        return Err(NameProblem::Dots);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameProblem::TooLong { bytes: name.len() });
    }
    let fits = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    match name.chars().find(|letter| !fits(letter)) {
        Some(letter) => Err(NameProblem::Letter { letter: printable(letter) }),
        None => Ok(()),
    }
}

/// What keeps a topic from having this name.
pub fn name_problem(name: &str) -> Option<NameProblem> {
    check(name).err()
}

/// The problem goes into replies and logs, so no control character does.
fn printable(letter: char) -> char {
    if letter.is_control() {
        char::REPLACEMENT_CHARACTER
    } else {
        letter
    }
}

/// The form in which colliding names are equal; `None` for a name that cannot collide.
pub fn collision_form(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

/// Topics clients list but do not mean to read.
pub fn is_internal(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "a".repeat(250);
        let cases: &[(&str, Result<(), NameProblem>)] = &[
            ("a", Ok(())),
            ("A-b_c.9", Ok(())),
            ("...", Ok(())),
            (&long[..249], Ok(())),
            (&long, Err(NameProblem::TooLong { bytes: 250 })),
            ("", Err(NameProblem::Empty)),
            (".", Err(NameProblem::Dots)),
            ("..", Err(NameProblem::Dots)),
            ("a b", Err(NameProblem::Letter { letter: ' ' })),
            ("a/b", Err(NameProblem::Letter { letter: '/' })),
            ("ä", Err(NameProblem::Letter { letter: 'ä' })),
            ("a\n", Err(NameProblem::Letter { letter: '\u{fffd}' })),
        ];
        for (name, expect) in cases {
            assert_eq!(&check(name), expect, "{name:?}");
        }
    }

    #[test]
    fn dots_and_underscores_collide() {
        assert_eq!(collision_form("a.b"), collision_form("a_b"));
        assert_ne!(collision_form("a.b"), collision_form("a.c"));
        assert_eq!(collision_form("a-b"), None);
    }
}
