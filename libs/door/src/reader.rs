//! The peer of one stream of HTTP/2 as the reader of a response: what it is sent goes piece by piece, and it must take
//! each piece, or the stream is reset.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::task::AtomicWaker;
use http::Response;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use tonic::Status;

use crate::unread::{Part, Unread};

/// Bytes that are handed to the transport at a time: the size of its frames, and what it keeps of a stream whose peer
/// takes no more.
pub const PIECE: usize = 16 * 1024;
tokio::task_local! {
    static READER: Arc<Reader>;
}

/// How the peer of a stream does with what it is sent.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// By when it must take what it was handed; none while there is nothing to take.
    deadline: Mutex<Option<Instant>>,
    gives_way: AtomicBool,
    task: AtomicWaker,
}

/// The peer took too long, or had to give way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenUp;

/// Runs a stream; [`bounded`] responses in it end it if its peer does not take them.
pub(crate) async fn run(stream: impl Future<Output = ()>) -> Result<(), GivenUp> {
    let reader = Arc::new(Reader::default());
    let mut stream = pin!(READER.scope(Arc::clone(&reader), stream));
    let mut alarm = None;
    std::future::poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        reader.poll_given_up(cx, &mut alarm).map(|()| Err(GivenUp))
    })
    .await
}

/// Hands out the response piece by piece. The peer must take each in `piece_time`, and all by `end` if there is one.
/// Without [`run`] around it nothing is changed.
pub(crate) fn bounded(
    response: Response<tonic::body::Body>,
    unread: &Unread,
    piece_time: Duration,
    end: Option<Instant>,
) -> Response<tonic::body::Body> {
    let Ok(reader) = READER.try_with(Arc::clone) else { return response };
    let unread = unread.clone();
    response.map(|body| {
        let pieces = Pieces { body, rest: Bytes::new(), part: None, reader, unread, piece_time, end };
        tonic::body::Body::new(pieces)
    })
}

impl Reader {
    /// Others need the room: its stream ends.
    pub(crate) fn give_way(&self) {
        self.gives_way.store(true, Ordering::Release);
        self.task.wake();
    }

    /// Whether it was told to give way.
    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Acquire)
    }

    fn must_take_by(&self, deadline: Option<Instant>) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    fn poll_given_up(&self, cx: &mut Context<'_>, alarm: &mut Option<Pin<Box<Sleep>>>) -> Poll<()> {
        self.task.register(cx.waker());
        if self.gives_way() {
            return Poll::Ready(());
        }
        let Some(deadline) = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) else {
            *alarm = None;
            return Poll::Pending;
        };
        let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if alarm.deadline() != deadline {
            alarm.as_mut().reset(deadline);
        }
        alarm.as_mut().poll(cx)
    }
}

/// A body in pieces.
struct Pieces {
    body: tonic::body::Body,
    /// What is not handed out yet of the last frame.
    rest: Bytes,
    part: Option<Part>,
    reader: Arc<Reader>,
    unread: Unread,
    piece_time: Duration,
    end: Option<Instant>,
}

impl Pieces {
    /// The next piece. Copied if it is not the last, so that it does not keep the whole.
    fn cut(&mut self) -> Bytes {
        if self.rest.len() <= PIECE {
            return std::mem::take(&mut self.rest);
        }
        let piece = Bytes::copy_from_slice(&self.rest[..PIECE]);
        self.rest.advance(PIECE);
        piece
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let me = &mut *self;
        // Asked for more, so what was handed out before has been taken.
        if me.rest.is_empty() {
            me.part = None;
            me.reader.must_take_by(None);
            let data = match ready!(Pin::new(&mut me.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame.into_data(),
                end => return Poll::Ready(end),
            };
            match data {
                Ok(data) => me.rest = data,
                Err(other) => return Poll::Ready(Some(Ok(other))),
            }
            me.part = Some(me.unread.wait(&me.reader, me.rest.len()));
        } else if let Some(part) = &mut me.part {
            part.progress();
        }
        let piece_end = Instant::now() + me.piece_time;
        me.reader.must_take_by(Some(me.end.map_or(piece_end, |end| end.min(piece_end))));
        Poll::Ready(Some(Ok(Frame::data(me.cut()))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt as _;
    use tonic::metadata::MetadataMap;

    use super::*;
    use crate::frame;

    const PIECE_TIME: Duration = Duration::from_secs(60);
    const ANSWER_TIME: Duration = Duration::from_secs(120);

    fn answer(bytes: usize) -> Response<tonic::body::Body> {
        frame::unary_response(Ok((vec![7; bytes].into(), MetadataMap::new())))
    }

    /// Takes a piece each time so long has passed, as a transport does for a slow peer.
    async fn read(response: Response<tonic::body::Body>, pause: Duration) {
        let mut body = response.into_body();
        while body.frame().await.is_some() {
            tokio::time::sleep(pause).await;
        }
    }

    fn unread() -> Unread {
        Unread::new(1024 * 1024)
    }

    #[tokio::test]
    async fn an_answer_is_the_same_in_pieces() {
        for bytes in [0, PIECE, 5 * PIECE + 3] {
            let whole = answer(bytes).into_body().collect().await.unwrap().to_bytes();
            let reading = async {
                let mut body = bounded(answer(bytes), &unread(), PIECE_TIME, None).into_body();
                let (mut all, mut trailers) = (Vec::new(), None);
                while let Some(frame) = body.frame().await {
                    match frame.unwrap().into_data() {
                        Ok(data) => {
                            assert!(data.len() <= PIECE);
                            all.extend(data);
                        }
                        Err(frame) => trailers = frame.into_trailers().ok(),
                    }
                }
                assert_eq!((all, trailers.unwrap()["grpc-status"].clone()), (whole.to_vec(), "0".parse().unwrap()));
            };
            assert_eq!(run(reading).await, Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_and_what_it_held_is_free() {
        let (unread, began) = (unread(), Instant::now());
        let stalled =
            run(async { read(bounded(answer(3 * PIECE), &unread, PIECE_TIME, None), Duration::from_secs(3600)).await });
        assert_eq!(stalled.await, Err(GivenUp));
        assert_eq!(began.elapsed(), PIECE_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_must_be_taken_whole_in_its_time_and_a_stream_may_be_slow_for_ever() {
        let slow = PIECE_TIME / 2;
        let long = 16 * PIECE;
        let began = Instant::now();
        let end = Some(began + ANSWER_TIME);
        assert_eq!(
            run(async { read(bounded(answer(long), &unread(), PIECE_TIME, end), slow).await }).await,
            Err(GivenUp)
        );
        assert_eq!(began.elapsed(), ANSWER_TIME);

        assert_eq!(run(async { read(bounded(answer(long), &unread(), PIECE_TIME, None), slow).await }).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_with_nothing_to_say_is_not_given_up() {
        let quiet = frame::stream_response(stream::once(async {
            tokio::time::sleep(PIECE_TIME * 10).await;
            Ok(Bytes::from_static(b"at last"))
        }));
        assert_eq!(
            run(async { read(bounded(quiet, &unread(), PIECE_TIME, None), Duration::ZERO).await }).await,
            Ok(())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_has_to_give_way_ends_at_once() {
        let unread = Unread::new(1024);
        let began = Instant::now();
        let stalled =
            run(async { read(bounded(answer(PIECE), &unread, PIECE_TIME, None), Duration::from_secs(3600)).await });
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            unread.wait(&Arc::default(), 1)
        };
        let (ended, _part) = tokio::join!(stalled, other);
        assert_eq!((ended, began.elapsed()), (Err(GivenUp), Duration::from_secs(1)));
    }
}
