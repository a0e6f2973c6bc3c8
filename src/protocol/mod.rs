//! The Kafka protocol as bytes: which APIs are offered, what a frame may hold, how a reply looks.
//!
//! A frame passes `header::Peek` (who asks for what), `guard` (may this be decoded at all) and
//! `request` (decode) on its way in, and `reply` or `fetch_reply` on its way out. Nothing here
//! knows topics, logs or connections, and nothing here waits.

pub mod api;
pub mod fetch_reply;
pub mod guard;
pub mod header;
pub mod layouts;
pub mod outcome;
pub mod reply;
pub mod request;

#[cfg(test)]
mod group_samples;
#[cfg(test)]
pub(crate) mod samples;
