//! Encodes FetchResponse (versions 4 to 18) without copying record data.
//!
//! The codec's encoder wants each partition's records in one buffer. Here the fixed parts are
//! written into one buffer and the record data stay the pieces they are: slices of mapped segments
//! or of read buffers, put between slices of that buffer:
//!
//! ```text
//! length header topic partition records_length | batch batch | tags partition records_length | …
//! ```
//!
//! The tests hold the result to the codec's, byte for byte. Made by `handlers::fetch`.

use super::header::ReplyHeader;
use super::reply::{Piece, Reply, ReplyError};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::NodeEndpoint;
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::Encodable;
use uuid::Uuid;

/// From this version on lengths are compact and tagged fields follow.
const FLEXIBLE: i16 = 12;

/// A fetch response whose record data are pieces.
#[derive(Clone, Debug, Default)]
pub struct FetchReply {
    pub throttle_time_ms: i32,
    pub error_code: i16,
    pub session_id: i32,
    pub topics: Vec<TopicReply>,
    /// Where the leaders named in `current_leader` are (version 16 on).
    pub endpoints: Vec<NodeEndpoint>,
}

/// One topic: its name is sent up to version 12, its id from 13 on.
#[derive(Clone, Debug, Default)]
pub struct TopicReply {
    pub name: TopicName,
    pub id: Uuid,
    pub partitions: Vec<PartitionReply>,
}

#[derive(Clone, Debug)]
pub struct PartitionReply {
    pub index: i32,
    pub error_code: i16,
    pub high_watermark: i64,
    pub last_stable: i64,
    pub log_start: i64,
    /// Producer id and first offset of each aborted transaction; null for uncommitted reads.
    pub aborted: Option<Vec<(i64, i64)>>,
    pub preferred_read_replica: i32,
    pub records: Vec<Piece>,
    /// Largest epoch and its end offset, when the reader's log has diverged (version 12 on).
    pub diverging: Option<(i32, i64)>,
    /// Leader id and epoch, beside an error that says the reader is behind (version 12 on).
    pub current_leader: Option<(i32, i32)>,
}

impl Default for PartitionReply {
    fn default() -> Self {
        PartitionReply {
            index: 0,
            error_code: 0,
            high_watermark: -1,
            last_stable: -1,
            log_start: -1,
            aborted: None,
            preferred_read_replica: -1,
            records: Vec::new(),
            diverging: None,
            current_leader: None,
        }
    }
}

impl PartitionReply {
    pub fn records_bytes(&self) -> usize {
        self.records.iter().map(Piece::len).sum()
    }
}

impl FetchReply {
    /// Encodes the reply; `header.version` decides the layout.
    pub fn encode(self, header: ReplyHeader) -> Result<Reply, ReplyError> {
        let mut writer = Writer { header, fixed: BytesMut::with_capacity(256), cuts: Vec::new() };
        writer.reply(self)?;
        writer.finish()
    }
}

struct Writer {
    header: ReplyHeader,
    /// Everything but record data.
    fixed: BytesMut,
    /// Record data and the place in `fixed` they stand before.
    cuts: Vec<(usize, Piece)>,
}

impl Writer {
    fn is_flexible(&self) -> bool {
        self.header.version >= FLEXIBLE
    }

    fn reply(&mut self, reply: FetchReply) -> Result<(), ReplyError> {
        let version = self.header.version;
        self.fixed.put_i32(0); // the length, known at the end
        self.fixed.put_i32(self.header.correlation_id);
        if self.header.has_tags() {
            self.fixed.put_u8(0);
        }
        self.fixed.put_i32(reply.throttle_time_ms);
        if version >= 7 {
            self.fixed.put_i16(reply.error_code);
            self.fixed.put_i32(reply.session_id);
        }
        self.count(reply.topics.len())?;
        for topic in reply.topics {
            self.topic(topic)?;
        }
        if self.is_flexible() {
            self.endpoints(&reply.endpoints)?;
        }
        Ok(())
    }

