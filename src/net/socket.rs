//! The system calls of a connection: receive into fresh memory, send pieces as they lie.
//!
//! The one file of the broker with unsafe code. A reply's pieces go out in one `sendmsg`, slices of
//! mapped segments among them; these are never read by the process itself, so a bad sector is an
//! EFAULT of this call (an I/O error of this connection) and not a signal. Nothing here blocks:
//! waiting is the executor's business.
#![allow(unsafe_code)]

use crate::protocol::reply::Piece;
use bytes::{Buf, BufMut, BytesMut};
use futures_lite::AsyncWrite;
use glommio::net::{TcpListener, TcpStream};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Pieces handed to the kernel in one call; more follow in the next.
const PIECES_PER_CALL: usize = 64;

/// Replies on their way out, in order.
#[derive(Debug, Default)]
pub struct Outgoing {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

impl Outgoing {
    pub fn push(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Bytes not yet taken by the kernel.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Sends what the socket takes at once. `WouldBlock` when it takes nothing.
    pub fn send(&mut self, socket: RawFd) -> io::Result<usize> {
        let mut vectors =
            [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES_PER_CALL];
        let mut used = 0;
        for (vector, piece) in vectors.iter_mut().zip(&self.pieces) {
            let (address, bytes) = parts(piece);
            *vector = libc::iovec { iov_base: address.cast_mut().cast(), iov_len: bytes };
            used += 1;
        }
        // SAFETY: an all-zero `msghdr` is a valid one without address and control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = used as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `message` names `used` vectors of memory that `self.pieces` keeps alive and
        // unchanged during the call: `Bytes` are immutable, shared bytes lie below the published
        // length of their map, which its one writer never touches again.
        let sent = unsafe { libc::sendmsg(socket, &message, flags) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        self.advance(sent);
        Ok(sent)
    }

    /// Sends some bytes of the first piece, or arranges for a wake-up once the socket takes more.
    pub fn poll_send(
        &mut self,
        stream: &mut TcpStream,
        cx: &mut Context,
    ) -> Poll<io::Result<usize>> {
        let Some(first) = self.pieces.front() else {
            return Poll::Ready(Ok(0));
        };
        let (address, bytes) = parts(first);
        // SAFETY: the memory is valid and unchanging while `first` lives (see `send`). The slice
        // is handed on to the kernel's `send` and not read here.
        let slice = unsafe { std::slice::from_raw_parts(address, bytes) };
        let sent = std::task::ready!(Pin::new(stream).poll_write(cx, slice))?;
        self.advance(sent);
        Poll::Ready(Ok(sent))
    }

    fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        while let Some(first) = self.pieces.front_mut() {
            let bytes = first.len();
            if sent < bytes {
                match first {
                    Piece::Bytes(bytes) => bytes.advance(sent),
                    Piece::Shared(shared) => shared.advance(sent),
                }
                return;
            }
            sent -= bytes;
            self.pieces.pop_front();
        }
    }
}

fn parts(piece: &Piece) -> (*const u8, usize) {
    match piece {
        Piece::Bytes(bytes) => (bytes.as_ptr(), bytes.len()),
        Piece::Shared(shared) => shared.parts(),
    }
}

/// Appends what has arrived to `into`, at most `bytes_max` and at most its spare capacity. 0 means
/// that the peer is done sending, `WouldBlock` that nothing is there yet.
pub fn receive(socket: RawFd, into: &mut BytesMut, bytes_max: usize) -> io::Result<usize> {
    let spare = into.spare_capacity_mut();
    let room = spare.len().min(bytes_max);
    // SAFETY: the kernel writes at most `room` bytes into spare capacity that `into` owns.
    let got = unsafe { libc::recv(socket, spare.as_mut_ptr().cast(), room, libc::MSG_DONTWAIT) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    assert!(got <= room);
    // SAFETY: the kernel has just initialised these `got` bytes.
    unsafe { into.advance_mut(got) };
    Ok(got)
}

/// Hands a listening socket to the executor of this thread.
pub fn adopt(listener: std::net::TcpListener) -> TcpListener {
    // SAFETY: the descriptor is an open listening socket, and `into_raw_fd` gives up its owner.
    unsafe { TcpListener::from_raw_fd(listener.into_raw_fd()) }
}

/// The descriptor to be used with the calls above while `stream` lives.
pub fn descriptor(stream: &TcpStream) -> RawFd {
    stream.as_raw_fd()
}

/// Hands a connected socket to the executor of this thread.
pub fn adopt_stream(socket: OwnedFd) -> TcpStream {
    // SAFETY: the descriptor is an open socket, and `into_raw_fd` gives up its owner.
    unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) }
}

/// The same socket under another descriptor, free of this thread's executor. What `stream` waits
/// for on the ring ends when it is dropped, and takes no bytes along: it only looks.
pub fn detach(stream: &TcpStream) -> io::Result<OwnedFd> {
    // SAFETY: the descriptor is open as long as `stream` lives, and is borrowed for this call only.
    let borrowed = unsafe { BorrowedFd::borrow_raw(stream.as_raw_fd()) };
    borrowed.try_clone_to_owned()
}
