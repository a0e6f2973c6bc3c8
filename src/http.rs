//! HTTP for operators: `GET /metrics`, on a thread of its own, and the client `basalt stats` uses.
//!
//! Reads the boards the cores fill; knows no core and can stop none.

use crate::metrics::{prometheus, Board, Snapshot};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tiny_http::{Header, Request, Response, Server};

/// The most `basalt stats` reads, and how long it waits.
const STATS_BYTES_MAX: u64 = 16 << 20;
const STATS_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("{address} cannot serve metrics: {reason}")]
pub struct HttpError {
    address: SocketAddr,
    reason: String,
}

/// A server that ends when dropped.
pub struct Serving {
    server: Arc<Server>,
    thread: Option<thread::JoinHandle<()>>,
}

pub fn serve(address: SocketAddr, boards: Vec<Board>) -> Result<Serving, HttpError> {
    let failed = |reason: String| HttpError { address, reason };
    let server = Arc::new(Server::http(address).map_err(|error| failed(error.to_string()))?);
    let accepting = server.clone();
    let run = move || {
        while let Ok(request) = accepting.recv() {
            answer(request, &boards);
        }
    };
    let thread = thread::Builder::new().name("http".into()).spawn(run);
    let thread = thread.map_err(|error| failed(error.to_string()))?;
    Ok(Serving { server, thread: Some(thread) })
}

impl Serving {
    /// The address bound, with its real port.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.server_addr().to_ip()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(request: Request, boards: &[Board]) {
    let answered = match request.url() {
        "/metrics" => {
            let cores: Vec<Snapshot> = boards.iter().map(Board::get).collect();
            let text = Response::from_string(prometheus(&cores));
            let kind = Header::from_bytes("Content-Type", "text/plain; version=0.0.4");
            request.respond(match kind {
                Ok(kind) => text.with_header(kind),
                Err(()) => text,
            })
        }
        _ => request.respond(Response::from_string("try /metrics\n").with_status_code(404)),
    };
    if let Err(error) = answered {
        tracing::debug!(%error, "a reader of metrics went away");
    }
}

/// What a running broker counts, as it tells it at `address`.
pub fn stats(address: &str) -> io::Result<String> {
    let to = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect_timeout(&to, STATS_PATIENCE)?;
    stream.set_read_timeout(Some(STATS_PATIENCE))?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(STATS_BYTES_MAX).read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1") && head.contains(" 200") => {
            Ok(body.to_string())
        }
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_what_stats_reads() {
        let board = Board::default();
        board.put(Snapshot { core: 0, connections: 12, ..Snapshot::default() });
        let serving = serve("127.0.0.1:0".parse().expect("address"), vec![board]);
        let serving = serving.expect("a free port");
        let address = serving.address().expect("an address").to_string();
        let text = stats(&address).expect("answered");
        assert!(text.contains("basalt_connections{core=\"0\"} 12\n"), "{text}");
    }
}
