//! What somebody who has taken over a bridge can do: speak at the broker with the bridge's keys, past its checks.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::{Bus, door::CommandClient};
use roadstead_door::{
    auth::Principal,
    commands::{Command, Commands},
    deadline::Deadline,
    status,
};
use roadstead_proto::{
    internal::{self, ReadReply, ReadRequest, SandboxIdentity, principal::Kind, read_reply::Outcome},
    role::Role,
    sealing::{CipherKeys, seal_token},
    subject::{self, ConfigCall, Door, Report},
};
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_testkit::Stack;
use tonic::Status;

use crate::connection::connect_as;

/// How long an answer is waited for. A publish that is denied is never answered.
const PATIENCE: Duration = Duration::from_secs(5);
const AT_A_TIME: usize = 64;

/// A client of the broker with the keys of a stack's bridges.
#[derive(Debug)]
pub struct StolenBridge {
    bus: Bus,
    commands: Commands,
    snapshots: CipherKeys,
}

impl StolenBridge {
    /// Connects with the bridges' keys.
    pub async fn take(stack: &mut Stack) -> Self {
        let role = Role::SupervisorBridge;
        let keys = RoleKeys::load(&stack.keys_of("supervisor-bridge"), role).unwrap();
        let bus = connect_as(stack, role).await;
        let client = CommandClient::new(&bus, AT_A_TIME).await.unwrap();
        let commands = Commands::new(client, keys.door_seal().unwrap(), AT_A_TIME);
        Self { bus, commands, snapshots: keys.snapshots().unwrap() }
    }

    /// Asks config-snapshot as a sandbox.
    ///
    /// # Errors
    /// The refusal.
    pub async fn read(&self, call: ConfigCall, identity: &SandboxIdentity, message: Vec<u8>) -> Result<(), Status> {
        let passed = SandboxIdentity { token: seal_token(&self.snapshots, &identity.token), ..identity.clone() };
        self.read_as(Door::Sandbox, call, Kind::Sandbox(passed), message).await
    }

    /// Asks config-snapshot at either door's subject, as whoever one likes.
    ///
    /// # Errors
    /// The refusal; `UNAVAILABLE` if there is no answer.
    pub async fn read_as(&self, door: Door, call: ConfigCall, kind: Kind, message: Vec<u8>) -> Result<(), Status> {
        let request = ReadRequest {
            principal: Some(internal::Principal { kind: Some(kind) }),
            request: message.into(),
            deadline: Some((SystemTime::now() + PATIENCE).into()),
            ..Default::default()
        };
        let reply = self.bus.request(subject::config(door, call), request.encode_to_vec().into(), PATIENCE).await;
        let reply = reply.map_err(|error| Status::unavailable(error.to_string()))?;
        match ReadReply::decode(reply).unwrap().outcome.unwrap() {
            Outcome::Status(encoded) => Err(status::decode(&encoded)),
            Outcome::Response(_) | Outcome::SecretResponse(_) => Ok(()),
        }
    }

    /// Sends a report to admission as a sandbox.
    ///
    /// # Errors
    /// The refusal.
    pub async fn report(&self, report: Report, identity: &SandboxIdentity, message: Vec<u8>) -> Result<(), Status> {
        let command = Command {
            subject: subject::report(report),
            method: report.name(),
            principal: Principal::Sandbox(Arc::new(identity.clone())),
            request: Bytes::from(message),
            deadline: Deadline::after(PATIENCE),
            traceparent: String::new(),
        };
        self.commands.call(command).await.map(|_| ())
    }
}
