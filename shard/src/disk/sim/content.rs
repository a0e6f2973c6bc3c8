//! The bytes of a file, of which a long rest of zeros costs nothing.

/// As a file reads: `bytes`, then zeros up to `len`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    bytes: Vec<u8>,
    len: usize,
}

impl Content {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Cuts the content, or adds zeros.
    pub fn resize(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.len = len;
    }

    /// Copies the bytes at `at` into `into`; they lie inside.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        assert!(at + into.len() <= self.len);
        let kept = self.bytes.get(at..).unwrap_or_default();
        let count = kept.len().min(into.len());
        into[..count].copy_from_slice(&kept[..count]);
        into[count..].fill(0);
    }

    /// Overwrites the bytes at `at`; they lie inside.
    pub fn write(&mut self, at: usize, from: &[u8]) {
        let end = at + from.len();
        assert!(end <= self.len);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(from);
    }

    pub fn append(&mut self, from: &[u8]) {
        let at = self.len;
        self.resize(at + from.len());
        self.write(at, from);
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = self.bytes.clone();
        all.resize(self.len, 0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_written_reads_as_zeros() {
        let mut content = Content::default();
        content.resize(10);
        content.write(3, b"abc");
        assert_eq!(content.to_vec(), b"\0\0\0abc\0\0\0\0");
        let mut bytes = [9; 4];
        content.read(4, &mut bytes);
        assert_eq!(&bytes, b"bc\0\0");
        content.read(6, &mut bytes);
        assert_eq!(bytes, [0; 4]);
        content.resize(4);
        content.resize(6);
        assert_eq!(content.to_vec(), b"\0\0\0a\0\0");
        content.append(b"z");
        assert_eq!((content.to_vec(), content.len()), (b"\0\0\0a\0\0z".to_vec(), 7));
    }
}
