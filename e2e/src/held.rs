//! A session, held by hand.

use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::supervisor_message::Payload;
use roadstead_proto::api::v1::{GatewayMessage, SupervisorHello, SupervisorMessage};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};
use uuid::Uuid;

/// Bytes that the other side may send and this one has not read. The smallest that HTTP/2 begins with.
const UNREAD: u32 = 65_535;

/// An open session. Nobody reads, answers or beats but the test.
#[derive(Debug)]
pub struct Held {
    pub to_bridge: mpsc::Sender<SupervisorMessage>,
    pub from_bridge: Streaming<GatewayMessage>,
    pub session_id: String,
    /// The id of the update that came with the acceptance.
    pub first_update: String,
}

impl Held {
    /// Opens one.
    ///
    /// # Errors
    /// Why it was not accepted.
    pub async fn open(
        bridge: &str,
        token: &str,
        sandbox_id: &str,
        instance: Uuid,
        connection_epoch: u64,
    ) -> Result<Self, Status> {
        Self::open_narrow(bridge, token, sandbox_id, instance, connection_epoch, UNREAD).await
    }

    /// Opens one, to which the other side may send only so many bytes that are not read.
    ///
    /// # Errors
    /// Why it was not accepted.
    pub async fn open_narrow(
        bridge: &str,
        token: &str,
        sandbox_id: &str,
        instance: Uuid,
        connection_epoch: u64,
        unread: u32,
    ) -> Result<Self, Status> {
        let (to_bridge, messages) = mpsc::channel(8);
        let hello = SupervisorHello {
            sandbox_id: sandbox_id.to_owned(),
            instance_id: instance.to_string(),
            connection_epoch,
            supports_config_push: true,
            supports_provider_readiness: true,
            ..Default::default()
        };
        to_bridge.send(SupervisorMessage { payload: Some(Payload::Hello(hello)) }).await.unwrap();
        let mut request = Request::new(ReceiverStream::new(messages));
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        let endpoint = Endpoint::from_shared(bridge.to_owned()).unwrap();
        let endpoint = endpoint.initial_stream_window_size(unread).initial_connection_window_size(UNREAD);
        let mut client = OpenShellClient::new(endpoint.connect().await.unwrap());
        let mut from_bridge = client.connect_supervisor(request).await?.into_inner();
        match from_bridge.message().await?.and_then(|message| message.payload) {
            Some(FromBridge::SessionAccepted(accepted)) => {
                let first_update = accepted.bootstrap.map(|update| update.update_id).unwrap_or_default();
                Ok(Self { to_bridge, from_bridge, session_id: accepted.session_id, first_update })
            }
            other => panic!("it began with {other:?}"),
        }
    }

    /// Sends a message.
    pub async fn say(&self, payload: Payload) {
        self.to_bridge.send(SupervisorMessage { payload: Some(payload) }).await.unwrap();
    }

    /// Reads to the end: the status, if it ended with one.
    pub async fn end(&mut self) -> Option<Status> {
        loop {
            match self.from_bridge.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    }
}
