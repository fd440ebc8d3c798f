//! The first bytes of a connection: which protocol it speaks, before anything is set up for it.
//!
//! A connection that sends nothing, or too slowly, must not be kept: neither the HTTP/2 keepalive nor a graceful stop
//! reaches a peer whose preface never came.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Reads until the protocol is certain. The stream that comes back yields those bytes again.
///
/// # Errors
///
/// The stream's own; `UnexpectedEof` if it ends before.
pub(crate) async fn read<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Protocol, Replayed<S>)> {
    let mut seen = BytesMut::with_capacity(HTTP2.len());
    loop {
        let protocol = if !HTTP2.starts_with(&seen[..seen.len().min(HTTP2.len())]) {
            Protocol::Http1
        } else if seen.len() >= HTTP2.len() {
            Protocol::Http2
        } else {
            if stream.read_buf(&mut seen).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            continue;
        };
        return Ok((protocol, Replayed { seen: seen.freeze(), stream }));
    }
}

/// A stream whose first bytes were looked at already.
#[derive(Debug)]
pub(crate) struct Replayed<S> {
    seen: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Replayed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.seen.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let length = self.seen.len().min(buffer.remaining());
        buffer.put_slice(&self.seen[..length]);
        self.seen.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replayed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn protocol_of(sent: &[u8]) -> (Protocol, Vec<u8>) {
        let (protocol, mut stream) = read(sent).await.unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        (protocol, rest)
    }

    #[tokio::test]
    async fn the_protocol_is_told_and_no_byte_is_lost() {
        let http2 = [HTTP2, b"frames"].concat();
        assert_eq!(protocol_of(&http2).await, (Protocol::Http2, http2));

        for http1 in [&b"GET /healthz HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/1.1\r\n\r\n", b"PUT"] {
            assert_eq!(protocol_of(http1).await, (Protocol::Http1, http1.to_vec()));
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_early_is_an_error() {
        for sent in [&b""[..], b"PRI * HT"] {
            assert_eq!(read(sent).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[tokio::test]
    async fn bytes_that_trickle_in_are_enough() {
        let (mut client, server) = tokio::io::duplex(1);
        let sending = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            client.write_all(HTTP2).await.unwrap();
            client
        });
        let (protocol, _stream) = read(server).await.unwrap();
        assert_eq!(protocol, Protocol::Http2);
        sending.await.unwrap();
    }
}
