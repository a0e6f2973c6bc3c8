//! Listening sockets: one per core, on a port of its own or on one that the cores share.
//!
//! All sockets are bound before any core starts, so a port in use is an error of the start and not
//! of a core. The kernel spreads the connections of a shared port over the cores' sockets.

use super::live::CoreNet;
use super::{connection, socket, Service};
use glommio::timer::Timer;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

/// Connections the kernel completes ahead of `accept`.
const BACKLOG: i32 = 1024;
/// Rest after a failed accept (no descriptors left, say), which would fail again at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("{0} is in use by another process; stop it or pass --listen with another port")]
    InUse(SocketAddr),
    #[error("cannot listen on {0}: {1}")]
    Failed(SocketAddr, #[source] io::Error),
    #[error("{cores} cores need as many ports from {first} up, and ports end at 65535")]
    PortsEnd { first: SocketAddr, cores: usize },
}

/// Binds a listening socket for each core: all on `address`, or with `port_per_core` on its port
/// plus the number of the core. Port 0 takes any free one.
pub fn bind(
    address: SocketAddr,
    cores: usize,
    port_per_core: bool,
) -> Result<Vec<TcpListener>, BindError> {
    let mut first = address;
    (0..cores)
        .map(|core| {
            let mut own = first;
            if port_per_core && first.port() != 0 {
                let port = u16::try_from(core).ok().and_then(|core| first.port().checked_add(core));
                own.set_port(port.ok_or(BindError::PortsEnd { first, cores })?);
            }
            let shared = core > 0 && !port_per_core;
            let listener = bind_one(own, shared).map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => BindError::InUse(own),
                _ => BindError::Failed(own, error),
            })?;
            if core == 0 && !port_per_core {
                first = listener.local_addr().map_err(|error| BindError::Failed(own, error))?;
            }
            Ok(listener)
        })
        .collect()
}

/// With SO_REUSEPORT alone a second broker of the same user would share the port without an error.
/// So the first socket is first bound without it, which fails if anyone listens there.
fn bind_one(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let mut address = address;
    if !shared {
        let probe = open(address, false)?;
        address = probe.local_addr()?;
    }
    open(address, true)
}

fn open(address: SocketAddr, reuse_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A handle of a listener that stops it from listening when dropped. Closing alone does not: the
/// ring keeps the socket until the kernel has cleaned up behind the executor, some time after it
/// has ended.
struct Listening(TcpListener);

impl Drop for Listening {
    fn drop(&mut self) {
        if let Err(error) = SockRef::from(&self.0).shutdown(Shutdown::Both) {
            tracing::debug!(%error, "a listener was not shut down");
        }
    }
}

/// Accepts connections and serves each in a task of its own, until dropped.
pub async fn serve<S: Service>(listener: TcpListener, service: Rc<S>, net: Rc<CoreNet>) {
    let _listening = listener.try_clone().map(Listening);
    let listener = socket::adopt(listener);
    while !net.draining() {
        match listener.accept().await {
            Ok(stream) => {
                let run = connection::run(stream, service.clone(), net.clone());
                glommio::spawn_local(run).detach();
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                Timer::new(ACCEPT_RETRY).await;
            }
        }
    }
}
