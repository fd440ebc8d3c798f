//! Messages of gRPC on HTTP/2 bodies, as bytes: what a client sent is passed on exactly as it came, since fields that
//! this program does not know count in the fingerprint of a request.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use tonic::Status;
use tonic::metadata::MetadataMap;

/// Flag and length before each message.
const HEADER: usize = 5;
/// Bytes of a refused request that are read for nothing.
const DISCARDED: usize = 64 * 1024;
/// How long its end is waited for.
const SOON: Duration = Duration::from_secs(1);
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Reads the one message of a unary request.
///
/// # Errors
///
/// `RESOURCE_EXHAUSTED` with the limit in bytes if the message is larger, before it is read; `UNIMPLEMENTED` if it is
/// compressed; `INVALID_ARGUMENT` if there is not exactly one; `CANCELLED` if the client went away. What is left of a
/// refused request is discarded.
pub async fn read_message<B>(body: B, limit: usize) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes>,
{
    let mut body = std::pin::pin!(body);
    let message = only_message(body.as_mut(), limit).await;
    if message.is_err() {
        discard(body).await;
    }
    message
}

async fn only_message<B>(mut body: Pin<&mut B>, limit: usize) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes>,
{
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Status::cancelled("the request ended early"))?;
        let Ok(data) = frame.into_data() else { continue };
        if read.is_empty() {
            read = BytesMut::from(data);
        } else {
            read.extend_from_slice(&data);
        }
        if announced(&read, limit)?.is_some_and(|length| read.len() > HEADER + length) {
            return Err(not_one_message());
        }
    }
    if announced(&read, limit)?.is_none_or(|length| read.len() < HEADER + length) {
        return Err(not_one_message());
    }
    read.advance(HEADER);
    Ok(read.freeze())
}

/// Reads a request for nothing, if it is small and comes soon. An answer before a request's end resets its stream, and
/// a connection is closed after many resets, though it may carry the calls of others too.
pub async fn discard<B>(body: B)
where
    B: Body<Data = Bytes>,
{
    let reading = async {
        let mut body = std::pin::pin!(body);
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    if tokio::time::timeout(SOON, reading).await.is_err() {
        tracing::debug!("a request that was refused does not end");
    }
}

/// The length of the message that `read` begins with, once its header is there.
fn announced(read: &[u8], limit: usize) -> Result<Option<usize>, Status> {
    let Some(mut header) = read.get(..HEADER) else { return Ok(None) };
    if header.get_u8() != 0 {
        return Err(Status::unimplemented("compressed messages are not supported"));
    }
    let length = usize::try_from(header.get_u32()).unwrap_or(usize::MAX);
    if length > limit {
        return Err(Status::resource_exhausted(format!("the message has {length} bytes; the limit is {limit}")));
    }
    Ok(Some(length))
}

fn not_one_message() -> Status {
    Status::invalid_argument("a unary request is one message")
}

/// A message with its header.
fn framed(message: &Bytes) -> Result<Bytes, Status> {
    let length = u32::try_from(message.len()).map_err(|_| Status::internal("the response is too large"))?;
    let mut frame = BytesMut::with_capacity(HEADER + message.len());
    frame.put_u8(0);
    frame.put_u32(length);
    frame.extend_from_slice(message);
    Ok(frame.freeze())
}

/// The response of a unary call.
#[must_use]
pub fn unary_response(outcome: Result<(Bytes, MetadataMap), Status>) -> Response<tonic::body::Body> {
    let framed = outcome.and_then(|(message, metadata)| Ok((framed(&message)?, metadata)));
    let (message, metadata) = match framed {
        Ok(reply) => reply,
        Err(status) => return status.into_http(),
    };
    let trailers = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(message).with_trailers(std::future::ready(Some(Ok(trailers))));
    response(tonic::body::Body::new(body), metadata)
}

/// The response of a call that streams: a message for each item; an error, or the end, is the last word.
///
/// One message is taken from `messages` ahead of the client, no more.
#[must_use]
pub fn stream_response<S>(messages: S) -> Response<tonic::body::Body>
where
    S: Stream<Item = Result<Bytes, Status>> + Send + 'static,
{
    response(tonic::body::Body::new(Messages { messages: Some(Box::pin(messages)) }), MetadataMap::new())
}

fn response(body: tonic::body::Body, metadata: MetadataMap) -> Response<tonic::body::Body> {
    let mut response = Response::new(body);
    *response.headers_mut() = metadata.into_headers();
    response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
    response
}

/// The trailers that carry a status.
pub(crate) fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    if status.add_header(&mut trailers).is_err() {
        trailers.clear();
        trailers.insert(GRPC_STATUS, HeaderValue::from(tonic::Code::Internal as i32));
    }
    trailers
}

