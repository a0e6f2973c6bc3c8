//! What no client should send: the broker answers or closes, stays up, and serves the next one.
//!
//! Slow senders and readers are in `connections`. Gap: dense valid arrays are measured by the frame
//! guard's own tests.

use crate::broker::{external, topic, Broker};
use crate::client::create_topic;
use crate::wire::{self, framed, Wire, FETCH_VERSION, NOBODY, PRODUCE_VERSION};
use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest, ProduceRequest};
use std::io::Write;
use std::net::Shutdown;

const UNSUPPORTED_VERSION: i16 = 35;

/// The broker is well: a new connection is answered.
fn assert_well(broker: &Broker, after: &str) {
    let answer = Wire::new(broker).ask(0, &ApiVersionsRequest::default());
    assert_eq!(answer.error_code, 0, "after {after}");
}

/// Sends bytes and expects the connection to be closed without an answer.
fn assert_closed(broker: &Broker, bytes: &[u8], what: &str) {
    let mut wire = Wire::new(broker);
    // The broker may close before all is sent.
    let _ = wire.stream.write_all(bytes);
    let answer = wire.receive_frame();
    assert!(answer.is_none(), "{what}: answered with {} bytes", answer.map_or(0, |a| a.len()));
    assert_well(broker, what);
}

/// The head of a request: api, version, correlation id, client id.
fn head(key: i16, version: i16) -> BytesMut {
    let mut body = BytesMut::new();
    body.put_i16(key);
    body.put_i16(version);
    body.put_i32(77);
    body.put_i16(-1);
    body
}

#[test]
fn wrong_lengths_close_the_connection() {
    let broker = Broker::start();
    for length in [-1, i32::MIN, i32::MAX, 1 << 30] {
        let mut bytes = BytesMut::new();
        bytes.put_i32(length);
        bytes.put_bytes(0, 16);
        assert_closed(&broker, &bytes, &format!("length {length}"));
    }
    for length in [0, 1, 3, 7] {
        assert_closed(&broker, &framed(&vec![0; length]), &format!("a frame of {length} bytes"));
    }
}

#[test]
fn unknown_requests_close_the_connection() {
    let broker = Broker::start();
    for key in [9_999, -1, i16::MIN] {
        assert_closed(&broker, &framed(&head(key, 0)), &format!("api {key}"));
    }
    for version in [99, -1] {
        let what = format!("Metadata {version}");
        assert_closed(&broker, &framed(&head(3, version)), &what);
    }
}

#[test]
fn counts_that_cannot_be_close_the_connection_and_cost_nothing() {
    let broker = Broker::start();
    let before = broker.resident_bytes();
    for count in [i32::MAX, 1 << 28] {
        for (key, version, fixed) in [(3, 1, 0), (1, 4, 17), (0, 3, 8), (2, 1, 4), (19, 0, 0)] {
            let mut body = head(key, version);
            body.put_bytes(0xff, fixed);
            body.put_i32(count);
            assert_closed(&broker, &framed(&body), &format!("api {key} with {count} elements"));
        }
    }
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
}

#[test]
fn noise_closes_the_connection() {
    let broker = Broker::start();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..200 {
        let mut body = head((next() % 70) as i16, (next() % 12) as i16);
        let count = next() % 120;
        body.extend((0..count).map(|_| next() as u8));
        let mut wire = Wire::new(&broker);
        let _ = wire.stream.write_all(&framed(&body));
        let _ = wire.stream.shutdown(Shutdown::Write);
        // Noise may be a request by chance: any answer will do, so does none.
        while wire.receive_frame().is_some() {}
        if round % 20 == 0 {
            assert_well(&broker, &format!("noise {round}"));
        }
    }
    assert_well(&broker, "noise");
}

#[test]
fn half_a_frame_and_a_hang_up_leave_no_trace() {
    let broker = Broker::start();
    let topic = topic("half");
    create_topic(&broker.address, &topic, 1, &[]);
    let request = wire::produce_request(&topic, -1, wire::batch(&["half"], NOBODY));
    let frame = wire::frame(0, PRODUCE_VERSION, 1, &request);
    for length in [1, 3, 4, 5, 12, frame.len() / 2, frame.len() - 1] {
        let mut wire = Wire::new(&broker);
        wire.stream.write_all(&frame[..length]).expect("an open connection");
        wire.stream.shutdown(Shutdown::Write).expect("an open connection");
        assert!(wire.receive_frame().is_none(), "{length} bytes were answered");
    }
    let mut wire = Wire::new(&broker);
    assert_eq!(wire::produce(&mut wire, &topic, wire::batch(&["whole"], NOBODY)), Ok(0));
}

