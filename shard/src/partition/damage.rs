//! Reads the states that checkpoints keep for a partition.
//!
//! Shared by producers and epochs: little-endian fields off the front of untrusted bytes, and the
//! one error they can end in. Knows none of the formats.

/// Why kept bytes are not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateDamage {
    #[error("format {0} is not known")]
    Version(u8),
    #[error("the bytes end too early or too late")]
    Length,
    #[error("a field is outside its range or out of order")]
    Field,
}

/// What is left to read.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl Fields<'_> {
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], StateDamage> {
        let (field, rest) = self.0.split_first_chunk().ok_or(StateDamage::Length)?;
        self.0 = rest;
        Ok(*field)
    }

    pub fn i64(&mut self) -> Result<i64, StateDamage> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn i32(&mut self) -> Result<i32, StateDamage> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn i16(&mut self) -> Result<i16, StateDamage> {
        self.array().map(i16::from_le_bytes)
    }

    pub fn u8(&mut self) -> Result<u8, StateDamage> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }
}
