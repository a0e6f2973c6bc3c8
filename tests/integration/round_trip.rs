//! What a producer sends is what a consumer gets: every codec, every acks, idempotent or not.

use crate::broker::{topic, Broker};
use crate::client::{
    assert_same, consume, consume_at_least, create_topic, now_ms, placed, produce, records, Place,
    CODECS,
};

const COUNT: usize = 1_000;
const PARTITIONS: i32 = 3;

#[test]
fn records_come_back_in_every_codec() {
    let broker = Broker::start();
    for codec in CODECS {
        for acks in ["1", "all"] {
            let what = format!("{codec}, acks={acks}");
            let topic = topic(&format!("codec-{codec}"));
            create_topic(&broker.address, &topic, PARTITIONS, &[]);
            let sent = records(COUNT);
            let settings = [("compression.codec", codec), ("acks", acks)];
            let places = produce(&broker.address, &topic, &sent, &settings);
            let seen = consume_at_least(&broker.address, &topic, PARTITIONS, COUNT);
            assert_same(&seen, &placed(&places, &sent), &what);
        }
    }
}

#[test]
fn unacknowledged_records_come_back_in_order() {
    let broker = Broker::start();
    for codec in CODECS {
        let topic = topic(&format!("acks-0-{codec}"));
        create_topic(&broker.address, &topic, 1, &[]);
        let sent = records(COUNT);
        produce(&broker.address, &topic, &sent, &[("compression.codec", codec), ("acks", "0")]);
        // Nothing was acknowledged: a record that is, on a later connection, closes the flight.
        let last = records(1);
        let fence = produce(&broker.address, &topic, &last, &[("acks", "all")]);
        let seen = consume_at_least(&broker.address, &topic, 1, COUNT + 1);
        if fence[0].offset == COUNT as i64 {
            let places: Vec<Place> =
                (0..COUNT as i64).map(|offset| Place { partition: 0, offset }).collect();
            let mut expected = placed(&places, &sent);
            expected.extend(placed(&fence, &last));
            assert_same(&seen, &expected, codec);
        } else {
            // The later connection was faster; everything is there all the same.
            assert_eq!(seen.len(), COUNT + 1, "{codec}");
        }
    }
}

#[test]
fn idempotent_records_come_back_once() {
    let broker = Broker::start();
    for codec in ["none", "zstd"] {
        let topic = topic("idempotent");
        create_topic(&broker.address, &topic, PARTITIONS, &[]);
        let sent = records(COUNT);
        let settings = [("compression.codec", codec), ("enable.idempotence", "true")];
        let places = produce(&broker.address, &topic, &sent, &settings);
        let seen = consume(&broker.address, &topic, PARTITIONS);
        assert_same(&seen, &placed(&places, &sent), codec);
    }
}

#[test]
fn offsets_of_a_partition_are_gapless_and_in_order_of_sending() {
    let broker = Broker::start();
    let topic = topic("order");
    create_topic(&broker.address, &topic, 1, &[]);
    let settings = [("enable.idempotence", "true"), ("batch.num.messages", "7")];
    let places = produce(&broker.address, &topic, &records(COUNT), &settings);
    let offsets: Vec<i64> = places.iter().map(|place| place.offset).collect();
    assert_eq!(offsets, (0..COUNT as i64).collect::<Vec<_>>());
}

#[test]
fn a_megabyte_record_comes_back() {
    let broker = Broker::start();
    let topic = topic("big");
    create_topic(&broker.address, &topic, 1, &[]);
    let mut sent = records(3);
    for (number, record) in sent.iter_mut().enumerate() {
        let bytes = (0..900_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8);
        record.value = Some(bytes.map(|byte| byte ^ number as u8).collect());
    }
    let places = produce(&broker.address, &topic, &sent, &[]);
    assert_same(&consume(&broker.address, &topic, 1), &placed(&places, &sent), "big records");
}

#[test]
fn a_log_append_time_topic_stamps_records_itself() {
    let broker = Broker::start();
    let topic = topic("append-time");
    let settings = [("message.timestamp.type", "LogAppendTime")];
    create_topic(&broker.address, &topic, 1, &settings);
    let before = now_ms();
    let sent = records(COUNT);
    produce(&broker.address, &topic, &sent, &[("compression.codec", "lz4")]);
    let seen = consume(&broker.address, &topic, 1);
    assert_eq!(seen.len(), COUNT);
    for ((_, seen), sent) in seen.iter().zip(&sent) {
        assert!((before..=now_ms()).contains(&seen.timestamp_ms), "{}", seen.timestamp_ms);
        assert_eq!((&seen.key, &seen.value), (&sent.key, &sent.value));
    }
}
