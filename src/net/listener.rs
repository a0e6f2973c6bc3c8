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
use std::time::{Duration, Instant};

/// Connections the kernel completes ahead of `accept`.
const BACKLOG: i32 = 1024;
/// Rest after a failed accept (no descriptors left, say), which would fail again at once.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How often lasting trouble with accepting is told.
const ACCEPT_TROUBLE_TOLD: Duration = Duration::from_secs(10);

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

/// What failed accepts are told as, without a line for each.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    told: Option<Instant>,
}

impl Trouble {
    fn failed(&mut self, error: &io::Error) {
        self.since.get_or_insert_with(Instant::now);
        if self.told.is_some_and(|told| told.elapsed() < ACCEPT_TROUBLE_TOLD) {
            return;
        }
        self.told = Some(Instant::now());
        if is_out_of_files(error) {
            tracing::error!(
                %error,
                "no new connections are taken until some close: the process may not open more \
                 files; raise the limit (ulimit -n) or lower max.connections"
            );
        } else {
            tracing::error!(%error, "no new connections are taken: accepting them fails");
        }
    }

    fn over(&mut self) {
        if let Some(since) = self.since.take() {
            self.told = None;
            let after_ms = since.elapsed().as_millis() as u64;
            tracing::info!(after_ms, "new connections are taken again");
        }
    }
}

fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Whether the peer gave up before it was accepted, which says nothing of the next one.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EPERM | libc::EPROTO))
}

/// Accepts connections and serves each in a task of its own, until dropped.
pub async fn serve<S: Service>(listener: TcpListener, service: Rc<S>, net: Rc<CoreNet>) {
    let _listening = listener.try_clone().map(Listening);
    let listener = socket::adopt(listener);
    let mut trouble = Trouble::default();
    while !net.draining() {
        match listener.accept().await {
            Ok(stream) => {
                trouble.over();
                let run = connection::run(stream, service.clone(), net.clone());
                glommio::spawn_local(run).detach();
            }
            Err(error) => {
                let error = io::Error::from(error);
                if is_of_the_peer(&error) {
                    continue;
                }
                trouble.failed(&error);
                Timer::new(ACCEPT_RETRY).await;
            }
        }
    }
}
