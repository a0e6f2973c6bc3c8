//! The protocol on a bare socket, for what no well-behaved client does or shows.
//!
//! Messages are encoded by the `kafka-protocol` crate; frames are put together here.

use crate::broker::{connect, Broker};
use crate::client::{begin_ms, PATIENCE};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, InitProducerIdRequest, ProduceRequest, RequestHeader, ResponseHeader,
    TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection that counts its requests.
pub struct Wire {
    pub stream: TcpStream,
    correlation: i32,
}

impl Wire {
    pub fn new(broker: &Broker) -> Wire {
        Wire::over(broker.connect())
    }

    /// A connection to an address a broker has told.
    pub fn to(address: &str) -> Wire {
        Wire::over(connect(address))
    }

    pub fn over(stream: TcpStream) -> Wire {
        Wire { stream, correlation: 0 }
    }

    /// One request and its answer.
    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let correlation = self.send(version, request);
        let (seen, response) = self.receive::<R>(version);
        assert_eq!(seen, correlation);
        response
    }

    /// Sends without waiting; returns the correlation id.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let frame = self.frame(version, request);
        self.stream.write_all(&frame).expect("an open connection");
        self.correlation
    }

    /// The frame of the next request.
    pub fn frame<R: Request>(&mut self, version: i16, request: &R) -> Bytes {
        self.correlation += 1;
        frame(R::KEY, version, self.correlation, request)
    }

    pub fn receive<R: Request>(&mut self, version: i16) -> (i32, R::Response) {
        let mut frame = self.receive_frame().expect("an answer");
        let header_version = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut frame, header_version).expect("a header");
        let response = R::Response::decode(&mut frame, version).expect("a response");
        assert!(frame.is_empty(), "{} bytes left over", frame.len());
        (header.correlation_id, response)
    }

    /// The next frame, or nothing when the broker has closed the connection.
    pub fn receive_frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if is_closed(error.kind()) => return None,
            Err(error) => panic!("waiting for a frame: {error}"),
        }
        let mut frame = vec![0; i32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).expect("a whole frame");
        Some(frame.into())
    }

    /// Whether nothing arrives for the time.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        let before = self.stream.read_timeout().expect("an option of the socket");
        self.stream.set_read_timeout(Some(time)).expect("an option of the socket");
        let outcome = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(before).expect("an option of the socket");
        outcome
            .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

pub fn frame<R: Encodable + HeaderVersion>(
    key: i16,
    version: i16,
    correlation: i32,
    request: &R,
) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(key)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(StrBytes::from_static_str("integration")));
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version)).expect("a header");
    request.encode(&mut body, version).expect("a request");
    framed(&body)
}

/// A body behind its length.
pub fn framed(body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_i32(body.len() as i32);
    frame.put_slice(body);
    frame.freeze()
}

pub fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_string()))
}

const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;

/// Asks for a new producer id, again while the broker has just started.
pub fn init_producer(wire: &mut Wire) -> Identity {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(None)
        .with_transaction_timeout_ms(60_000);
    let deadline = Instant::now() + PATIENCE;
    let mut answer = wire.ask(4, &request);
    while answer.error_code == COORDINATOR_LOAD_IN_PROGRESS && Instant::now() < deadline {
        answer = wire.ask(4, &request);
    }
    assert_eq!(answer.error_code, 0);
    Identity { id: answer.producer_id.0, epoch: answer.producer_epoch, sequence: 0 }
}

/// A producer's incarnation and the sequence of its next batch.
#[derive(Clone, Copy)]
pub struct Identity {
    pub id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

pub const NOBODY: Identity = Identity { id: -1, epoch: -1, sequence: -1 };

/// A batch of records with these values.
pub fn batch(values: &[&str], producer: Identity) -> Bytes {
    let record = |(number, value): (usize, &&str)| Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        timestamp_type: TimestampType::Creation,
        offset: number as i64,
        // Consecutive also for nobody, or the encoder makes a batch of each record.
        sequence: producer.sequence + number as i32,
        timestamp: begin_ms() + number as i64,
        key: None,
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
        headers: IndexMap::new(),
    };
    let records: Vec<Record> = values.iter().enumerate().map(record).collect();
    let options = RecordEncodeOptions { version: 2, compression: Compression::None };
    let mut encoded = BytesMut::new();
    RecordBatchEncoder::encode(&mut encoded, &records, &options).expect("a batch");
    encoded.freeze()
}

/// A produce request for partition 0.
pub fn produce_request(topic: &str, acks: i16, records: Bytes) -> ProduceRequest {
    let partition = PartitionProduceData::default().with_index(0).with_records(Some(records));
    let topic =
        TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![partition]);
    ProduceRequest::default().with_acks(acks).with_timeout_ms(30_000).with_topic_data(vec![topic])
}

/// A fetch request for partition 0.
pub fn fetch_request(topic: &str, offset: i64, max_wait_ms: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 24)
        .with_topics(vec![topic])
}

/// The last version of Produce and of Fetch that name topics.
pub const PRODUCE_VERSION: i16 = 9;
pub const FETCH_VERSION: i16 = 12;

/// Produces to partition 0; the base offset or the error code.
pub fn produce(wire: &mut Wire, topic: &str, records: Bytes) -> Result<i64, i16> {
    let request = produce_request(topic, -1, records);
    let answer = wire.ask(PRODUCE_VERSION, &request);
    let partition = &answer.responses[0].partition_responses[0];
    match partition.error_code {
        0 => Ok(partition.base_offset),
        code => Err(code),
    }
}

/// The records of partition 0 from an offset, or the error code.
pub fn fetch(wire: &mut Wire, topic: &str, offset: i64, max_wait_ms: i32) -> Result<Bytes, i16> {
    let answer = wire.ask(FETCH_VERSION, &fetch_request(topic, offset, max_wait_ms));
    let partition = &answer.responses[0].partitions[0];
    match partition.error_code {
        0 => Ok(partition.records.clone().unwrap_or_default()),
        code => Err(code),
    }
}

/// All batches of partition 0, one fetch after the other.
pub fn fetch_all(wire: &mut Wire, topic: &str) -> Vec<u8> {
    let (mut all, mut next) = (Vec::new(), 0);
    loop {
        let records = fetch(wire, topic, next, 0).expect("an offset of the log");
        if records.is_empty() {
            return all;
        }
        let mut rest = &records[..];
        while !rest.is_empty() {
            let number = |at: usize| i32::from_be_bytes(rest[at..at + 4].try_into().expect("4"));
            let base = i64::from_be_bytes(rest[..8].try_into().expect("8"));
            next = base + i64::from(number(23)) + 1;
            rest = &rest[12 + number(8) as usize..];
        }
        all.extend_from_slice(&records);
    }
}
