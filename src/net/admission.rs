//! How many connections there may be: in the whole process and from one address.
//!
//! Cores share a port and know nothing of one another's connections, so the count is kept here,
//! behind a lock that is taken when a connection comes and when it goes and never for a request.
//! A connection holds its [`Ticket`] wherever it is served, also after a move to another core.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The limits, and who is in.
#[derive(Debug)]
pub struct Admission {
    connections_max: usize,
    per_ip_max: usize,
    /// Addresses with a limit of their own.
    overrides: BTreeMap<IpAddr, usize>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// Clients may choose their addresses, so the hash is keyed.
    by_ip: HashMap<IpAddr, usize>,
}

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("there are {0} connections, as many as max.connections allows")]
    Full(usize),
    #[error("there are {0} connections from this address, as many as it may have")]
    FullFor(usize),
}

/// A connection's place among all; given back when dropped.
#[derive(Debug)]
pub struct Ticket {
    admission: Arc<Admission>,
    ip: IpAddr,
}

impl Admission {
    pub fn new(
        connections_max: usize,
        per_ip_max: usize,
        overrides: BTreeMap<IpAddr, usize>,
    ) -> Arc<Admission> {
        let overrides = overrides.into_iter().map(|(ip, most)| (ip.to_canonical(), most));
        let (overrides, counts) = (overrides.collect(), Mutex::default());
        Arc::new(Admission { connections_max, per_ip_max, overrides, counts })
    }

    pub fn admit(self: &Arc<Self>, ip: IpAddr) -> Result<Ticket, Refused> {
        let ip = ip.to_canonical();
        let ip_max = self.overrides.get(&ip).copied().unwrap_or(self.per_ip_max);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.all >= self.connections_max {
            return Err(Refused::Full(counts.all));
        }
        let from_ip = counts.by_ip.get(&ip).copied().unwrap_or(0);
        if from_ip >= ip_max {
            return Err(Refused::FullFor(from_ip));
        }
        counts.all += 1;
        counts.by_ip.insert(ip, from_ip + 1);
        Ok(Ticket { admission: self.clone(), ip })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut counts = self.admission.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.all = counts.all.saturating_sub(1);
        let left = counts.by_ip.get(&self.ip).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            counts.by_ip.remove(&self.ip);
        } else {
            counts.by_ip.insert(self.ip, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_for_all_and_for_each_address_and_places_come_back() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let (a, b, c) = (ip("10.0.0.1"), ip("10.0.0.2"), ip("::1"));
        let admission = Admission::new(6, 2, BTreeMap::from([(b, 3), (c, 0)]));
        let mut tickets = Vec::new();
        let mut check = |from: IpAddr, expect: Option<Refused>| match admission.admit(from) {
            Ok(ticket) => {
                assert_eq!(expect, None, "{from}");
                tickets.push(ticket);
            }
            Err(refused) => assert_eq!(Some(refused), expect, "{from}"),
        };
        check(a, None);
        check(ip("::ffff:10.0.0.1"), None);
        check(a, Some(Refused::FullFor(2)));
        for _ in 0..3 {
            check(b, None);
        }
        check(b, Some(Refused::FullFor(3)));
        check(c, Some(Refused::FullFor(0)));
        check(ip("10.0.0.3"), None);
        check(ip("10.0.0.3"), Some(Refused::Full(6)));
        tickets.remove(0);
        assert!(admission.admit(a).is_ok());
        drop(tickets);
        let counts = admission.counts.lock().expect("no panic holds it");
        assert!(counts.all == 0 && counts.by_ip.is_empty(), "{counts:?}");
    }
}
