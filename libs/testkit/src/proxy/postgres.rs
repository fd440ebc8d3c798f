//! Postgres's protocol, as far as one must know it to see where a message begins and ends.

use super::{Direction, frame::Frame};

/// Ask for encryption before the first message; answered by a single byte.
const REQUESTS_OF_ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];

/// Cuts a stream of bytes into messages; the subject of each is its type, one letter. Put together again they are the
/// stream.
#[derive(Debug)]
pub(crate) struct Messages {
    direction: Direction,
    /// Before the first message with a type.
    begins: bool,
    buffer: Vec<u8>,
}

impl Messages {
    pub(crate) fn new(direction: Direction) -> Self {
        Self { direction, begins: true, buffer: Vec::new() }
    }

    /// Takes bytes in and returns the messages that are whole now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.buffer.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            frames.push(frame);
        }
        frames
    }

    fn next(&mut self) -> Option<Frame> {
        let first = *self.buffer.first()?;
        if self.begins {
            return match self.direction {
                Direction::ToServer => {
                    let (length, code) = (self.number(0)?, self.number(4)?);
                    let frame = self.cut(length, None)?;
                    self.begins = REQUESTS_OF_ENCRYPTION.contains(&code);
                    Some(frame)
                }
                Direction::ToClient if b"NS".contains(&first) => self.cut(1, None),
                Direction::ToClient => {
                    self.begins = false;
                    self.next()
                }
            };
        }
        let length = self.number(1)?.checked_add(1)?;
        self.cut(length, Some(char::from(first).to_string()))
    }

    fn number(&self, at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(self.buffer.get(at..at + 4)?.try_into().ok()?))
    }

    fn cut(&mut self, length: u32, subject: Option<String>) -> Option<Frame> {
        let length = usize::try_from(length).ok()?;
        if self.buffer.len() < length {
            return None;
        }
        let rest = self.buffer.split_off(length);
        Some(Frame { subject, bytes: std::mem::replace(&mut self.buffer, rest) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[kind], length.as_slice(), body].concat()
    }

    fn types(direction: Direction, stream: &[u8]) -> Vec<Option<String>> {
        let mut messages = Messages::new(direction);
        let frames = stream.iter().flat_map(|byte| messages.push(&[*byte])).collect::<Vec<_>>();
        assert_eq!(frames.iter().flat_map(|frame| frame.bytes.clone()).collect::<Vec<_>>(), stream);
        frames.into_iter().map(|frame| frame.subject).collect()
    }

    #[test]
    fn both_ways_come_out_message_by_message_however_a_connection_begins() {
        let start = [12_u32.to_be_bytes(), 196_608_u32.to_be_bytes(), *b"user"].concat();
        let encryption = [8_u32.to_be_bytes(), REQUESTS_OF_ENCRYPTION[0].to_be_bytes()].concat();
        let rest = [message(b'P', b"select"), message(b'S', b"")].concat();
        let named = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
        let plain = types(Direction::ToServer, &[start.clone(), rest.clone()].concat());
        assert_eq!(plain, [vec![None], named(&["P", "S"])].concat());
        let asked = types(Direction::ToServer, &[encryption, start, rest].concat());
        assert_eq!(asked, [vec![None, None], named(&["P", "S"])].concat());
        let answers = [message(b'R', b"\0\0\0\0"), message(b'Z', b"I"), message(b'N', b"notice")].concat();
        assert_eq!(types(Direction::ToClient, &answers), named(&["R", "Z", "N"]));
        let refused = types(Direction::ToClient, &[b"N".to_vec(), answers].concat());
        assert_eq!(refused, [vec![None], named(&["R", "Z", "N"])].concat());
    }
}
