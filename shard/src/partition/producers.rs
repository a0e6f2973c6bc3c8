//! TEMP
use crate::batch::BatchHeader;
use crate::ids::{Offset, Timestamp};
#[derive(Debug, Default)]
pub struct Producers;
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    #[error("x")]
    X,
}
pub enum Verdict {
    New,
    Duplicate { base_offset: Offset, last_offset: Offset },
}
impl Producers {
    pub fn check(&self, _h: &BatchHeader) -> Result<Verdict, ProducerError> {
        Ok(Verdict::New)
    }
    pub fn apply(&mut self, _h: &BatchHeader, _b: Offset, _n: Timestamp, _max: usize) {}
    pub fn expire(&mut self, _n: Timestamp, _ms: i64) {}
    pub fn first_open_offset(&self) -> Option<Offset> {
        None
    }
    pub fn encode(&self) -> Vec<u8> {
        vec![]
    }
    pub fn decode(_b: &[u8]) -> Result<Producers, ()> {
        Ok(Producers)
    }
}
