//! A connection whose peer must take what it is sent.
//!
//! A keepalive alone does not end one: its last word is written too, and a peer that takes nothing leaves it waiting
//! for room in a full buffer, for as long as the system keeps trying.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream on which writing fails once nothing of it was taken for a while.
#[derive(Debug)]
pub(crate) struct Stalled<S> {
    stream: S,
    patience: Duration,
    /// Set while there is something to write and no room for it.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalled<S> {
    pub(crate) const fn after(patience: Duration, stream: S) -> Self {
        Self { stream, patience, alarm: None }
    }

    fn progress(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.alarm = None;
            return written;
        }
        let patience = self.patience;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(alarm.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.progress(cx, written)
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
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn writing_fails_when_nothing_was_taken_for_a_while() {
        let (near, _far) = tokio::io::duplex(8);
        let began = Instant::now();
        let failed = Stalled::after(PATIENCE, near).write_all(&[0; 9]).await.unwrap_err();
        assert_eq!((failed.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_waited_for_as_long_as_it_takes_something() {
        let (near, mut far) = tokio::io::duplex(1);
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            while let Ok(byte) = far.read_u8().await {
                read.push(byte);
                tokio::time::sleep(PATIENCE / 2).await;
            }
            read
        });
        Stalled::after(PATIENCE, near).write_all(b"a slow one").await.unwrap();
        assert_eq!(reading.await.unwrap(), b"a slow one");
    }
}
