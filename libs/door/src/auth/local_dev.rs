//! The identity of whoever calls without a credential, where that is allowed.

use std::sync::Arc;

use roadstead_proto::internal::User;
use roadstead_proto::method::Method;

use super::{Authenticator, Credential, Pending, Principal, Verdict};

/// Takes a caller without a credential for the developer at this machine, who administrates the platform.
///
/// To be used only where every caller is that developer.
#[derive(Debug)]
pub struct LocalDev;

impl Authenticator for LocalDev {
    fn authenticate<'a>(&'a self, _: Method, credential: Credential<'a>) -> Pending<'a> {
        let verdict = match credential {
            Credential::Nothing => Verdict::Accepted(local_dev(), None),
            Credential::Bearer(_) => Verdict::OtherKind,
        };
        Box::pin(std::future::ready(verdict))
    }
}

fn local_dev() -> Principal {
    Principal::User(Arc::new(User {
        provider: "local_dev".to_owned(),
        subject: "local-dev".to_owned(),
        display_name: "Local developer".to_owned(),
        roles: vec!["platform_admin".to_owned()],
        platform_admin: true,
        ..Default::default()
    }))
}
