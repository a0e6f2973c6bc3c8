//! Reads the topics out of what a member of a "consumer" group sends as its subscription.
//!
//! All versions of it begin alike: int16 version, int32 count, the topics' names; what follows is
//! the assignors' business. The bytes are the client's and are not trusted: `None` when they are
//! not a subscription. Used when offsets expire, which spares topics that are still read.

use crate::coordinator::wire::{Reader, WireError};

pub fn topics(subscription: &[u8]) -> Option<Vec<String>> {
    read(subscription).ok()
}

fn read(subscription: &[u8]) -> Result<Vec<String>, WireError> {
    let mut reader = Reader::new(subscription);
    let version = reader.int16()?;
    if version < 0 {
        return Err(WireError::Length(version.into()));
    }
    let mut topics = Vec::new();
    for _ in 0..reader.entries()? {
        topics.push(reader.string()?);
    }
    Ok(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_subscriptions() {
        let check = |bytes: &[u8], expect: Option<&[&str]>| {
            let expect = expect.map(|names| names.iter().map(|name| name.to_string()).collect());
            assert_eq!(topics(bytes), expect, "{bytes:?}");
        };
        check(&[0, 0, 0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 0], Some(&["a"]));
        check(&[0, 3, 0, 0, 0, 2, 0, 1, b'a', 0, 1, b'b', 0xff], Some(&["a", "b"]));
        check(&[0, 1, 0, 0, 0, 0], Some(&[]));
        check(&[], None);
        check(&[0xff, 0xff, 0, 0, 0, 0], None);
        check(&[0, 0, 0xff, 0xff, 0xff, 0xff], None);
        check(&[0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 1, b'a'], None);
    }
}
