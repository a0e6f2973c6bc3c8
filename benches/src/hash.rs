//! A hash of what a bench computed, so that two builds can be seen to have done the same work.

/// FNV-1a, 64 bits, a word at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub u64);

impl Default for Hash {
    fn default() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub fn number(&mut self, number: i64) {
        self.0 = (self.0 ^ number as u64).wrapping_mul(0x0000_0100_0000_01b3);
        self.0 ^= self.0 >> 32;
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as i64);
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.number(i64::from_le_bytes(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_length_count() {
        let of = |parts: &[&[u8]]| {
            let mut hash = Hash::default();
            parts.iter().for_each(|part| hash.bytes(part));
            hash
        };
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"c", b"ab"]));
        assert_ne!(of(&[b"a"]), of(&[b"a\0"]));
    }
}
