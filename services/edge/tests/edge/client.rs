//! A client that can also send what no honest client would.

use std::net::SocketAddr;

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::method::Method;
use tonic::metadata::MetadataMap;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tower::{Service as _, ServiceExt as _};

pub(crate) struct Client {
    channel: Channel,
    token: String,
}

/// Adds the token to each call.
#[derive(Clone)]
pub(crate) struct Bearer(String);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("authorization", format!("Bearer {}", self.0).parse().unwrap());
        Ok(request)
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr, token: &str) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { channel, token: token.to_owned() }
    }

    /// One that takes what it has not read yet only in small portions.
    pub(crate) async fn narrow(address: SocketAddr, token: &str) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.initial_stream_window_size(2048).connect().await.unwrap();
        Self { channel, token: token.to_owned() }
    }

    /// The generated client.
    pub(crate) fn api(&self) -> OpenShellClient<InterceptedService<Channel, Bearer>> {
        OpenShellClient::with_interceptor(self.channel.clone(), Bearer(self.token.clone()))
    }

    /// Calls a unary method with these bytes.
    pub(crate) async fn send(&self, method: Method, message: impl Into<Bytes>) -> Result<(Bytes, MetadataMap), Status> {
        self.send_with(method, &[&format!("Bearer {}", self.token)], message).await
    }

    /// Calls any method with these `authorization` headers.
    pub(crate) async fn send_with(
        &self,
        method: Method,
        authorization: &[&str],
        message: impl Into<Bytes>,
    ) -> Result<(Bytes, MetadataMap), Status> {
        let message = message.into();
        let mut body = BytesMut::new();
        body.put_u8(0);
        body.put_u32(message.len().try_into().unwrap());
        body.extend_from_slice(&message);
        let mut request = http::Request::post(format!("http://edge{}", method.full_path()))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for value in authorization {
            request = request.header("authorization", *value);
        }
        let request = request.body(tonic::body::Body::new(Full::new(body.freeze()))).unwrap();
        let response = self.channel.clone().ready().await.unwrap().call(request).await.unwrap();
        let headers = response.headers().clone();
        if let Some(status) = Status::from_header_map(&headers) {
            return Err(status);
        }
        let collected = response.into_body().collect().await?;
        let status = Status::from_header_map(collected.trailers().unwrap()).unwrap();
        match status.code() {
            tonic::Code::Ok => Ok((collected.to_bytes().slice(5..), MetadataMap::from_headers(headers))),
            _ => Err(status),
        }
    }
}

/// Encodes a message.
pub(crate) fn bytes(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
