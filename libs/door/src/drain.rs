//! The end of open streams when the process stops: each is told to come back, not all at once.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::{Body, Frame};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use crate::frame;
use crate::status::stopping;

/// The ends of streams are spread over this time, so that their clients do not return in one wave.
pub const SPREAD: Duration = Duration::from_secs(2);

/// Waits until the process drains, and then for this stream's turn to end.
pub async fn turn(drain: &CancellationToken) {
    drain.cancelled().await;
    tokio::time::sleep(SPREAD.mul_f64(rand::random())).await;
}

/// Lets the body of a stream end with `UNAVAILABLE` once the process drains, or with `DEADLINE_EXCEEDED` when the
/// client's deadline is past.
#[must_use]
pub fn until(
    response: Response<tonic::body::Body>,
    drain: CancellationToken,
    deadline: Option<Instant>,
) -> Response<tonic::body::Body> {
    response.map(|body| {
        tonic::body::Body::new(Until {
            body: Some(body),
            drain: Box::pin(drain.cancelled_owned()),
            end: deadline.map(|at| (Box::pin(tokio::time::sleep_until(at)), End::Deadline)),
        })
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Deadline,
    Drain,
}

struct Until {
    /// None after the last word.
    body: Option<tonic::body::Body>,
    drain: Pin<Box<WaitForCancellationFutureOwned>>,
    end: Option<(Pin<Box<Sleep>>, End)>,
}

impl Until {
    /// The status with which the stream must end now.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let draining = matches!(self.end, Some((_, End::Drain)));
        if !draining && self.drain.as_mut().poll(cx).is_ready() {
            let after = SPREAD.mul_f64(rand::random());
            self.end = Some((Box::pin(tokio::time::sleep(after)), End::Drain));
        }
        let Some((sleep, end)) = &mut self.end else { return Poll::Pending };
        ready!(sleep.as_mut().poll(cx));
        Poll::Ready(match end {
            End::Deadline => Status::deadline_exceeded("the deadline of the stream has passed"),
            End::Drain => stopping(),
        })
    }
}

impl Body for Until {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.body.is_none() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(status) = self.poll_end(cx) {
            self.body = None;
            return Poll::Ready(Some(Ok(Frame::trailers(frame::trailers(&status)))));
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    async fn last_word(response: Response<tonic::body::Body>) -> String {
        let trailers = response.into_body().collect().await.unwrap().trailers().cloned().unwrap();
        trailers["grpc-status"].to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_stream_ends_unavailable_within_the_spread() {
        let drain = CancellationToken::new();
        let response = until(frame::stream_response(stream::pending()), drain.clone(), None);
        let ended = tokio::spawn(last_word(response));
        drain.cancel();
        let began = Instant::now();
        assert_eq!(ended.await.unwrap(), "14");
        assert!(began.elapsed() <= SPREAD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_a_stream_and_an_ended_stream_keeps_its_own_last_word() {
        let deadline = Instant::now() + Duration::from_secs(5);
        let open = until(frame::stream_response(stream::pending()), CancellationToken::new(), Some(deadline));
        assert_eq!(last_word(open).await, "4");

        let ended = until(frame::stream_response(stream::empty()), CancellationToken::new(), None);
        assert_eq!(last_word(ended).await, "0");
    }
}
