//! TEMP
use crate::ids::{LeaderEpoch, Offset};
#[derive(Debug, Default)]
pub struct EpochHistory(Vec<(i32, i64)>);
impl EpochHistory {
    pub fn assign(&mut self, e: LeaderEpoch, o: Offset) {
        if self.0.last().is_none_or(|l| l.0 < e.0) {
            self.0.push((e.0, o.0));
        }
    }
    pub fn end_of(&self, e: LeaderEpoch, end: Offset) -> Option<(LeaderEpoch, Offset)> {
        if self.0.last().is_none_or(|l| l.0 < e.0) {
            return None;
        }
        let i = self.0.iter().rposition(|l| l.0 <= e.0)?;
        Some((LeaderEpoch(self.0[i].0), self.0.get(i + 1).map_or(end, |n| Offset(n.1))))
    }
    pub fn truncate_start(&mut self, _o: Offset) {}
    pub fn encode(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(|x| {
                let mut v = x.0.to_le_bytes().to_vec();
                v.extend(x.1.to_le_bytes());
                v
            })
            .collect()
    }
    pub fn decode(b: &[u8]) -> Result<EpochHistory, ()> {
        Ok(EpochHistory(
            b.chunks(12)
                .map(|c| {
                    (
                        i32::from_le_bytes(c[..4].try_into().unwrap()),
                        i64::from_le_bytes(c[4..].try_into().unwrap()),
                    )
                })
                .collect(),
        ))
    }
}
