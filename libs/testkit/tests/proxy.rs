//! What the chaos proxy does to connections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    io::ErrorKind,
    net::SocketAddr,
    time::{Duration, Instant},
};

use roadstead_testkit::{
    Broker,
    proxy::{Direction, Proxy},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Long enough to be sure that nothing comes.
const SILENCE: Duration = Duration::from_millis(150);
const SOON: Duration = Duration::from_secs(10);

/// A server that sends everything back.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    address
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

async fn read_word(stream: &mut TcpStream) -> std::io::Result<[u8; 4]> {
    let mut word = [0; 4];
    stream.read_exact(&mut word).await.map(|_| word)
}

async fn assert_answers(stream: &mut TcpStream) {
    stream.write_all(b"word").await.unwrap();
    assert_eq!(timeout(SOON, read_word(stream)).await.unwrap().unwrap(), *b"word");
}

#[tokio::test]
async fn untouched_it_passes_bytes_and_the_end_of_a_connection() {
    let proxy = Proxy::before(echo().await).await;
    let mut stream = connect(&proxy).await;
    assert_answers(&mut stream).await;
    stream.shutdown().await.unwrap();
    assert_eq!(timeout(SOON, stream.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    timeout(SOON, proxy.connections(0)).await.unwrap();
}

#[tokio::test]
async fn a_cut_is_silent_and_what_was_held_arrives_after_healing() {
    let proxy = Proxy::before(echo().await).await;
    let mut stream = connect(&proxy).await;
    assert_answers(&mut stream).await;
    proxy.cut();
    stream.write_all(b"held").await.unwrap();
    assert!(timeout(SILENCE, read_word(&mut stream)).await.is_err());
    let mut newcomer = connect(&proxy).await;
    newcomer.write_all(b"also").await.unwrap();
    assert!(timeout(SILENCE, read_word(&mut newcomer)).await.is_err());
    proxy.heal();
    assert_eq!(timeout(SOON, read_word(&mut stream)).await.unwrap().unwrap(), *b"held");
    assert_eq!(timeout(SOON, read_word(&mut newcomer)).await.unwrap().unwrap(), *b"also");
}

#[tokio::test]
async fn a_slow_way_delays_each_byte_without_narrowing_it() {
    let proxy = Proxy::before(echo().await).await;
    let mut stream = connect(&proxy).await;
    assert_answers(&mut stream).await;
    proxy.slow(Direction::ToClient, Duration::from_millis(200));
    let began = Instant::now();
    for _ in 0..20 {
        stream.write_all(b"slow").await.unwrap();
    }
    for _ in 0..20 {
        timeout(SOON, read_word(&mut stream)).await.unwrap().unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn lost_replies_are_followed_by_a_reset_and_new_connections_pass() {
    let proxy = Proxy::before(echo().await).await;
    let mut stream = connect(&proxy).await;
    assert_answers(&mut stream).await;
    proxy.lose_replies();
    stream.write_all(b"lost").await.unwrap();
    assert!(timeout(SILENCE, read_word(&mut stream)).await.is_err());
    proxy.reset();
    let error = timeout(SOON, read_word(&mut stream)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_answers(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn a_connection_that_lost_bytes_does_not_survive_healing() {
    let proxy = Proxy::before(echo().await).await;
    let mut stream = connect(&proxy).await;
    assert_answers(&mut stream).await;
    proxy.lose_replies();
    stream.write_all(b"lost").await.unwrap();
    assert!(timeout(SILENCE, read_word(&mut stream)).await.is_err());
    proxy.heal();
    let error = timeout(SOON, read_word(&mut stream)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_server_that_is_gone_shows_as_a_reset() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::before(address).await;
    let error = timeout(SOON, read_word(&mut connect(&proxy).await)).await.unwrap().unwrap_err();
    assert!([ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof].contains(&error.kind()), "{error}");
}

/// A subscriber and publisher in one, in the broker's own words.
struct Client(BufReader<TcpStream>);

impl Client {
    async fn subscribed(proxy: &Proxy) -> Self {
        let mut client = Self(BufReader::new(connect(proxy).await));
        assert!(client.line().await.starts_with("INFO"));
        client.say("CONNECT {\"verbose\":false}\r\nSUB feed.> 1\r\nPING\r\n").await;
        assert_eq!(client.line().await, "PONG");
        client
    }

    async fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn publish(&mut self, subject: &str) {
        self.say(&format!("PUB {subject} 2\r\nhi\r\n")).await;
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(SOON, self.0.read_line(&mut line)).await.unwrap().unwrap();
        line.trim_end().to_owned()
    }

    async fn message(&mut self) -> String {
        let head = self.line().await;
        assert_eq!(self.line().await, "hi");
        head.split(' ').nth(1).unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_single_message_can_be_dropped() {
    let broker = Broker::start("").await;
    let proxy = Proxy::before_broker(broker.port()).await;
    let mut client = Client::subscribed(&proxy).await;
    proxy.drop_messages(Direction::ToClient, "feed.b", 1);
    for subject in ["feed.a", "feed.b", "feed.c", "feed.b"] {
        client.publish(subject).await;
    }
    let seen = [client.message().await, client.message().await, client.message().await];
    assert_eq!(seen, ["feed.a", "feed.c", "feed.b"]);
    timeout(SOON, proxy.dropped(1)).await.unwrap();
}

#[tokio::test]
async fn a_message_can_be_stopped_on_its_way_and_let_go() {
    let broker = Broker::start("").await;
    let proxy = Proxy::before_broker(broker.port()).await;
    let mut client = Client::subscribed(&proxy).await;
    proxy.halt_at(Direction::ToServer, "feed.b");
    client.publish("feed.a").await;
    client.publish("feed.b").await;
    timeout(SOON, proxy.halted(1)).await.unwrap();
    assert_eq!(client.message().await, "feed.a");
    proxy.heal();
    assert_eq!(client.message().await, "feed.b");
}