    fn topic(&mut self, topic: TopicReply) -> Result<(), ReplyError> {
        if self.header.version >= 13 {
            self.fixed.put_slice(topic.id.as_bytes());
        } else {
            self.text(&topic.name.0)?;
        }
        self.count(topic.partitions.len())?;
        for partition in topic.partitions {
            self.partition(partition)?;
        }
        self.no_tags();
        Ok(())
    }

    fn partition(&mut self, partition: PartitionReply) -> Result<(), ReplyError> {
        self.fixed.put_i32(partition.index);
        self.fixed.put_i16(partition.error_code);
        self.fixed.put_i64(partition.high_watermark);
        self.fixed.put_i64(partition.last_stable);
        if self.header.version >= 5 {
            self.fixed.put_i64(partition.log_start);
        }
        self.aborted(partition.aborted.as_deref())?;
        if self.header.version >= 11 {
            self.fixed.put_i32(partition.preferred_read_replica);
        }
        self.count(partition.records_bytes())?;
        let at = self.fixed.len();
        let records = partition.records.into_iter().filter(|piece| !piece.is_empty());
        self.cuts.extend(records.map(|piece| (at, piece)));
        if self.is_flexible() {
            self.partition_tags(partition.diverging, partition.current_leader);
        }
        Ok(())
    }

    fn aborted(&mut self, aborted: Option<&[(i64, i64)]>) -> Result<(), ReplyError> {
        let Some(aborted) = aborted else {
            match self.is_flexible() {
                true => self.fixed.put_u8(0),
                false => self.fixed.put_i32(-1),
            }
            return Ok(());
        };
        self.count(aborted.len())?;
        for (producer_id, first_offset) in aborted {
            self.fixed.put_i64(*producer_id);
            self.fixed.put_i64(*first_offset);
            self.no_tags();
        }
        Ok(())
    }

    fn partition_tags(&mut self, diverging: Option<(i32, i64)>, leader: Option<(i32, i32)>) {
        let count = u8::from(diverging.is_some()) + u8::from(leader.is_some());
        self.fixed.put_u8(count);
        if let Some((epoch, end_offset)) = diverging {
            self.fixed.put_slice(&[0, 13]); // tag 0: epoch, end offset, no tags
            self.fixed.put_i32(epoch);
            self.fixed.put_i64(end_offset);
            self.fixed.put_u8(0);
        }
        if let Some((leader_id, epoch)) = leader {
            self.fixed.put_slice(&[1, 9]); // tag 1: leader id, epoch, no tags
            self.fixed.put_i32(leader_id);
            self.fixed.put_i32(epoch);
            self.fixed.put_u8(0);
        }
    }

    fn endpoints(&mut self, endpoints: &[NodeEndpoint]) -> Result<(), ReplyError> {
        if endpoints.is_empty() || self.header.version < 16 {
            self.fixed.put_u8(0);
            return Ok(());
        }
        let mut field = BytesMut::new();
        varint(&mut field, self.compact(endpoints.len())?);
        for endpoint in endpoints {
            let encoded = endpoint.encode(&mut field, self.header.version);
            encoded.map_err(|_| ReplyError::NotEncodable(self.header))?;
        }
        let bytes = self.compact(field.len())? - 1;
        self.fixed.put_slice(&[1, 0]); // one tag: 0
        varint(&mut self.fixed, bytes);
        self.fixed.put_slice(&field);
        Ok(())
    }

    fn no_tags(&mut self) {
        if self.is_flexible() {
            self.fixed.put_u8(0);
        }
    }

    fn text(&mut self, text: &str) -> Result<(), ReplyError> {
        if self.is_flexible() {
            let bytes = self.compact(text.len())?;
            varint(&mut self.fixed, bytes);
        } else {
            let bytes = i16::try_from(text.len());
            self.fixed.put_i16(bytes.map_err(|_| ReplyError::NotEncodable(self.header))?);
        }
        self.fixed.put_slice(text.as_bytes());
        Ok(())
    }

