//! What an operation is told of its surroundings. Ids, encryption and configuration come in as values, so that a
//! decision is a plain function.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use roadstead_service_kit::settings::ServiceUrls;
use uuid::Uuid;

use crate::caller::Caller;

/// Surroundings of one attempt at a command.
pub struct Context<'a> {
    pub caller: &'a Caller,
    pub ids: &'a dyn Ids,
    pub vault: &'a dyn Vault,
    pub rules: &'a Rules,
    /// What a name that the caller left out is coined from: the same for every copy and every duplicate of a command,
    /// so that a replay finds the object by its name.
    pub naming: [u8; 32],
}

/// Source of fresh ids.
pub trait Ids: Send + Sync {
    /// An id that was never handed out before.
    fn fresh(&self) -> Uuid;
}

/// Random ids.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn fresh(&self) -> Uuid {
        Uuid::new_v4()
    }
}

/// Encrypts credentials for rest.
pub trait Vault: Send + Sync {
    /// Seals a credential of the provider with that id; it opens for that provider only.
    fn seal(&self, provider_id: Uuid, value: &str) -> Bytes;

    /// Length of what was sealed, in bytes, or a little more.
    fn length(&self, sealed: &Bytes) -> usize;
}

/// What a deployment configures about mutations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Image of a sandbox that names none.
    pub default_image: String,
    /// Time a sandbox has to connect and to accept its configuration.
    pub provisioning_window: Duration,
    /// Members that one workspace may have.
    pub members_per_workspace: u64,
    /// Workload templates that one workspace may have.
    pub templates_per_workspace: u64,
    /// Where services are reached.
    pub service_urls: ServiceUrls,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            default_image: "nvcr.io/nvidia/base/ubuntu:24.04".to_owned(),
            provisioning_window: Duration::from_secs(300),
            members_per_workspace: 1000,
            templates_per_workspace: 1000,
            service_urls: ServiceUrls::default(),
        }
    }
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Context")
            .field("caller", self.caller)
            .field("rules", self.rules)
            .finish_non_exhaustive()
    }
}
