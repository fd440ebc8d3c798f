//! A client of HTTP/2 by hand: any frame, at any time, in any order. It knows no rules, so it can break them all.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GO_AWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

/// The last frame of its side of a stream.
pub const END_STREAM: u8 = 1;
/// The answer to settings or a ping.
pub const ACK: u8 = 1;
/// The last frame of a head.
pub const END_HEADERS: u8 = 4;

/// The setting with the window that streams begin with.
pub const INITIAL_WINDOW: u16 = 4;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER: usize = 9;

/// A frame that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The code of an error, of a reset or the end of a connection.
    #[must_use]
    pub fn error(&self) -> Option<u32> {
        let at = match self.kind {
            RESET => 0,
            GO_AWAY => 4,
            _ => return None,
        };
        Some(u32::from_be_bytes(self.payload.get(at..at + 4)?.try_into().ok()?))
    }
}

/// A frame's bytes.
#[must_use]
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A window's frame.
#[must_use]
pub fn window_update(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// The head of a call of gRPC, with further headers.
#[must_use]
pub fn head(path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let own = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "door"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    own.iter().chain(headers).flat_map(|(name, value)| header(name, value)).collect()
}

/// A header as a literal that no table remembers.
#[must_use]
pub fn header(name: &str, value: &str) -> Vec<u8> {
    let mut literal = vec![0];
    for text in [name, value] {
        length(text.len(), &mut literal);
        literal.extend(text.as_bytes());
    }
    literal
}

/// A length that begins in seven bits.
fn length(mut length: usize, to: &mut Vec<u8>) {
    const FULL: usize = 127;
    if length < FULL {
        return to.push(length as u8);
    }
    to.push(FULL as u8);
    length -= FULL;
    while length >= 128 {
        to.push((length % 128) as u8 | 128);
        length /= 128;
    }
    to.push(length as u8);
}

/// All frames of a unary call on stream `stream`, or of the opening of a stream with one message.
#[must_use]
pub fn call(stream: u32, path: &str, headers: &[(&str, &str)], message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let message = [&[0], &length[..], message].concat();
    [frame(HEADERS, END_HEADERS, stream, &head(path, headers)), frame(DATA, END_STREAM, stream, &message)].concat()
}

/// A connection. Both sides can be used at a time.
#[derive(Debug)]
pub struct Connection {
    pub sends: Sends,
    pub hears: Hears,
}

/// What goes out.
#[derive(Debug)]
pub struct Sends(OwnedWriteHalf);

/// What comes in.
#[derive(Debug)]
pub struct Hears(OwnedReadHalf);

impl Connection {
    /// Connects and says these settings.
    pub async fn open(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let (reads, writes) = socket.into_split();
        let mut connection = Self { sends: Sends(writes), hears: Hears(reads) };
        let settings: Vec<u8> = settings
            .iter()
            .flat_map(|(setting, value)| [&setting.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        connection.sends.bytes(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()).await.unwrap();
        connection
    }

    /// The next frame, as [`Hears::next`]; whoever asks whether this side is there is answered.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            let next = self.hears.next().await?;
            if next.kind != PING || next.flags & ACK != 0 {
                return Some(next);
            }
            self.sends.bytes(&frame(PING, ACK, 0, &next.payload)).await.ok()?;
        }
    }
}

impl Sends {
    /// Sends bytes.
    ///
    /// # Errors
    /// The connection is over.
    pub async fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Sends these bytes again and again, `count` times; ends early if the connection does.
    pub async fn flood(mut self, count: u32, bytes: impl Fn(u32) -> Vec<u8>) -> Self {
        for number in 0..count {
            if self.bytes(&bytes(number)).await.is_err() {
                break;
            }
        }
        self
    }
}

impl Hears {
    /// The next frame; none at the end of the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        let mut header = [0; HEADER];
        self.0.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let stream = u32::from_be_bytes([header[5] & 0x7f, header[6], header[7], header[8]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind: header[3], flags: header[4], stream, payload })
    }

    /// Waits for a frame of this kind; none if the connection ends before.
    pub async fn until(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let next = self.next().await?;
            if next.kind == kind {
                return Some(next);
            }
        }
    }

    /// Reads on to the end of the connection.
    pub async fn end(mut self) {
        while self.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_written_as_the_protocol_has_them() {
        let written = |number| {
            let mut bytes = Vec::new();
            length(number, &mut bytes);
            bytes
        };
        assert_eq!(written(10), [10]);
        assert_eq!(written(126), [126]);
        assert_eq!(written(127), [127, 0]);
        assert_eq!(written(127 + 1337), [127, 0b1011_1001, 0b0000_1010]);
    }

    #[test]
    fn a_frame_is_its_length_kind_flags_stream_and_payload() {
        assert_eq!(frame(DATA, END_STREAM, 3, b"ab"), [0, 0, 2, 0, 1, 0, 0, 0, 3, b'a', b'b']);
    }
}