    /// The count of an array or the length of record data, which are never null here.
    fn count(&mut self, count: usize) -> Result<(), ReplyError> {
        if self.is_flexible() {
            let compact = self.compact(count)?;
            varint(&mut self.fixed, compact);
        } else {
            let too_long = |_| ReplyError::TooLong { header: self.header, bytes: count };
            self.fixed.put_i32(i32::try_from(count).map_err(too_long)?);
        }
        Ok(())
    }

    /// A compact length is one more than the value.
    fn compact(&self, length: usize) -> Result<u32, ReplyError> {
        let compact = u32::try_from(length).ok().and_then(|length| length.checked_add(1));
        compact.ok_or(ReplyError::TooLong { header: self.header, bytes: length })
    }

    fn finish(mut self) -> Result<Reply, ReplyError> {
        let records: usize = self.cuts.iter().map(|(_, piece)| piece.len()).sum();
        let bytes = self.fixed.len() + records;
        let too_long = |_| ReplyError::TooLong { header: self.header, bytes };
        let length = i32::try_from(bytes - 4).map_err(too_long)?;
        if let Some(prefix) = self.fixed.first_chunk_mut() {
            *prefix = length.to_be_bytes();
        }
        let fixed = self.fixed.freeze();
        let mut pieces = Vec::with_capacity(2 * self.cuts.len() + 1);
        let mut done = 0;
        for (at, piece) in self.cuts {
            push(&mut pieces, fixed.slice(done..at));
            pieces.push(piece);
            done = at;
        }
        push(&mut pieces, fixed.slice(done..));
        Ok(Reply { pieces, bytes })
    }
}

fn push(pieces: &mut Vec<Piece>, bytes: Bytes) {
    if !bytes.is_empty() {
        pieces.push(Piece::Bytes(bytes));
    }
}

