//! The simulated disk.

mod pages;

pub(super) use pages::Pages;
