//! Table files: Parquet that any engine reads, and that proves its own bytes.
//!
//! `write` makes a file from rows, `read` gives rows back, `tail` is the part that says what the
//! file holds, `checked` verifies what is read. A file is written once, under a temporary name,
//! synced, read back, renamed; it never changes afterwards. Rows are sorted by partition and
//! offset.
//!
//! | bytes            | holds                                                                 |
//! |------------------|-----------------------------------------------------------------------|
//! | 0..4             | `PAR1`                                                                |
//! | 4..d             | row groups: column chunks of pages, zstd                              |
//! | d..f             | column and offset indexes of all pages                                |
//! | f..n−8           | the footer; its key-value entries below                               |
//! | n−8..n−4         | n−8−f, little-endian                                                  |
//! | n−4..n           | `PAR1`                                                                |
//!
//! | entry            | value                                                                 |
//! |------------------|-----------------------------------------------------------------------|
//! | `basalt.format`  | `1`                                                                   |
//! | `basalt.file`    | id in hex, `,`, time of creation in ms                                |
//! | `basalt.parts`   | of each partition, by `;`: partition, first, end, rows, raw bytes, min timestamp, max timestamp, max append time, by `,` |
//! | `basalt.blocks`  | d, `,`, CRC-32C in 8 hex digits of each 64 KiB of 0..d                |
//! | `basalt.tail`    | CRC-32C of d..n in 8 hex digits, computed with zeros in their place   |
//!
//! So every byte is under a checksum. Parquet itself offers one per page, which the writer this
//! stands on does not make, and which would leave the page's header out. Assumed of the disk: a
//! renamed file has the bytes that were synced; everything else is checked.
//!
//! Gaps: other engines that read the files see plain Parquet and check nothing but zstd's own
//! format; a file forged with right checksums may find Parquet's reader panic.

mod checked;
mod read;
mod tail;
#[cfg(test)]
mod tests;
mod write;

pub use read::{FileReader, RowsReader, Scan};
pub use write::{Covered, FileWriter};
