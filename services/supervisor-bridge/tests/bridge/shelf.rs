//! Plays config-snapshot and watch: writes entries, and answers what is asked about them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::Bus;
use roadstead_bus::bucket::Bucket;
use roadstead_bus::service::{self, Endpoint};
use roadstead_proto::api::sandbox::{PolicySource, SandboxConfigSnapshot, SandboxPolicy};
use roadstead_proto::api::v1::{
    GetSandboxProviderEnvironmentResponse, ProviderEnvironmentSnapshot, ProviderEnvironmentValue, Sandbox,
    SandboxPhase, SandboxStatus,
};
use roadstead_proto::bucket::{Bucket as Name, SandboxKey};
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::read_reply::Outcome;
use roadstead_proto::internal::{
    BootstrapReply, BootstrapRequest, ReadReply, ReadRequest, SandboxEntry, SnapshotEntry, StandingReply,
};
use roadstead_proto::sealing::{CipherKeys, open_token};
use roadstead_proto::subject::{ConfigCall, Door, config};
use roadstead_service_kit::status::{Code, Status};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const BEAT: Duration = Duration::from_secs(1);

/// What a configuration and an environment are, as far as these tests tell them apart.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) version: u32,
    pub(crate) admitted: bool,
    pub(crate) values: BTreeMap<&'static str, &'static str>,
    /// Makes the configuration this much larger.
    pub(crate) padding: usize,
}

impl Content {
    pub(crate) fn version(version: u32) -> Self {
        Self { version, admitted: true, values: BTreeMap::from([("KEY", "hush")]), padding: 0 }
    }
}

#[derive(Clone)]
pub(crate) struct Shelf {
    pub(crate) snapshots: Bucket,
    sandboxes: Bucket,
    keys: Arc<CipherKeys>,
    sequence: Arc<AtomicU64>,
    /// What is answered of any sandbox's session, and how often it was asked about.
    pub(crate) standing: Arc<Mutex<(StandingReply, usize)>>,
}

impl Shelf {
    pub(crate) fn new(config_snapshot: &Bus, watch: &Bus, keys: CipherKeys) -> Self {
        Self {
            snapshots: Bucket::new(config_snapshot, Name::Snapshots),
            sandboxes: Bucket::new(watch, Name::Sandboxes),
            keys: Arc::new(keys),
            sequence: Arc::default(),
            standing: Arc::default(),
        }
    }

    /// Answers configuration reads until told to stop.
    pub(crate) fn open(&self, bus: &Bus, stop: CancellationToken) {
        let (bus, shelf, reads, standing) = (bus.clone(), self.clone(), self.clone(), Arc::clone(&self.standing));
        tokio::spawn(async move {
            let endpoints = vec![
                Endpoint::new(config(Door::Sandbox, ConfigCall::Bootstrap), move |request| {
                    let shelf = shelf.clone();
                    async move { shelf.bootstrap(request).await }
                }),
                Endpoint::new(config(Door::Sandbox, ConfigCall::GetSandboxProviderEnvironment), move |request| {
                    let shelf = reads.clone();
                    async move { shelf.environment(request) }
                }),
                Endpoint::new(config(Door::Sandbox, ConfigCall::Standing), move |_| {
                    let reply = {
                        let mut standing = standing.lock().unwrap();
                        standing.1 += 1;
                        standing.0.encode_to_vec()
                    };
                    async move { ReadReply { outcome: Some(Outcome::Response(reply.into())) }.encode_to_vec().into() }
                }),
            ];
            service::serve(&bus, "config-snapshot", endpoints, 8, stop).await.unwrap();
        });
    }

    /// Stores an entry with this content.
    pub(crate) async fn put(&self, sandbox_id: Uuid, content: &Content) {
        let key = sandbox_id.to_string();
        let standing = self.snapshots.read_from_leader(&key).await.unwrap();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = self.entry(sandbox_id, sequence, content).encode_to_vec();
        self.snapshots.update(&key, entry.into(), standing.revision).await.unwrap();
    }

    /// Beats in the projection, as watch does, until told to stop.
    pub(crate) fn beat(&self, stop: CancellationToken) {
        let (sandboxes, key) = (self.sandboxes.clone(), SandboxKey::Beat(Uuid::new_v4()).to_string());
        let beating = async move {
            loop {
                // None while the broker is away.
                let _beat = sandboxes.put_with_ttl(&key, Bytes::from_static(b"beat"), BEAT * 10).await.is_ok();
                tokio::time::sleep(BEAT).await;
            }
        };
        tokio::spawn(stop.run_until_cancelled_owned(beating));
    }

