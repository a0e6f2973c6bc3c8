//! The protocol on a bare socket, for many connections that each cost next to nothing here.

use crate::error::PerfError;
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const FRAME_BYTES_MAX: usize = 64 << 20;

/// One connection; requests are answered in their order.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
}

impl Wire {
    pub fn to(address: &str) -> Result<Wire, PerfError> {
        let failed = |source| PerfError::Wire { address: address.to_string(), source };
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(PerfError::run("a socket"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(PerfError::run("a socket"))?;
        Ok(Wire { stream })
    }

    /// The same connection, so that one thread sends and another receives.
    pub fn twin(&self) -> Result<Wire, PerfError> {
        let stream = self.stream.try_clone().map_err(PerfError::run("a socket"))?;
        Ok(Wire { stream })
    }

    pub fn send(&mut self, frame: &[u8]) -> Result<(), PerfError> {
        self.stream.write_all(frame).map_err(PerfError::run("a request"))
    }

    /// The answer to the oldest request without one.
    pub fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response, PerfError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(PerfError::run("an answer"))?;
        let bytes = u32::from_be_bytes(length) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(PerfError::Answer("an answer is too long".to_string()));
        }
        let mut frame = vec![0; bytes];
        self.stream.read_exact(&mut frame).map_err(PerfError::run("an answer"))?;
        let mut frame = Bytes::from(frame);
        let bad = |error| PerfError::Answer(format!("{error}"));
        ResponseHeader::decode(&mut frame, R::Response::header_version(version)).map_err(bad)?;
        R::Response::decode(&mut frame, version).map_err(bad)
    }

    pub fn ask<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, PerfError> {
        self.send(&frame(version, request)?)?;
        self.receive::<R>(version)
    }
}

/// A request behind its length.
pub fn frame<R: Request>(version: i16, request: &R) -> Result<Bytes, PerfError> {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_client_id(Some(StrBytes::from_static_str("basalt-perf")));
    let bad = |error| PerfError::Answer(format!("{error}"));
    let mut body = BytesMut::new();
    header.encode(&mut body, R::header_version(version)).map_err(bad)?;
    request.encode(&mut body, version).map_err(bad)?;
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_u32(body.len() as u32);
    frame.put_slice(&body);
    Ok(frame.freeze())
}
