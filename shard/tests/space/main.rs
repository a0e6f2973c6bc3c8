//! The space a log takes over a long time, by a simulated clock: on the real disk, in one thread.
//!
//! Crashes are the simulation's (`tests/sim`); here are weeks of traffic and what is left of them.

mod commits;
mod driven;
mod hot;
mod week;
