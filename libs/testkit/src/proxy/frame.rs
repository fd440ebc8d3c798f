//! The broker's protocol, as far as one must know it to see where a message begins and ends.

/// A whole operation of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The subject, if it is a message.
    pub subject: Option<String>,
    /// All its bytes.
    pub bytes: Vec<u8>,
}

/// Cuts a stream of bytes into frames. Put together again they are the stream.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
}

impl Framer {
    /// Takes bytes in and returns the frames that are whole now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        self.buffer.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(frame) = self.next() {
            frames.push(frame);
        }
        frames
    }

    fn next(&mut self) -> Option<Frame> {
        let line = self.buffer.windows(2).position(|pair| pair == b"\r\n")? + 2;
        let head = message_head(&self.buffer[..line]);
        let length = line + head.as_ref().map_or(0, |(_, payload)| payload + 2);
        if self.buffer.len() < length {
            return None;
        }
        let rest = self.buffer.split_off(length);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        Some(Frame { subject: head.map(|(subject, _)| subject), bytes })
    }
}

/// Subject and length of a message's payload: `MSG` and `HMSG` come from the server, `PUB` and `HPUB` from clients.
fn message_head(line: &[u8]) -> Option<(String, usize)> {
    let words: Vec<&str> = std::str::from_utf8(line).ok()?.split_ascii_whitespace().collect();
    let (verb, subject, length) = (words.first()?, words.get(1)?, words.last()?);
    let is_message = ["MSG", "HMSG", "PUB", "HPUB"].iter().any(|known| verb.eq_ignore_ascii_case(known));
    Some((is_message.then(|| (*subject).to_owned())?, length.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;

    fn operation() -> impl Strategy<Value = (Option<String>, Vec<u8>)> {
        let subject = "[a-z]{1,5}(\\.[a-z0-9-]{1,5}){0,3}";
        let message = (subject, vec(any::<u8>(), 0..40), 0..3_usize).prop_map(|(subject, payload, kind)| {
            let length = payload.len();
            let head = match kind {
                0 => format!("MSG {subject} 7 {length}\r\n"),
                1 => format!("HMSG {subject} 7 reply.to 0 {length}\r\n"),
                _ => format!("PUB {subject} {length}\r\n"),
            };
            (Some(subject), [head.as_bytes(), &payload, b"\r\n"].concat())
        });
        let other = prop::sample::select(vec!["PING\r\n", "+OK\r\n", "INFO {\"a\": 1}\r\n", "SUB a.b 3\r\n"])
            .prop_map(|line| (None, line.as_bytes().to_vec()));
        prop_oneof![message, other]
    }

    proptest! {
        #[test]
        fn any_stream_in_any_pieces_comes_out_as_its_operations(
            operations in vec(operation(), 0..20),
            cuts in vec(any::<Index>(), 0..20),
        ) {
            let stream: Vec<u8> = operations.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut framer = Framer::default();
            let frames: Vec<Frame> = cuts.windows(2).flat_map(|cut| framer.push(&stream[cut[0]..cut[1]])).collect();
            let expected: Vec<Frame> =
                operations.into_iter().map(|(subject, bytes)| Frame { subject, bytes }).collect();
            prop_assert_eq!(frames, expected);
        }
    }
}
