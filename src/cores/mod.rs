//! The cores of the broker and what passes between them.

pub mod front;
