//! How far consumer groups are behind: what they have committed against where partitions end.
//!
//! Looked at now and then by the core that has a group's coordinator, for operators alone: nothing
//! depends on it. Groups beyond a number of offsets are not told.

use super::core::Core;
use super::door::Door;
use super::front::{Cores, PartitionAt};
use super::groups::Coordinator;
use crate::catalog::Topic;
use crate::coordinator::{GroupMachine, Position};
use crate::metrics::GroupLag;
use glommio::timer::Timer;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(10);
/// Offsets looked at on each partition of the offsets topic.
const POSITIONS_MAX: usize = 10_000;
/// Partitions asked for in one go.
const ASKED_MAX: usize = 256;

/// Looks at the groups of this core, for as long as it runs.
pub(super) async fn keep_lags(core: Rc<Core>) {
    loop {
        let lags = lags(&core).await;
        *core.lags.borrow_mut() = lags.into();
        Timer::new(EVERY).await;
    }
}

/// The records each group has before it in each topic it has committed offsets of.
async fn lags(core: &Rc<Core>) -> Vec<GroupLag> {
    let mut behind: BTreeMap<(Arc<str>, Arc<str>), u64> = BTreeMap::new();
    let shells: Vec<Rc<Coordinator>> = core.groups.borrow().values().cloned().collect();
    for shell in shells {
        let look = |machine: &GroupMachine| machine.positions(POSITIONS_MAX);
        let positions = shell.look(look).unwrap_or_default();
        for some in positions.chunks(ASKED_MAX) {
            let image = core.image();
            let place = |position: &Position| {
                let topic: &Arc<Topic> = image.of_any_view(position.topic)?;
                let log = topic.log_of(position.partition)?;
                let at = PartitionAt { log, key: topic.key(position.partition) };
                Some((at, topic.name.clone(), position.group.clone(), position.offset))
            };
            let places: Vec<_> = some.iter().filter_map(place).collect();
            let asked = places.iter().map(|(at, ..)| *at).collect();
            let answers = Door(core.clone()).offsets(asked).await;
            for ((_, topic, group, offset), answer) in places.into_iter().zip(answers) {
                // One that is just being deleted has no end.
                let Ok(offsets) = answer else { continue };
                let left = offsets.high_watermark.0.saturating_sub(offset.0).max(0).unsigned_abs();
                *behind.entry((group, topic)).or_default() += left;
            }
        }
    }
    let lag = |((group, topic), records)| GroupLag { group, topic, records };
    behind.into_iter().map(lag).collect()
}
