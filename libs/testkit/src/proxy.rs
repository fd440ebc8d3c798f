//! A TCP proxy that does to a connection what networks do.

pub mod frame;
mod link;
mod rule;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use roadstead_embedded::port;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use self::rule::{Action, Rules};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From who connected to who listens.
    ToServer,
    /// Back.
    ToClient,
}

/// What becomes of the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Pass,
    Delay(Duration),
    /// Nothing goes on, not even the end of the connection.
    Hold,
    /// Taken in and thrown away. A connection that lost bytes so is of no more use and is reset when this ends.
    Swallow,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    pub(crate) to_server: Way,
    pub(crate) to_client: Way,
    /// Raised by each reset.
    pub(crate) resets: u64,
}

impl Control {
    pub(crate) fn way(&self, direction: Direction) -> Way {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.to_server == Way::Hold || self.to_client == Way::Hold
    }

    fn set(&mut self, direction: Direction, way: Way) {
        match direction {
            Direction::ToServer => self.to_server = way,
            Direction::ToClient => self.to_client = way,
        }
    }
}

/// What all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: SocketAddr,
    pub(crate) control: watch::Sender<Control>,
    pub(crate) rules: Rules,
    /// Whether bytes are those of the broker's protocol, to be looked into.
    pub(crate) framed: bool,
    pub(crate) open: watch::Sender<usize>,
    pub(crate) halts: watch::Sender<u64>,
    pub(crate) dropped: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn hold(&self, direction: Direction) {
        self.control.send_modify(|control| control.set(direction, Way::Hold));
    }
}

/// A proxy before one server. Its address stays the same; what it does changes at any time, for open connections too.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Before any server.
    pub async fn before(upstream: SocketAddr) -> Self {
        Self::start(upstream, false).await
    }

    /// Before a broker: it can then drop or stop at single messages.
    pub async fn before_broker(port: u16) -> Self {
        Self::start((Ipv4Addr::LOCALHOST, port).into(), true).await
    }

    async fn start(upstream: SocketAddr, framed: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::free().unwrap())).await.unwrap();
        let control = Control { to_server: Way::Pass, to_client: Way::Pass, resets: 0 };
        let shared = Arc::new(Shared {
            upstream,
            control: watch::Sender::new(control),
            rules: Rules::default(),
            framed,
            open: watch::Sender::new(0),
            halts: watch::Sender::new(0),
            dropped: watch::Sender::new(0),
        });
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients of a broker connect.
    #[must_use]
    pub fn nats_url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// CUT: nothing goes either way any more, without FIN or RST. New connections are held too.
    pub fn cut(&self) {
        self.cut_one_way(Direction::ToServer);
        self.cut_one_way(Direction::ToClient);
    }

    /// CUT, one way only.
    pub fn cut_one_way(&self, direction: Direction) {
        self.set(direction, Way::Hold);
    }

    /// SLOW: each byte of that direction arrives later by `delay`.
    pub fn slow(&self, direction: Direction, delay: Duration) {
        self.set(direction, Way::Delay(delay));
    }

    /// The first half of LOSE-REPLY: requests go through, what comes back is lost. [`Proxy::reset`] is the second.
    pub fn lose_replies(&self) {
        self.set(Direction::ToClient, Way::Swallow);
    }

    /// Resets all connections (RST, both ways); new ones pass.
    pub fn reset(&self) {
        self.shared.control.send_modify(|control| {
            *control = Control { to_server: Way::Pass, to_client: Way::Pass, resets: control.resets + 1 };
        });
    }

    /// Everything passes again, what was held first. Connections that lost bytes are reset.
    pub fn heal(&self) {
        self.shared.rules.clear();
        self.set(Direction::ToServer, Way::Pass);
        self.set(Direction::ToClient, Way::Pass);
    }

    /// Drops the next `count` messages of that direction whose subject starts with `prefix`, in which `*` stands for
    /// any token. For a broker's proxy.
    pub fn drop_messages(&self, direction: Direction, prefix: &str, count: usize) {
        self.rule(direction, prefix, Action::Drop, count);
    }

    /// Stops that direction just before the next message whose subject starts with `prefix` (see
    /// [`Proxy::drop_messages`]), which [`Proxy::halted`] waits for; [`Proxy::heal`] lets it go on. For a broker's
    /// proxy.
    pub fn halt_at(&self, direction: Direction, prefix: &str) {
        self.rule(direction, prefix, Action::Halt, 1);
    }

    /// Waits until it has stopped `count` times in all.
    pub async fn halted(&self, count: u64) {
        self.shared.halts.subscribe().wait_for(|halts| *halts >= count).await.unwrap();
    }

    /// Waits until it has dropped `count` messages in all.
    pub async fn dropped(&self, count: u64) {
        self.shared.dropped.subscribe().wait_for(|dropped| *dropped >= count).await.unwrap();
    }

    /// Waits until exactly `count` connections are open.
    pub async fn connections(&self, count: usize) {
        self.shared.open.subscribe().wait_for(|open| *open == count).await.unwrap();
    }

    fn set(&self, direction: Direction, way: Way) {
        self.shared.control.send_modify(|control| control.set(direction, way));
    }

    fn rule(&self, direction: Direction, prefix: &str, action: Action, count: usize) {
        assert!(self.shared.framed, "only a broker's proxy looks into messages");
        self.shared.rules.add(direction, prefix, action, count);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.reset();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // Out of descriptors or a client that left at once: the next one may do better.
        if let Ok((client, _)) = listener.accept().await {
            tokio::spawn(link::run(client, Arc::clone(&shared)));
        }
    }
}
