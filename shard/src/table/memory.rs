//! Has the allocator keep the buffers that table work frees.
//!
//! Pages of columns are buffers of some hundred kilobytes, made and dropped all the time. The
//! allocator of the C library gives buffers of this size back to the kernel and takes them anew,
//! each page of memory being cleared: a third of the time of making a table file. It learns from
//! what a program frees; here it is taught at once. Elsewhere this does nothing.

/// Buffers up to this size are kept for the next one; the most the allocator can be taught.
const KEPT_BYTES: usize = (32 << 20) - (64 << 10);

/// To be called once, before the first worker. Each thread that allocates may keep up to twice
/// that of free memory afterwards.
pub fn keep_buffers() {
    let buffer: Vec<u8> = Vec::with_capacity(KEPT_BYTES);
    // Or else the compiler sees that nothing is done with it.
    drop(std::hint::black_box(buffer));
}
