//! gRPC without types: any bytes to any method, with any headers.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use futures_util::{StreamExt as _, stream};
use roadstead_proto::method::Method;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};

/// A call that is not answered by then is a fault of its own.
const PATIENCE: Duration = Duration::from_secs(30);
/// Calls under way at a time, where many are made.
const AT_A_TIME: usize = 16;

/// A connection to a door.
#[derive(Clone, Debug)]
pub struct Raw(Channel);

/// How a call ended, or that it went well up to its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: Code,
    pub message: String,
    /// `google.rpc.Status` as it came.
    pub details: Vec<u8>,
    /// The first message of a call that went well.
    pub first: Option<Bytes>,
}

/// A stream that is open on both sides.
#[derive(Debug)]
pub struct Open {
    pub requests: mpsc::Sender<Bytes>,
    pub responses: Streaming<Bytes>,
}

impl Answer {
    fn of(result: Result<Option<Bytes>, Status>) -> Self {
        match result {
            Ok(first) => Self { code: Code::Ok, message: String::new(), details: Vec::new(), first },
            Err(status) => Self::refused(&status),
        }
    }

    /// Of a call that was refused.
    #[must_use]
    pub fn refused(status: &Status) -> Self {
        let (code, message) = (status.code(), status.message().to_owned());
        Self { code, message, details: status.details().to_vec(), first: None }
    }
}

impl Raw {
    /// Connects to a door's address.
    pub async fn open(url: &str) -> Self {
        Self(Endpoint::from_shared(url.to_owned()).unwrap().connect().await.unwrap())
    }

    /// Shares a connection with others.
    #[must_use]
    pub const fn over(channel: Channel) -> Self {
        Self(channel)
    }

    /// Calls a method with one message, as all kinds of methods can be called. `authorization` holds the values of that
    /// header, of which there may be any number.
    pub async fn call(&self, method: Method, authorization: &[String], message: Vec<u8>) -> Answer {
        self.call_path(method.full_path(), authorization, message).await
    }

    /// Calls whatever that path may denote, with one message.
    pub async fn call_path(&self, path: &str, authorization: &[String], message: Vec<u8>) -> Answer {
        let calling = async {
            let requests = stream::once(std::future::ready(Bytes::from(message)));
            let mut responses = self.start(path, authorization, requests).await?;
            responses.message().await
        };
        let answered = tokio::time::timeout(PATIENCE, calling).await;
        Answer::of(answered.unwrap_or_else(|_| panic!("{path} was not answered within {PATIENCE:?}")))
    }

    /// Opens a stream with its first message.
    ///
    /// # Errors
    /// How it was refused, if it was at once.
    pub async fn stream(&self, method: Method, authorization: &[String], first: Vec<u8>) -> Result<Open, Status> {
        let (requests, queued) = mpsc::channel(8);
        requests.send(Bytes::from(first)).await.unwrap();
        let responses = self.start(method.full_path(), authorization, ReceiverStream::new(queued)).await?;
        Ok(Open { requests, responses })
    }

    async fn start(
        &self,
        path: &str,
        authorization: &[String],
        requests: impl futures_util::Stream<Item = Bytes> + Send + 'static,
    ) -> Result<Streaming<Bytes>, Status> {
        let mut request = Request::new(requests);
        for value in authorization {
            request.metadata_mut().append("authorization", AsciiMetadataValue::try_from(value.as_str()).unwrap());
        }
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::try_from(path).unwrap();
        Ok(grpc.streaming(request, path, AsTheyAre).await?.into_inner())
    }
}

/// The value of the header for a bearer token.
#[must_use]
pub fn bearer(token: &str) -> Vec<String> {
    vec![format!("Bearer {token}")]
}

/// Makes many calls, a few at a time, and collects what `judge` says against their answers.
pub async fn judge_all<C, F>(cases: impl IntoIterator<Item = C>, judge: impl Fn(C) -> F) -> Vec<String>
where
    F: Future<Output = Option<String>>,
{
    stream::iter(cases).map(judge).buffer_unordered(AT_A_TIME).filter_map(std::future::ready).collect().await
}

/// Bytes on the wire are bytes in the program.
#[derive(Clone, Copy, Debug)]
pub struct AsTheyAre;

impl Codec for AsTheyAre {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for AsTheyAre {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for AsTheyAre {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
