//! One classic group: members that join, elect a leader, share out partitions and stay in touch.
//!
//! | File | What |
//! |---|---|
//! | `classic` | the group's state; sync, heartbeat, leave, describe |
//! | `join` | every way into a group |
//! | `rebalance` | from the first join to the next generation, and what timers end |
//! | `member` | who is in it and what follows from that |
//! | `subscription` | topics in what a consumer says it reads |
//!
//! All of it is soft state but for what `classic` puts into a record: a group is stored when its
//! leader has assigned, when a static member came back under a new id, and when it became empty.
//!
//! It behaves as the classic groups of Apache Kafka 4 do, but for this:
//! - A request that is held is answered with "rebalance in progress" when its member asks again,
//!   and with "unknown member" when its member leaves. Kafka never answers these.
//! - Static members are let back into a full group. Who was told an id is counted, too.
//! - A static member that is away is not taken for heard of because a rebalance ended without it.
//! - Who was told an id and leaves starts no rebalance in a group that has settled.
//! - A group is not stored before its leader has assigned, and is gone if none ever does.
//! - Offsets committed after a group became empty have their full retention (`offsets`).

mod classic;
mod join;
mod member;
mod rebalance;
mod subscription;
mod turn;

pub use classic::{Check, Classic, Retention};
pub use turn::Turn;
