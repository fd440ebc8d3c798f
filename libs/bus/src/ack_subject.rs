//! The subject on which a delivery is acked; it tells how often and from where the message was delivered.

/// What the subject tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// 1 at the first delivery.
    pub(crate) attempt: u64,
    /// Sequence of the message in its stream.
    pub(crate) sequence: u64,
    /// Messages that wait behind it.
    pub(crate) pending: u64,
}

impl Delivered {
    /// Reads `$JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<consumer sequence>.<time>.<pending>`, or the newer form
    /// with domain and account before the stream.
    pub(crate) fn parse(subject: &str) -> Option<Self> {
        let tokens: Vec<&str> = subject.strip_prefix("$JS.ACK.")?.split('.').collect();
        let numbers = match tokens.len() {
            7 => &tokens[2..],
            9.. => &tokens[4..],
            _ => return None,
        };
        let number = |index: usize| numbers.get(index)?.parse().ok();
        Some(Self { attempt: number(0)?, sequence: number(1)?, pending: number(4)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read() {
        let expected = Some(Delivered { attempt: 3, sequence: 100, pending: 42 });
        assert_eq!(Delivered::parse("$JS.ACK.S.c.3.100.7.1790230470084404000.42"), expected);
        assert_eq!(Delivered::parse("$JS.ACK._.hash.S.c.3.100.7.1790230470084404000.42"), expected);
        assert_eq!(Delivered::parse("$JS.ACK._.hash.S.c.3.100.7.1790230470084404000.42.x"), expected);
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in ["", "$JS.ACK.", "$JS.ACK.S.c.x.1.1.1.1", "$JS.ACK.S.c.1.1.1", "roadstead.command.X"] {
            assert_eq!(Delivered::parse(bad), None, "{bad}");
        }
    }
}
