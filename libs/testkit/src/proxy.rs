//! A TCP proxy that does to a connection what networks do.

pub mod frame;
mod link;
mod postgres;
mod rule;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use roadstead_embedded::port;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use self::{
    frame::{Frame, Framer},
    rule::{Action, Rules},
};

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

/// The protocol that bytes are of, if they are to be looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Any,
    Broker,
    Postgres,
}

/// Cuts one direction of a connection into what rules can be about.
#[derive(Debug)]
pub(crate) enum Cutter {
    Pieces,
    Broker(Framer),
    Postgres(postgres::Messages),
}

impl Cutter {
    pub(crate) fn new(speech: Speech, direction: Direction) -> Self {
        match speech {
            Speech::Any => Self::Pieces,
            Speech::Broker => Self::Broker(Framer::default()),
            Speech::Postgres => Self::Postgres(postgres::Messages::new(direction)),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        match self {
            Self::Pieces => vec![Frame { subject: None, bytes: bytes.to_vec() }],
            Self::Broker(framer) => framer.push(bytes),
            Self::Postgres(messages) => messages.push(bytes),
        }
    }
}

/// What all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) upstream: SocketAddr,
    pub(crate) control: watch::Sender<Control>,
    pub(crate) rules: Rules,
    pub(crate) speech: Speech,
    /// Messages that came for the server and for clients, by type.
    pub(crate) came: [watch::Sender<BTreeMap<String, u64>>; 2],
    /// How often something went to the server after something had come back.
    pub(crate) turns: watch::Sender<u64>,
    pub(crate) open: watch::Sender<usize>,
    pub(crate) halts: watch::Sender<u64>,
    pub(crate) dropped: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn set(&self, direction: Direction, way: Way) {
        self.control.send_modify(|control| control.set(direction, way));
    }

    pub(crate) fn reset(&self) {
        self.control.send_modify(|control| {
            *control = Control { to_server: Way::Pass, to_client: Way::Pass, resets: control.resets + 1 };
        });
    }

    pub(crate) fn count(&self, direction: Direction, subject: &str) {
        if self.speech == Speech::Postgres {
            self.came[direction as usize].send_modify(|came| *came.entry(subject.to_owned()).or_default() += 1);
        }
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
        Self::start(upstream, Speech::Any).await
    }

    /// Before a Postgres: it then counts messages and can lose them one by one.
    pub async fn before_postgres(upstream: SocketAddr) -> Self {
        Self::start(upstream, Speech::Postgres).await
    }

    /// Before a broker: it can then drop or stop at single messages.
    pub async fn before_broker(port: u16) -> Self {
        Self::start((Ipv4Addr::LOCALHOST, port).into(), Speech::Broker).await
    }

    async fn start(upstream: SocketAddr, speech: Speech) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::free().unwrap())).await.unwrap();
        let control = Control { to_server: Way::Pass, to_client: Way::Pass, resets: 0 };
        let shared = Arc::new(Shared {
            upstream,
            control: watch::Sender::new(control),
            rules: Rules::default(),
            speech,
            came: Default::default(),
            turns: watch::Sender::new(0),
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
        self.shared.reset();
    }

    /// LOSE-REPLY at one point: lets `pass` more messages through to the client, loses what follows, and resets all
    /// connections when `lose` messages were lost. For Postgres's proxy.
    pub fn lose_replies_after(&self, pass: usize, lose: usize) {
        assert_eq!(self.shared.speech, Speech::Postgres, "only Postgres's proxy counts its messages");
        self.shared.rules.add_after(pass, Direction::ToClient, "", Action::Lose { last: false }, lose);
    }

    /// How many messages of that type, a letter, came so far for that side. For Postgres's proxy.
    #[must_use]
    pub fn messages(&self, direction: Direction, kind: &str) -> u64 {
        self.shared.came[direction as usize].borrow().get(kind).copied().unwrap_or_default()
    }

    /// How many messages came so far for that side. For Postgres's proxy.
    #[must_use]
    pub fn all_messages(&self, direction: Direction) -> u64 {
        self.shared.came[direction as usize].borrow().values().sum()
    }

    /// Everything passes again, what was held first. Connections that lost bytes are reset.
    pub fn heal(&self) {
        self.shared.rules.clear();
        self.set(Direction::ToServer, Way::Pass);
        self.set(Direction::ToClient, Way::Pass);
    }

    /// Drops the next `count` messages, and subscriptions, of that direction whose subject starts with `prefix`, in which
    /// `*` stands for any token. For a broker's proxy.
    pub fn drop_messages(&self, direction: Direction, prefix: &str, count: usize) {
        self.rule(direction, prefix, Action::Drop, count);
    }

    /// Stops that direction just before the next message whose subject starts with `prefix` (see
    /// [`Proxy::drop_messages`]), which [`Proxy::halted`] waits for; [`Proxy::heal`] lets it go on. For a broker's
    /// proxy.
    pub fn halt_at(&self, direction: Direction, prefix: &str) {
        self.rule(direction, prefix, Action::Halt, 1);
    }

    /// How often something went to the server after something had come back: round trips, on connections that are not
    /// new. Exact only while the proxy is slow, for then what goes out together has left before the first answer comes.
    #[must_use]
    pub fn turns(&self) -> u64 {
        *self.shared.turns.borrow()
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
        self.shared.set(direction, way);
    }

    fn rule(&self, direction: Direction, prefix: &str, action: Action, count: usize) {
        assert_eq!(self.shared.speech, Speech::Broker, "only a broker's proxy looks into messages");
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
