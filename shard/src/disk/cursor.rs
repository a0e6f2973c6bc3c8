//! Little-endian numbers out of the bytes of a file, which may end anywhere.
//!
//! For the decoders of checkpoints and manifests. What does not fit is an error and never a panic;
//! each decoder turns it into its own.

/// A place in bytes that are read from front to back.
pub(crate) struct Cursor<'a> {
    pub rest: &'a [u8],
}

/// The bytes end before what was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended;

impl<'a> Cursor<'a> {
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Ended> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(Ended)?;
        self.rest = rest;
        Ok(*head)
    }

    pub fn i32(&mut self) -> Result<i32, Ended> {
        self.array().map(i32::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Ended> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Ended> {
        self.array().map(i64::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Ended> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes behind their own count (4 bytes).
    pub fn counted(&mut self) -> Result<&'a [u8], Ended> {
        let count = self.u32()? as usize;
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Ended)?;
        self.rest = rest;
        Ok(head)
    }

    /// A count of things of at least so many bytes each, when they can be there.
    pub fn count(&self, count: u32, bytes_each_min: usize) -> Result<usize, Ended> {
        let count = count as usize;
        if count <= self.rest.len() / bytes_each_min {
            Ok(count)
        } else {
            Err(Ended)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_an_error() {
        let mut from = Cursor { rest: &[1, 0, 0, 0, 9, 2, 0, 0, 0, 7] };
        assert_eq!(from.count(10, 1), Ok(10));
        assert_eq!(from.count(4, 3), Err(Ended));
        assert_eq!(from.counted(), Ok(&[9][..]));
        assert_eq!(from.counted(), Err(Ended));
        assert_eq!((from.u64(), from.array::<1>()), (Err(Ended), Ok([7])));
    }
}
