//! The broker's protocol, as far as one must know it to see where a message begins and ends.

/// A whole operation of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The subject, if it is a message or a subscription.
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
        let (subject, payload) = head(&self.buffer[..line]);
        let length = line + payload.map_or(0, |payload| payload + 2);
        if self.buffer.len() < length {
            return None;
        }
        let rest = self.buffer.split_off(length);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        Some(Frame { subject, bytes })
    }
}

/// The subject of a message or a subscription, and the length of a message's payload: `MSG` and `HMSG` come from the
/// server, `PUB`, `HPUB` and `SUB` from clients.
fn head(line: &[u8]) -> (Option<String>, Option<usize>) {
    let words: Vec<&str> = std::str::from_utf8(line).unwrap_or_default().split_ascii_whitespace().collect();
    let &[verb, subject, .., last] = &words[..] else { return (None, None) };
    let is = |known: &str| verb.eq_ignore_ascii_case(known);
    match last.parse() {
        Ok(length) if ["MSG", "HMSG", "PUB", "HPUB"].into_iter().any(is) => (Some(subject.to_owned()), Some(length)),
        _ if is("SUB") => (Some(subject.to_owned()), None),
        _ => (None, None),
    }
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
        let other = prop::sample::select(vec!["PING\r\n", "+OK\r\n", "INFO {\"a\": 1}\r\n", "UNSUB 3\r\n"])
            .prop_map(|line| (None, line.as_bytes().to_vec()));
        let subscription = prop::sample::select(vec!["SUB a.b 3\r\n", "SUB a.b group 3\r\n"])
            .prop_map(|line| (Some("a.b".to_owned()), line.as_bytes().to_vec()));
        prop_oneof![message, other, subscription]
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
