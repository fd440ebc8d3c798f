//! One proxied connection.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{Control, Cutter, Direction, Shared, Way, frame::Frame, rule::Action};

/// What may wait in the proxy per direction; beyond it, the sender feels it.
const QUEUE: usize = 256;
const READ: usize = 16 * 1024;

type Piece = (Instant, Frame);

/// Serves one client to the end of its connection.
pub(crate) async fn run(mut client: TcpStream, shared: Arc<Shared>) {
    shared.open.send_modify(|open| *open += 1);
    if serve(&mut client, &shared).await.is_err() {
        // It may be gone already, which is as good.
        client.set_zero_linger().ok();
    }
    drop(client);
    shared.open.send_modify(|open| *open -= 1);
}

/// Ends with an error if the connection is to be reset.
async fn serve(client: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    let link = Link {
        shared,
        resets: shared.control.borrow().resets,
        lost_bytes: AtomicBool::new(false),
        answered: AtomicBool::new(false),
    };
    let mut server = tokio::select! {
        server = link.connect() => server?,
        error = link.reset_wanted() => return Err(error),
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let result = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let both = async {
            tokio::try_join!(
                link.pump(from_client, to_server, Direction::ToServer),
                link.pump(from_server, to_client, Direction::ToClient),
            )
        };
        tokio::select! {
            ended = both => ended.map(drop),
            error = link.reset_wanted() => Err(error),
        }
    };
    if result.is_err() {
        server.set_zero_linger().ok();
    }
    result
}

struct Link<'a> {
    shared: &'a Shared,
    /// How many resets there had been when it began.
    resets: u64,
    lost_bytes: AtomicBool,
    /// Something came back since something went out.
    answered: AtomicBool,
}

impl Link<'_> {
    async fn connect(&self) -> io::Result<TcpStream> {
        let mut control = self.shared.control.subscribe();
        while control.borrow_and_update().holds() {
            changed(&mut control).await?;
        }
        TcpStream::connect(self.shared.upstream).await
    }

    async fn reset_wanted(&self) -> io::Error {
        let mut control = self.shared.control.subscribe();
        loop {
            let now = *control.borrow_and_update();
            let swallows = [now.to_server, now.to_client].contains(&Way::Swallow);
            if now.resets != self.resets || (!swallows && self.lost_bytes.load(Ordering::Relaxed)) {
                return io::ErrorKind::ConnectionReset.into();
            }
            if let Err(error) = changed(&mut control).await {
                return error;
            }
        }
    }

    async fn pump(&self, from: ReadHalf<'_>, to: WriteHalf<'_>, direction: Direction) -> io::Result<()> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::try_join!(self.take_in(from, sender, direction), self.hand_on(receiver, to, direction)).map(drop)
    }

    async fn take_in(
        &self,
        mut from: ReadHalf<'_>,
        queue: mpsc::Sender<Piece>,
        direction: Direction,
    ) -> io::Result<()> {
        let mut cutter = Cutter::new(self.shared.speech, direction);
        let mut buffer = vec![0; READ];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            for frame in cutter.push(&buffer[..length]) {
                if queue.send((Instant::now(), frame)).await.is_err() {
                    return Ok(());
                }
            }
        }
    }

    async fn hand_on(
        &self,
        mut queue: mpsc::Receiver<Piece>,
        mut to: WriteHalf<'_>,
        direction: Direction,
    ) -> io::Result<()> {
        let mut control = self.shared.control.subscribe();
        while let Some((arrived, frame)) = queue.recv().await {
            let subject = frame.subject.as_deref();
            subject.inspect(|subject| self.shared.count(direction, subject));
            match subject.and_then(|subject| self.shared.rules.take(direction, subject)) {
                Some(Action::Drop) => {
                    self.shared.dropped.send_modify(|dropped| *dropped += 1);
                    continue;
                }
                Some(Action::Halt) => {
                    self.shared.set(direction, Way::Hold);
                    self.shared.halts.send_modify(|halts| *halts += 1);
                }
                Some(Action::Lose { last: false }) => continue,
                Some(Action::Lose { last: true }) => {
                    self.shared.reset();
                    continue;
                }
                None => {}
            }
            if may_pass(&mut control, direction, arrived).await? {
                match direction {
                    Direction::ToClient => self.answered.store(true, Ordering::Relaxed),
                    Direction::ToServer if self.answered.swap(false, Ordering::Relaxed) => {
                        self.shared.turns.send_modify(|turns| *turns += 1);
                    }
                    Direction::ToServer => {}
                }
                to.write_all(&frame.bytes).await?;
            } else {
                self.lost_bytes.store(true, Ordering::Relaxed);
            }
        }
        // The end of the connection goes on as bytes do.
        if may_pass(&mut control, direction, Instant::now()).await? {
            to.shutdown().await?;
        }
        Ok(())
    }
}

/// Waits until what arrived at `arrived` may go on; `false` if it is to be thrown away.
async fn may_pass(control: &mut watch::Receiver<Control>, direction: Direction, arrived: Instant) -> io::Result<bool> {
    loop {
        let way = control.borrow_and_update().way(direction);
        match way {
            Way::Pass => return Ok(true),
            Way::Swallow => return Ok(false),
            Way::Hold => changed(control).await?,
            Way::Delay(delay) => tokio::select! {
                () = sleep_until(arrived + delay) => return Ok(true),
                result = changed(control) => result?,
            },
        }
    }
}

async fn changed(control: &mut watch::Receiver<Control>) -> io::Result<()> {
    control.changed().await.map_err(io::Error::other)
}
