//! Free loopback ports.

use std::net::{Ipv4Addr, TcpListener};

use rand::Rng;

use crate::Error;

/// Ports below the range from which the system draws the source ports of outgoing connections. A server that
/// restarts on its port must not find it taken by somebody's outgoing connection, and a client that reconnects to a
/// closed port must not connect to itself.
const RANGE: std::ops::Range<u16> = 10_000..32_000;
const TRIES: usize = 200;

/// A loopback port that nothing listens on at this moment. Nothing reserves it: the caller binds it soon and tries
/// another if that fails.
///
/// # Errors
/// [`Error::NoPort`] if none was found in a bounded number of tries.
pub fn free() -> Result<u16, Error> {
    let mut random = rand::rng();
    (0..TRIES).map(|_| random.random_range(RANGE)).find(|port| is_free(*port)).ok_or(Error::NoPort)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free().unwrap();
        assert!(RANGE.contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn a_bound_port_is_not_free() {
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free(held.local_addr().unwrap().port()));
    }
}