#[test]
fn bytes_left_over_close_the_connection() {
    if external().is_some() {
        eprintln!("bytes_left_over_close_the_connection: not run, others read past them");
        return;
    }
    let broker = Broker::start();
    let frame = wire::frame(3, 1, 1, &MetadataRequest::default().with_topics(None));
    let mut longer = BytesMut::from(&frame[4..]);
    longer.put_u8(0);
    assert_closed(&broker, &framed(&longer), "a byte left over");
}

#[test]
fn a_frame_in_single_bytes_is_answered() {
    let broker = Broker::start();
    let mut wire = Wire::new(&broker);
    let frame = wire.frame(0, &ApiVersionsRequest::default());
    for byte in frame.iter() {
        wire.stream.write_all(&[*byte]).expect("an open connection");
    }
    let (_, answer) = wire.receive::<ApiVersionsRequest>(0);
    assert_eq!(answer.error_code, 0);
}

#[test]
fn api_versions_of_a_later_day_are_answered_with_the_versions_of_today() {
    let broker = Broker::start();
    let mut wire = Wire::new(&broker);
    let mut body = head(18, 99);
    body.put_u8(0); // no tagged fields
    body.put_bytes(0x5a, 9); // whatever the fields of that day are
    wire.stream.write_all(&framed(&body)).expect("an open connection");
    // An answer of version 0, so that a client of any day reads it.
    let (correlation, answer) = wire.receive::<ApiVersionsRequest>(0);
    assert_eq!((correlation, answer.error_code), (77, UNSUPPORTED_VERSION));
    let range = answer.api_keys.iter().find(|api| api.api_key == 18).expect("ApiVersions");
    assert!(range.max_version >= 3);
    // The connection goes on.
    assert_eq!(wire.ask(range.max_version, &version_request()).error_code, 0);
}

fn version_request() -> ApiVersionsRequest {
    let text = kafka_protocol::protocol::StrBytes::from_static_str;
    ApiVersionsRequest::default()
        .with_client_software_name(text("integration"))
        .with_client_software_version(text("1"))
}

#[test]
fn every_offered_version_of_the_data_path_is_served() {
    let broker = Broker::start();
    let topic = topic("versions");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    let offered = wire.ask(3, &version_request()).api_keys;
    let range = |key: i16, last: i16| {
        let api = offered.iter().find(|api| api.api_key == key).expect("an offered api");
        api.min_version..=api.max_version.min(last)
    };
    let mut end = 0;
    for version in range(0, 12).filter(|version| *version >= 3) {
        let request = wire::produce_request(&topic, -1, wire::batch(&["a"], NOBODY));
        let answer: <ProduceRequest as kafka_protocol::protocol::Request>::Response =
            wire.ask(version, &request);
        let seen = &answer.responses[0].partition_responses[0];
        assert_eq!((seen.error_code, seen.base_offset), (0, end), "Produce {version}");
        end += 1;
    }
    for version in range(1, 12).filter(|version| *version >= 4) {
        let answer = wire.ask(version, &wire::fetch_request(&topic, 0, 0));
        let seen = &answer.responses[0].partitions[0];
        assert_eq!((seen.error_code, seen.high_watermark), (0, end), "Fetch {version}");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let broker = Broker::start();
    let topic = topic("pipeline");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut wire = Wire::new(&broker);
    let mut bytes = BytesMut::new();
    let mut expected = Vec::new();
    for round in 0..30 {
        let produce = wire::produce_request(&topic, -1, wire::batch(&["a"], NOBODY));
        bytes.extend_from_slice(&wire.frame(PRODUCE_VERSION, &produce));
        // A fetch at the end waits a little and holds the later answers back, not the requests.
        let wait_ms = if round % 10 == 0 { 100 } else { 0 };
        let fetch = wire::fetch_request(&topic, round + 1, wait_ms);
        bytes.extend_from_slice(&wire.frame(FETCH_VERSION, &fetch));
        bytes.extend_from_slice(&wire.frame(0, &ApiVersionsRequest::default()));
        let first = round as i32 * 3 + 1;
        expected.extend([first, first + 1, first + 2]);
    }
    wire.stream.write_all(&bytes).expect("an open connection");
    for correlation in expected {
        let frame = wire.receive_frame().expect("an answer");
        assert_eq!(frame[..4], correlation.to_be_bytes());
    }
}
