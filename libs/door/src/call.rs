//! One call, as far as a door has understood it before looking at its message.

use std::sync::Arc;

use bytes::Bytes;
use roadstead_proto::internal::User;
use roadstead_proto::method::Method;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::auth::{Principal, Standing};
use crate::deadline::Deadline;

/// A call whose caller is known and may, as far as the method's own rule says, make it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The caller; none on a method that is open to anyone.
    pub principal: Option<Principal>,
    /// What the caller was recognised by, for a call that lasts; none on a method that is open to anyone.
    pub standing: Option<Standing>,
    /// When the client, or this door, gives up waiting for a unary call. Streams end by themselves at the client's.
    pub deadline: Deadline,
    /// From the header `x-request-id`; has nothing to do with the id of a mutation.
    pub request_id: String,
    /// W3C trace context to pass on; empty if there is none.
    pub traceparent: String,
}

impl Call {
    /// The caller.
    ///
    /// # Errors
    ///
    /// `UNAUTHENTICATED` on a method that is open to anyone.
    pub fn principal(&self) -> Result<&Principal, Status> {
        self.principal.as_ref().ok_or_else(|| Status::unauthenticated("a valid credential is required"))
    }

    /// The caller, who must be a user.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED` for a sandbox; `UNAUTHENTICATED` for anyone.
    pub fn user(&self) -> Result<&Arc<User>, Status> {
        match self.principal()? {
            Principal::User(user) => Ok(user),
            Principal::Sandbox(_) => Err(Status::permission_denied("a sandbox may not call this method")),
        }
    }
}

/// The answer to a unary call.
#[derive(Debug, Default)]
pub struct Reply {
    /// The encoded response message.
    pub message: Bytes,
    /// Initial metadata.
    pub metadata: MetadataMap,
}

impl Reply {
    /// A reply without metadata.
    #[must_use]
    pub fn new(message: impl Into<Bytes>) -> Self {
        Self { message: message.into(), metadata: MetadataMap::new() }
    }
}