fn varint(out: &mut BytesMut, mut value: u32) {
    while value >= 0x80 {
        out.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::api::Api;
    use crate::protocol::samples::Dice;
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, PartitionData,
    };
    use kafka_protocol::messages::FetchResponse;

    #[test]
    fn the_bytes_are_those_of_the_codec_in_every_version() {
        let row = Api::Fetch.row();
        for version in row.version_min..=row.version_max {
            for seed in 0..400 {
                let mut dice = Dice::new(seed);
                let reply = sample(&mut dice, version);
                let header =
                    ReplyHeader { api: Api::Fetch, version, correlation_id: dice.number() as i32 };
                let expect = Reply::encode(header, &as_the_codec_has_it(&reply)).unwrap();
                let got = reply.encode(header).unwrap();
                assert_eq!(joined(&got), joined(&expect), "version {version} seed {seed}");
                assert_eq!(got.bytes, expect.bytes);
            }
        }
    }

    #[test]
    fn record_data_are_not_copied() {
        let batch = Bytes::from(vec![7; 1000]);
        let partition =
            PartitionReply { records: vec![Piece::Bytes(batch.clone())], ..Default::default() };
        let topic = TopicReply { partitions: vec![partition], ..Default::default() };
        let header = ReplyHeader { api: Api::Fetch, version: 12, correlation_id: 1 };
        let reply = FetchReply { topics: vec![topic], ..Default::default() }.encode(header);
        let pieces = reply.unwrap().pieces;
        assert_eq!(pieces.len(), 3);
        let Piece::Bytes(sent) = &pieces[1] else { panic!("bytes were given") };
        assert_eq!(sent.as_ptr(), batch.as_ptr());
    }

    fn joined(reply: &Reply) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in &reply.pieces {
            let Piece::Bytes(bytes) = piece else { panic!("only bytes in this test") };
            all.extend_from_slice(bytes);
        }
        all
    }

    fn sample(dice: &mut Dice, version: i16) -> FetchReply {
        let endpoint = |dice: &mut Dice| {
            NodeEndpoint::default()
                .with_node_id((dice.number() as i32).into())
                .with_host(dice.text())
                .with_port(dice.number() as i32)
                .with_rack(dice.maybe(Dice::text))
        };
        FetchReply {
            throttle_time_ms: dice.number() as i32,
            error_code: dice.number() as i16,
            session_id: if version >= 7 { dice.number() as i32 } else { 0 },
            topics: dice.some(|dice| sample_topic(dice, version)),
            endpoints: if version >= 16 { dice.some(endpoint) } else { Vec::new() },
        }
    }

    fn sample_topic(dice: &mut Dice, version: i16) -> TopicReply {
        let partition = |dice: &mut Dice| PartitionReply {
            index: dice.number() as i32,
            error_code: dice.number() as i16,
            high_watermark: dice.number(),
            last_stable: dice.number(),
            log_start: dice.number(),
            aborted: dice.maybe(|dice| dice.some(|dice| (dice.number(), dice.number()))),
            preferred_read_replica: if version >= 11 { dice.number() as i32 } else { -1 },
            records: dice.some(|dice| Piece::Bytes(dice.bytes())),
            diverging: dice.maybe(|dice| (dice.below(9) as i32, dice.number())),
            current_leader: dice.maybe(|dice| (dice.below(9) as i32, dice.number() as i32)),
        };
        TopicReply {
            name: TopicName(dice.text()),
            id: dice.uuid(),
            partitions: dice.some(|dice| {
                let mut partition = partition(dice);
                if version < FLEXIBLE {
                    (partition.diverging, partition.current_leader) = (None, None);
                }
                partition
            }),
        }
    }

    fn as_the_codec_has_it(reply: &FetchReply) -> FetchResponse {
        FetchResponse::default()
            .with_throttle_time_ms(reply.throttle_time_ms)
            .with_error_code(reply.error_code)
            .with_session_id(reply.session_id)
            .with_responses(reply.topics.iter().map(codec_topic).collect())
            .with_node_endpoints(reply.endpoints.clone())
    }

    fn codec_topic(topic: &TopicReply) -> FetchableTopicResponse {
        FetchableTopicResponse::default()
            .with_topic(topic.name.clone())
            .with_topic_id(topic.id)
            .with_partitions(topic.partitions.iter().map(codec_partition).collect())
    }

    fn codec_partition(partition: &PartitionReply) -> PartitionData {
        let mut records = Vec::new();
        for piece in &partition.records {
            let Piece::Bytes(bytes) = piece else { panic!("only bytes in this test") };
            records.extend_from_slice(bytes);
        }
        let transaction = |(producer_id, first_offset): &(i64, i64)| {
            AbortedTransaction::default()
                .with_producer_id((*producer_id).into())
                .with_first_offset(*first_offset)
        };
        let mut data = PartitionData::default()
            .with_partition_index(partition.index)
            .with_error_code(partition.error_code)
            .with_high_watermark(partition.high_watermark)
            .with_last_stable_offset(partition.last_stable)
            .with_log_start_offset(partition.log_start)
            .with_aborted_transactions(
                partition.aborted.as_ref().map(|list| list.iter().map(transaction).collect()),
            )
            .with_preferred_read_replica(partition.preferred_read_replica.into())
            .with_records(Some(records.into()));
        if let Some((epoch, end)) = partition.diverging {
            let end = EpochEndOffset::default().with_epoch(epoch).with_end_offset(end);
            data = data.with_diverging_epoch(end);
        }
        if let Some((id, epoch)) = partition.current_leader {
            let leader = LeaderIdAndEpoch::default().with_leader_id(id.into());
            data = data.with_current_leader(leader.with_leader_epoch(epoch));
        }
        data
    }
}
