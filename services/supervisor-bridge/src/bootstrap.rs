//! The entry with which a session begins: the one that stands, built anew if it is out of date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use roadstead_door::deadline::Deadline;
use roadstead_proto::internal::{BootstrapReply, BootstrapRequest, SandboxIdentity};
use roadstead_proto::subject::ConfigCall;
use tonic::{Code, Status};

use crate::bridge::Bridge;
use crate::end::End;
use crate::entry;
use crate::read;
use crate::slots::Entry;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Asks for it until there is one, at most until `deadline`.
///
/// # Errors
///
/// How the session ends without it.
pub(crate) async fn entry(
    bridge: Arc<Bridge>,
    identity: Arc<SandboxIdentity>,
    traceparent: String,
    deadline: Instant,
) -> Result<Entry, End> {
    let mut pause = FIRST_PAUSE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(End::NoConfiguration);
        }
        match ask(&bridge, &identity, &traceparent, Deadline::after(left)).await {
            Ok(entry) => return Ok(entry),
            Err(status) => match status.code() {
                Code::NotFound => return Err(End::SandboxOver),
                Code::Unauthenticated | Code::PermissionDenied => return Err(End::TokenRevoked),
                code => tracing::debug!(?code, "no first entry; asking again"),
            },
        }
        tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0).min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn ask(
    bridge: &Bridge,
    identity: &SandboxIdentity,
    traceparent: &str,
    deadline: Deadline,
) -> Result<Entry, Status> {
    let request = BootstrapRequest { sandbox_id: identity.sandbox_id.clone() }.encode_to_vec();
    let reply = read::ask(bridge, ConfigCall::Bootstrap, identity, request.into(), deadline, traceparent).await?;
    let unusable = || Status::internal("the first entry cannot be used");
    let entry = BootstrapReply::decode(reply).ok().and_then(|reply| reply.entry).ok_or_else(unusable)?;
    entry::take(entry).map_err(|error| {
        tracing::error!(sandbox_id = identity.sandbox_id, %error, "the first entry cannot be used");
        unusable()
    })
}
