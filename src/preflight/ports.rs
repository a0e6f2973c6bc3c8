//! The addresses the cores and services will listen on, and whether they are free.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::Refusal;
use crate::config::{Advertise, Config, HostPort};

/// The address to listen on; of several the first of IPv4, as clients told a name expect.
pub(super) fn resolve(at: &HostPort, flag: &'static str) -> Result<SocketAddr, Refusal> {
    let failed = |source| Refusal::Listen { address: at.to_string(), flag, source };
    let found: Vec<SocketAddr> =
        (at.host.as_str(), at.port).to_socket_addrs().map_err(failed)?.collect();
    let ipv4 = found.iter().find(|address| address.is_ipv4());
    ipv4.or(found.first()).copied().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
}

/// The address of a service that is not Kafka's, when it is to listen somewhere; free.
pub(super) fn service(
    at: Option<&HostPort>,
    flag: &'static str,
) -> Result<Option<SocketAddr>, Refusal> {
    let Some(at) = at else { return Ok(None) };
    let address = resolve(at, flag)?;
    check_port(address, flag)?;
    Ok(Some(address))
}

/// Every address the cores will listen on.
pub(super) fn addresses(
    config: &Config,
    listen: SocketAddr,
    cores: usize,
) -> Result<Vec<SocketAddr>, Refusal> {
    if config.advertise == Advertise::One || listen.port() == 0 {
        return Ok(vec![listen]);
    }
    let advertised = config.advertised.as_ref().map_or(0, |advertised| advertised.port);
    for first in [listen.port(), advertised] {
        if usize::from(first) + cores > usize::from(u16::MAX) + 1 {
            return Err(Refusal::PortRange { first, cores });
        }
    }
    let ports = (listen.port()..=u16::MAX).take(cores);
    Ok(ports.map(|port| SocketAddr::new(listen.ip(), port)).collect())
}

/// A killed process may hold its port a little longer: the kernel gives up the sockets of an
/// io_uring only after its owner is gone. Well within the second that a refusal may take.
const RELEASE_WAIT: Duration = Duration::from_millis(700);
const RELEASE_POLL: Duration = Duration::from_millis(10);

/// Listens for a moment without SO_REUSEPORT. The cores listen with it, so a second broker of the
/// same user would get the same port without an error and half of the other one's clients.
pub(super) fn check_port(address: SocketAddr, flag: &'static str) -> Result<(), Refusal> {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if begun.elapsed() > RELEASE_WAIT {
                    return Err(Refusal::PortInUse { address, flag });
                }
                std::thread::sleep(RELEASE_POLL);
            }
            Err(source) => {
                return Err(Refusal::Listen { address: address.to_string(), flag, source })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_seen() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let refused = check_port(address, "--listen").unwrap_err().to_string();
        let expect = format!(
            "{address} is in use: stop what listens there, or choose another with --listen \
             HOST:PORT"
        );
        assert_eq!(refused, expect);
        let nowhere = check_port("192.0.2.1:0".parse().unwrap(), "--http").unwrap_err().to_string();
        assert!(nowhere.starts_with("cannot listen on 192.0.2.1:0: "), "{nowhere}");
    }

    #[test]
    fn every_core_needs_its_port() {
        let listen: SocketAddr = "127.0.0.1:65534".parse().unwrap();
        let per_core = Config { advertise: Advertise::PerCore, ..Config::default() };
        let ports = |config: &Config, cores| -> Result<Vec<u16>, String> {
            let found = addresses(config, listen, cores).map_err(|error| error.to_string())?;
            Ok(found.iter().map(SocketAddr::port).collect())
        };
        assert_eq!(ports(&Config::default(), 3), Ok(vec![65534]));
        assert_eq!(ports(&per_core, 2), Ok(vec![65534, 65535]));
        let refused = ports(&per_core, 3).unwrap_err();
        assert!(refused.starts_with("3 cores need a port each from 65534 on"), "{refused}");
    }
}