/// The body of a streaming response.
struct Messages<S> {
    /// None after the last word.
    messages: Option<Pin<Box<S>>>,
}

impl<S: Stream<Item = Result<Bytes, Status>>> Body for Messages<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        let next = ready!(messages.as_mut().poll_next(cx));
        let last_word = match next.map(|item| item.and_then(|message| framed(&message))) {
            Some(Ok(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.messages = None;
        Poll::Ready(Some(Ok(Frame::trailers(trailers(&last_word)))))
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use proptest::prelude::*;
    use tonic::Code;

    use super::*;

    const LIMIT: usize = 64;

    fn read(frames: Vec<Bytes>) -> Result<Bytes, Status> {
        let frames = frames.into_iter().map(|data| Ok::<_, Infallible>(Frame::data(data)));
        let body = StreamBody::new(stream::iter(frames));
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(read_message(body, LIMIT))
    }

    fn code_of(frames: &[&[u8]]) -> Code {
        read(frames.iter().map(|frame| Bytes::copy_from_slice(frame)).collect()).unwrap_err().code()
    }

    proptest! {
        #[test]
        fn a_message_is_read_however_it_is_cut(
            message in proptest::collection::vec(any::<u8>(), 0..=LIMIT),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let message = Bytes::from(message);
            let mut rest = framed(&message).unwrap();
            let mut frames = Vec::new();
            for cut in cuts {
                frames.push(rest.split_to(cut.index(rest.len() + 1)));
            }
            frames.push(rest);
            prop_assert_eq!(read(frames).unwrap(), message);
        }

        #[test]
        fn other_bytes_never_panic(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..5)) {
            let _outcome = read(frames.into_iter().map(Bytes::from).collect());
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_with_the_limit_before_it_is_read() {
        let refusal = read(vec![Bytes::from_static(&[0, 0, 0, 0, 65])]).unwrap_err();
        assert_eq!(refusal.code(), Code::ResourceExhausted);
        assert_eq!(refusal.message(), "the message has 65 bytes; the limit is 64");
    }

    #[test]
    fn what_is_not_one_plain_message_is_refused() {
        assert_eq!(code_of(&[]), Code::InvalidArgument);
        assert_eq!(code_of(&[&[0, 0, 0]]), Code::InvalidArgument);
        assert_eq!(code_of(&[&[0, 0, 0, 0, 2, 7]]), Code::InvalidArgument);
        assert_eq!(code_of(&[&[0, 0, 0, 0, 1, 7, 7]]), Code::InvalidArgument);
        assert_eq!(code_of(&[&[0, 0, 0, 0, 0], &[0, 0, 0, 0, 0]]), Code::InvalidArgument);
        assert_eq!(code_of(&[&[1, 0, 0, 0, 0]]), Code::Unimplemented);
    }

    async fn frames_of(response: Response<tonic::body::Body>) -> (Vec<Bytes>, HeaderMap) {
        let collected = response.into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        (vec![collected.to_bytes()], trailers)
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_error_or_with_ok() {
        let one = || stream::iter([Ok(Bytes::from_static(b"a"))]);
        let (bytes, trailers) = frames_of(stream_response(one())).await;
        assert_eq!(bytes, [Bytes::from_static(b"\0\0\0\0\x01a")]);
        assert_eq!(trailers["grpc-status"], "0");

        use futures_util::StreamExt as _;
        let failing = one().chain(stream::iter([Err(Status::unavailable("later")), Ok(Bytes::new())]));
        let (bytes, trailers) = frames_of(stream_response(failing)).await;
        assert_eq!(bytes, [Bytes::from_static(b"\0\0\0\0\x01a")], "nothing follows the error");
        assert_eq!(
            (&trailers["grpc-status"], &trailers["grpc-message"]),
            (&"14".parse().unwrap(), &"later".parse().unwrap())
        );
    }

    #[tokio::test]
    async fn a_unary_response_has_its_status_in_the_trailers_and_a_refusal_in_the_headers() {
        let mut metadata = MetadataMap::new();
        metadata.insert("openshell-replayed", "true".parse().unwrap());
        let response = unary_response(Ok((Bytes::from_static(b"x"), metadata)));
        assert_eq!(response.headers()["openshell-replayed"], "true");
        assert_eq!(frames_of(response).await.1["grpc-status"], "0");

        let refusal = unary_response(Err(Status::not_found("gone")));
        assert_eq!(refusal.headers()["grpc-status"], "5");
    }
}
