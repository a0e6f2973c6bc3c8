//! Streams made elsewhere or by hand expand; bombs and damage do not.

use proptest::prelude::*;

use super::*;

const CODECS: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// What the streams below hold.
fn text() -> Vec<u8> {
    b"basalt ".repeat(12)
}

fn bytes(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn expanded(codec: Codec, body: &[u8]) -> Result<Vec<u8>, BatchError> {
    expand(codec, body, &Limits::default(), &mut Expander::default()).map(<[u8]>::to_vec)
}

fn compressed(codec: Codec, records: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(codec, records, &mut out).unwrap();
    out
}

const SNAPPY: &str = "5418626173616c7420fe0700320700";
const XERIAL: &str = "82534e4150505900 00000001 00000001";

#[test]
fn streams_of_other_encoders_expand() {
    let check = |codec, hex: &str| assert_eq!(expanded(codec, &bytes(hex)), Ok(text()), "{hex}");
    check(Codec::Snappy, SNAPPY);
    check(Codec::Snappy, &format!("{XERIAL} 0000000f {SNAPPY}"));
    // No optional field; then content size, block and content checksums, blocks of 4 MiB.
    check(Codec::Lz4, "04224d18604082110000007f626173616c74200700355073616c742000000000");
    check(
        Codec::Lz4,
        "04224d187c4054000000000000002e110000007f626173616c74200700355073616c7420
         cf8c7c76000000002b51d570",
    );
    // Without, then with the content size in the frame.
    check(Codec::Zstd, "28b52ffd005875000038626173616c742001002ab41801");
    check(Codec::Zstd, "28b52ffd205475000038626173616c742001002ab41801");
    check(Codec::Gzip, "1f8b08000000000002034b4a2c4ecc295148a2260500f9f418df54000000");
}

#[test]
fn concatenated_streams_expand_where_clients_read_them() {
    let xerial = [bytes(XERIAL), vec![0, 0, 0, 15], bytes(SNAPPY)].concat();
    let twice = [text(), text()].concat();
    let check = |codec, stream: &[u8]| assert_eq!(expanded(codec, stream), Ok(twice.clone()));
    // Two chunks in one stream; two streams.
    check(Codec::Snappy, &[&xerial[..], &xerial[16..]].concat());
    check(Codec::Snappy, &[&xerial[..], &xerial[..]].concat());
    for codec in [Codec::Gzip, Codec::Zstd] {
        let one = compressed(codec, &text());
        check(codec, &[&one[..], &one[..]].concat());
    }
    let one = compressed(Codec::Lz4, &text());
    let two = [&one[..], &one[..]].concat();
    assert_eq!(expanded(Codec::Lz4, &two), Err(BatchError::Compression(Codec::Lz4)));
}

#[test]
fn damaged_streams_are_refused() {
    let check = |codec, hex: &str| {
        let expect = Err(BatchError::Compression(codec));
        assert_eq!(expanded(codec, &bytes(hex)), expect, "{codec:?} {hex}");
    };
    for codec in CODECS {
        check(codec, "");
        check(codec, "05");
        check(codec, "ffffffffffffffffffffff");
    }
    // Snappy: a header cut short, a chunk longer than the data, a negative length, a length that
    // the block cannot reach.
    check(Codec::Snappy, "82534e4150505900 00000001 0000");
    check(Codec::Snappy, &format!("{XERIAL} 00000010 {SNAPPY}"));
    check(Codec::Snappy, &format!("{XERIAL} ffffffff {SNAPPY}"));
    check(Codec::Snappy, "ffffff7f 00");
    // LZ4: legacy frame, linked blocks, dictionary, wrong header check, no end mark, wrong
    // content checksum, wrong content size, bytes after the frame.
    let block = "110000007f626173616c74200700355073616c7420";
    check(Codec::Lz4, &format!("02214c18{block}"));
    check(Codec::Lz4, &format!("04224d184040c0{block}00000000"));
    check(Codec::Lz4, &format!("04224d18614000000000{block}00000000"));
    check(Codec::Lz4, &format!("04224d18604083{block}00000000"));
    check(Codec::Lz4, &format!("04224d18604082{block}"));
    check(Codec::Lz4, &format!("04224d186440a7{block}000000002b51d571"));
    check(Codec::Lz4, &format!("04224d187c4055000000000000002e{block}cf8c7c76000000002b51d570"));
    check(Codec::Lz4, &format!("04224d18604082{block}0000000000"));
    // Zstd: a window of 2^28 bytes, which no client would allot.
    check(Codec::Zstd, "28b52ffd009075000038626173616c742001002ab41801");
    check(Codec::Gzip, "1f8b08000000000002034b4a2c4ecc295148a2260500f9f418df5400000000");
}

#[test]
fn no_stream_writes_more_than_its_limit() {
    let zeros = vec![0; 8 << 20];
    let limits = Limits { bytes_max: 1 << 20, ratio_max: 1100, ratio_free_bytes: 1 << 16 };
    for codec in CODECS {
        let bomb = compressed(codec, &zeros);
        let bytes_max = limits.for_input(bomb.len());
        let mut expander = Expander::default();
        let got = expand(codec, &bomb, &limits, &mut expander).map(<[u8]>::len);
        assert_eq!(got, Err(BatchError::Expansion { bytes_max }), "{codec:?}");
        let touched = expander.output.bytes.capacity();
        assert!(touched <= bytes_max + 1, "{codec:?} wrote {touched} of {bytes_max}");
    }
}

#[test]
fn the_limit_itself_is_allowed() {
    for codec in CODECS {
        let check = |length: usize, fits: bool| {
            let body = compressed(codec, &vec![7; length]);
            let limits = Limits { bytes_max: 300_000, ratio_max: 1, ratio_free_bytes: 300_000 };
            let got = expand(codec, &body, &limits, &mut Expander::default()).is_ok();
            assert_eq!(got, fits, "{codec:?} {length}");
        };
        check(300_000, true);
        check(300_001, false);
    }
}

#[test]
fn the_ratio_bounds_small_inputs() {
    let limits = Limits { bytes_max: 1000, ratio_max: 10, ratio_free_bytes: 200 };
    let check = |input, expect| assert_eq!(limits.for_input(input), expect, "{input}");
    check(0, 200);
    check(20, 200);
    check(21, 210);
    check(100, 1000);
    check(usize::MAX, 1000);
}

#[test]
fn a_large_buffer_is_given_back() {
    let mut expander = Expander::default();
    let body = compressed(Codec::Lz4, &vec![0; 9 << 20]);
    assert!(expand(Codec::Lz4, &body, &Limits::default(), &mut expander).is_ok());
    assert!(expander.output.bytes.capacity() > 8 << 20);
    expander.shrink();
    assert_eq!(expander.output.bytes.capacity(), Expander::KEPT_BYTES);
}

proptest! {
    #[test]
    fn what_was_compressed_expands(
        records in proptest::collection::vec(0u8..4, 0..200_000),
        which in 0usize..4,
    ) {
        let body = compressed(CODECS[which], &records);
        // The same buffer serves streams of any size one after the other.
        let mut expander = Expander::default();
        for _ in 0..2 {
            let got = expand(CODECS[which], &body, &Limits::default(), &mut expander);
            prop_assert_eq!(got, Ok(&records[..]));
        }
    }

    #[test]
    fn a_changed_byte_never_panics(
        records in proptest::collection::vec(0u8..4, 0..500),
        which in 0usize..4,
        at in any::<proptest::sample::Index>(),
        value in any::<u8>(),
        framed in any::<bool>(),
    ) {
        let mut body = compressed(CODECS[which], &records);
        if framed && CODECS[which] == Codec::Snappy {
            let length = (body.len() as u32).to_be_bytes();
            body = [bytes(XERIAL), length.to_vec(), body].concat();
        }
        let at = at.index(body.len());
        body[at] = value;
        let _ = expanded(CODECS[which], &body);
        let _ = expanded(CODECS[which], &body[..at]);
    }

    #[test]
    fn any_bytes_never_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
        for codec in CODECS {
            let _ = expanded(codec, &body);
        }
    }
}