    /// Stores what the projection shows of the sandbox.
    pub(crate) async fn project(&self, workspace_id: Uuid, sandbox_id: Uuid, version: u64, phase: SandboxPhase) {
        let key = SandboxKey::Sandbox { workspace_id, sandbox_id }.to_string();
        let standing = self.sandboxes.read_from_leader(&key).await.unwrap();
        let status = Some(SandboxStatus { phase: phase.into(), ..Default::default() });
        let sandbox = Some(Sandbox { status, ..Default::default() });
        let entry = SandboxEntry { epoch: 1, version, sandbox, ..Default::default() };
        self.sandboxes.update(&key, entry.encode_to_vec().into(), standing.revision).await.unwrap();
    }

    fn entry(&self, sandbox_id: Uuid, sequence: u64, content: &Content) -> SnapshotEntry {
        let config = SandboxConfigSnapshot {
            version: content.version,
            policy: Some(SandboxPolicy::default()),
            policy_source: PolicySource::Sandbox.into(),
            configuration_admitted: content.admitted,
            configuration_error: if content.admitted { String::new() } else { "does not compose".to_owned() },
            workspace: "w".repeat(content.padding),
            ..Default::default()
        };
        let values = content.values.iter().map(|(name, value)| ProviderEnvironmentValue {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            ..Default::default()
        });
        let environment = ProviderEnvironmentSnapshot {
            values: values.collect(),
            provider_attachment_epoch: sandbox_id.to_string(),
            ..Default::default()
        }
        .encode_to_vec();
        SnapshotEntry {
            epoch: 1,
            sequence,
            config_digest: digest(&config.encode_to_vec()),
            config: Some(config),
            environment_digest: digest(&environment),
            environment: self.keys.encrypt(sandbox_id.as_bytes(), &environment).into(),
            ..Default::default()
        }
    }

    async fn bootstrap(&self, request: Bytes) -> Bytes {
        let request = self.verified(request);
        let asked = BootstrapRequest::decode(request.request).unwrap();
        let standing = self.snapshots.read_from_leader(&asked.sandbox_id).await.unwrap();
        let outcome = match standing.value {
            Some(entry) => {
                let entry = Some(SnapshotEntry::decode(entry).unwrap());
                Outcome::Response(BootstrapReply { entry }.encode_to_vec().into())
            }
            None => Outcome::Status(Status::new(Code::Unavailable, "not built yet").to_bytes().into()),
        };
        ReadReply { outcome: Some(outcome) }.encode_to_vec().into()
    }

    fn environment(&self, request: Bytes) -> Bytes {
        let request = self.verified(request);
        let Some(Kind::Sandbox(sandbox)) = request.principal.and_then(|principal| principal.kind) else { panic!() };
        let sandbox_id: Uuid = sandbox.sandbox_id.parse().unwrap();
        let environment = BTreeMap::from([("KEY".to_owned(), "hush".to_owned())]);
        let response = GetSandboxProviderEnvironmentResponse { environment, ..Default::default() }.encode_to_vec();
        let sealed = self.keys.encrypt(sandbox_id.as_bytes(), &response);
        ReadReply { outcome: Some(Outcome::SecretResponse(sealed.into())) }.encode_to_vec().into()
    }

    /// The request, which must carry a token that opens.
    fn verified(&self, request: Bytes) -> ReadRequest {
        let request = ReadRequest::decode(request).unwrap();
        let Some(Kind::Sandbox(sandbox)) = request.principal.as_ref().and_then(|p| p.kind.as_ref()) else { panic!() };
        assert_eq!(open_token(&self.keys, &sandbox.token).unwrap().split('.').count(), 3);
        request
    }
}

/// Stands in for the digests of config-snapshot: equal for equal content is all that matters.
fn digest(content: &[u8]) -> Bytes {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut digest = Vec::with_capacity(32);
    for part in 0..4_u8 {
        let mut hasher = DefaultHasher::new();
        (part, content).hash(&mut hasher);
        digest.extend(hasher.finish().to_le_bytes());
    }
    digest.into()
}
