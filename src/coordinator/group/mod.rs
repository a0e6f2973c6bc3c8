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

mod classic;
mod join;
mod member;
mod rebalance;
mod subscription;
mod turn;

pub use classic::{Check, Classic, Retention};
pub use turn::Turn;
