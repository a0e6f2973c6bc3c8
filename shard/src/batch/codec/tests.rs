//! Streams made elsewhere or by hand expand; bombs and damage do not.
