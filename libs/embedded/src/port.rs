//! Free loopback ports, of which no two processes that ask here get the same one.
//!
//! A server binds its port seconds after it was chosen, and again after each restart. So each process has blocks of
//! ports for itself: it listens on the first port of a block for as long as it lives, and hands out the others.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// Ports below the range from which the system draws the source ports of outgoing connections. A server that
/// restarts on its port must not find it taken by somebody's outgoing connection, and a client that reconnects to a
/// closed port must not connect to itself.
const RANGE: Range<u16> = 10_000..32_000;
/// Ports of a block, with the one that holds it.
const BLOCK: u16 = 64;
const BLOCKS: u16 = (RANGE.end - RANGE.start) / BLOCK;

/// Those of this process.
static PORTS: Mutex<Ports> = Mutex::new(Ports::new());

/// A loopback port that nothing listens on and that was handed out to nobody else: by this process never before, and by
/// no other process while this one lives. Only who does not ask here can take it.
///
/// # Errors
/// [`Error::NoPort`] if other processes have all blocks.
pub fn free() -> Result<u16, Error> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// The blocks of one process.
#[derive(Debug)]
struct Ports {
    /// Never closed: the ports of a block that was used up are in use.
    held: Vec<TcpListener>,
    /// What is left of the newest block.
    rest: Range<u16>,
}

impl Ports {
    const fn new() -> Self {
        Self { held: Vec::new(), rest: 0..0 }
    }

    /// Ends because there are only so many blocks.
    fn next(&mut self) -> Result<u16, Error> {
        loop {
            if let Some(port) = self.rest.find(|port| listen(*port).is_some()) {
                return Ok(port);
            }
            self.take_block()?;
        }
    }

    /// Somewhere in the range, so that ports whose servers have just ended are not the next ones.
    fn take_block(&mut self) -> Result<(), Error> {
        let somewhere = rand::random_range(0..BLOCKS);
        let firsts = (0..BLOCKS).map(|block| RANGE.start + (somewhere + block) % BLOCKS * BLOCK);
        let (first, holds) = firsts.filter_map(|first| Some((first, listen(first)?))).next().ok_or(Error::NoPort)?;
        self.held.push(holds);
        self.rest = first + 1..first + BLOCK;
        Ok(())
    }
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free().unwrap();
        assert!(RANGE.contains(&port));
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn two_processes_never_get_the_same_port_though_nobody_binds_them() {
        let mut processes = [Ports::new(), Ports::new(), Ports::new()];
        let mut ports = BTreeSet::new();
        for _ in 0..2 * BLOCK {
            for process in &mut processes {
                assert!(ports.insert(process.next().unwrap()));
            }
        }
        assert!(processes.iter().all(|process| process.held.len() >= 3));
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_skipped() {
        let mut ports = Ports::new();
        ports.next().unwrap();
        let taken = ports.rest.clone().find_map(listen).unwrap();
        assert_ne!(ports.next().unwrap(), taken.local_addr().unwrap().port());
    }
}
