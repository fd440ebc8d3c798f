//! A mutation with two steps, served here only: it asks something outside Postgres, which does as the test says, to
//! rotate a credential, and then raises the provider's version.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use prost::Message;
use roadstead_admission::Served;
use roadstead_admission::context::Context;
use roadstead_admission::effect::{Effect, Ended};
use roadstead_admission::ledger::{Address, MethodRow, Protection, Replay, ScopeRule, replay};
use roadstead_admission::operation::{self, Decision, Name, Operation, Unreadable};
use roadstead_admission::refusal::{Object, Refusal};
use roadstead_proto::api::v1::{RotateProviderCredentialRequest, RotateProviderCredentialResponse};
use roadstead_proto::internal::Receipt;
use roadstead_proto::method::Method;
use roadstead_store::mutation::{Loaded, Lock, Locks, Providers, Write};
use secrecy::SecretSlice;
use tokio::sync::Semaphore;

/// What becomes of an effect. The request's credential key names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Succeeds,
    /// Succeeds once the test lets it.
    Waits,
    DoesNothing,
    FailsSomehow,
    Panics,
    Hangs,
    /// Happens, and then its outcome cannot be written down.
    CannotBeTold,
}

impl Fate {
    pub(crate) const UNKNOWN: [Self; 4] = [Self::FailsSomehow, Self::Panics, Self::Hangs, Self::CannotBeTold];

    pub(crate) fn key(self) -> String {
        format!("{self:?}")
    }

    fn of(key: &str) -> Self {
        let all = [Self::Succeeds, Self::Waits, Self::DoesNothing];
        all.into_iter().chain(Self::UNKNOWN).find(|fate| fate.key() == key).unwrap()
    }
}

/// What lies outside: how often each provider's credential was rotated there.
#[derive(Debug)]
pub(crate) struct Outside {
    effects: Mutex<BTreeMap<String, u32>>,
    pub(crate) gate: Semaphore,
}

impl Outside {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { effects: Mutex::default(), gate: Semaphore::new(0) })
    }

    /// Everything that admission serves, and the rotation of credentials.
    pub(crate) fn served(self: &Arc<Self>) -> Served {
        let mut served = Served::default();
        served.rows.push(MethodRow {
            method: Method::RotateProviderCredential,
            scope: ScopeRule::Workspace,
            protection: Protection::Keyed,
            replay: Replay::SameVersion,
        });
        let outside = Arc::clone(self);
        served.read = Arc::new(move |name, request| match name {
            Name::Method(Method::RotateProviderCredential) => {
                let request = RotateProviderCredentialRequest::decode(request).map_err(|_| Unreadable::Malformed)?;
                Ok(Box::new(Rotate { request, outside: Arc::clone(&outside) }))
            }
            name => operation::read(name, request),
        });
        served
    }

    /// How often the effect began for that provider.
    pub(crate) fn effects(&self, provider: &str) -> u32 {
        self.effects.lock().unwrap().get(provider).copied().unwrap_or(0)
    }
}

struct Rotate {
    request: RotateProviderCredentialRequest,
    outside: Arc<Outside>,
}

impl Operation for Rotate {
    fn address(&self) -> Address<'_> {
        Address::Workspace(self.request.workspace_scope.as_ref())
    }

    fn request_id(&self) -> &str {
        &self.request.request_id
    }

    fn plan(&self, locks: Locks, _: &Context<'_>) -> Result<Locks, Refusal> {
        let providers = Providers::Named(vec![self.request.provider.clone()], Lock::Update);
        Ok(Locks { providers, ..locks })
    }

    fn decide(&self, loaded: &Loaded, _: &Context<'_>) -> Result<Decision, Refusal> {
        if loaded.providers.is_empty() {
            return Err(Refusal::not_found(Object::Provider, &self.request.provider));
        }
        let rotation = Rotation {
            provider: self.request.provider.clone(),
            fate: Fate::of(&self.request.credential_key),
            outside: Arc::clone(&self.outside),
        };
        Ok(Decision::after(Arc::new(rotation)))
    }

    fn complete(&self, _: &SecretSlice<u8>, loaded: &Loaded, _: &Context<'_>) -> Option<Decision> {
        if Fate::of(&self.request.credential_key) == Fate::CannotBeTold {
            return None;
        }
        let mut row = loaded.providers.first()?.clone();
        row.resource_version += 1;
        let receipt = replay::object(row.id, row.resource_version);
        Some(Decision::new(vec![Write::UpdateProvider(row)], &RotateProviderCredentialResponse::default(), receipt))
    }

    fn replay(&self, receipt: &Receipt, loaded: &Loaded, _: &Context<'_>) -> Option<Bytes> {
        let row = loaded.providers.first()?;
        replay::same_version(receipt, row.id, row.resource_version)?;
        Some(replay::encoded(&RotateProviderCredentialResponse::default()))
    }
}

#[derive(Debug)]
struct Rotation {
    provider: String,
    fate: Fate,
    outside: Arc<Outside>,
}

impl Effect for Rotation {
    fn perform(&self) -> Pin<Box<dyn Future<Output = Ended> + Send + '_>> {
        Box::pin(async {
            *self.outside.effects.lock().unwrap().entry(self.provider.clone()).or_default() += 1;
            let happened = || Ended::Happened(Vec::new().into());
            match self.fate {
                Fate::Succeeds | Fate::CannotBeTold => happened(),
                Fate::Waits => {
                    self.outside.gate.acquire().await.unwrap().forget();
                    happened()
                }
                Fate::DoesNothing => Ended::DidNotHappen(Refusal::Unavailable),
                Fate::FailsSomehow => Ended::Unknown("the connection broke"),
                Fate::Panics => panic!("an effect that panics"),
                Fate::Hangs => pending().await,
            }
        })
    }
}
