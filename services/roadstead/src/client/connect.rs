//! Opening the API.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

/// Where the API is and who calls.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// Address of an edge; https for TLS
    #[arg(long, env = "ROADSTEAD_ENDPOINT", default_value = "http://127.0.0.1:17670", global = true)]
    pub(crate) endpoint: String,
    /// File with a bearer token; without it the call is anonymous, which an edge on loopback takes for a local developer
    #[arg(long, env = "ROADSTEAD_TOKEN_FILE", value_name = "FILE", global = true)]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificate authority to trust, for https
    #[arg(long, env = "ROADSTEAD_CA", value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Longest wait for an answer, in seconds
    #[arg(long, default_value_t = 60, global = true)]
    pub(crate) timeout: u64,
}

/// A connected client.
pub(crate) type Client = OpenShellClient<InterceptedService<Channel, Bearer>>;

/// Adds the caller's token to each call.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl std::fmt::Debug for Bearer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Bearer")
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

impl Connection {
    /// To an edge that takes anonymous callers for local developers, with the usual patience.
    pub(crate) fn anonymous(edge: &str) -> Self {
        Self { endpoint: edge.to_owned(), token_file: None, ca: None, timeout: 60 }
    }

    /// Connects. A call that is not answered in time ends with an error.
    pub(crate) async fn open(&self) -> anyhow::Result<Client> {
        let mut endpoint = self.channel()?.timeout(Duration::from_secs(self.timeout));
        if let Some(ca) = &self.ca {
            let pem = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
            endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)))?;
        }
        self.client(endpoint).await
    }

    /// Connects for calls that stay open.
    pub(crate) async fn open_stream(&self) -> anyhow::Result<Client> {
        self.client(self.channel()?).await
    }

    fn channel(&self) -> anyhow::Result<Endpoint> {
        let endpoint = Endpoint::from_shared(self.endpoint.clone()).context("--endpoint must be a URL")?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10)))
    }

    async fn client(&self, endpoint: Endpoint) -> anyhow::Result<Client> {
        let channel = endpoint.connect().await.with_context(|| {
            format!("no edge answers at {}; is it running? `roadstead all` starts one", self.endpoint)
        })?;
        Ok(OpenShellClient::with_interceptor(channel, self.bearer()?))
    }

    fn bearer(&self) -> anyhow::Result<Bearer> {
        let Some(file) = &self.token_file else { return Ok(Bearer(None)) };
        let token = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {}", token.trim()).parse().context("the token file must hold one line of plain text")?;
        value.set_sensitive(true);
        Ok(Bearer(Some(value)))
    }
}
