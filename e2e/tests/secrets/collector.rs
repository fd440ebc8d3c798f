//! Takes in the traces that processes export.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use roadstead_e2e::raw::AsTheyAre;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// Everything that was exported so far, as it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<u8>>>);

impl Collector {
    /// Starts one; its address for exporters.
    pub(crate) fn start() -> (Self, String) {
        let collector = Self::default();
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = incoming.local_addr().unwrap();
        tokio::spawn(Server::builder().add_service(collector.clone()).serve_with_incoming(incoming));
        (collector, format!("http://{address}"))
    }

    pub(crate) fn exported(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let collector = self.clone();
        Box::pin(async move { Ok(Grpc::new(AsTheyAre).unary(collector, request).await) })
    }
}

impl UnaryService<Bytes> for Collector {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.0.lock().unwrap().extend(request.into_inner());
        ready(Ok(Response::new(Bytes::new())))
    }
}
