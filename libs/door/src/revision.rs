//! What a peer of another revision of the protocol is told. A revision is named by the package of its service; this wire has
//! no number for it in a message.

use tonic::Status;

/// The service, without its package.
const SERVICE: &str = "OpenShell";
/// The revision that is spoken here: its package, and the release of it that all messages are of.
const OURS: &str = "openshell.v1 of 0.1.5";
/// Longest name of the peer's that is repeated to it.
const LONGEST_NAME: usize = 64;

/// The refusal of a path that calls the service in another revision, or in none; none if it calls another service.
pub(crate) fn other(path: &str) -> Option<Status> {
    let (service, _method) = path.strip_prefix('/')?.split_once('/')?;
    let package = service.strip_suffix(SERVICE)?;
    let theirs = match package.strip_suffix('.') {
        Some(package) => name(package),
        None if package.is_empty() => "a service without one",
        None => return None,
    };
    Some(Status::unimplemented(format!("this gateway speaks revision {OURS}; the call is of {theirs}")))
}

/// The refusal of a method that our revision does not have.
pub(crate) fn no_such_method(method: &str) -> Status {
    Status::unimplemented(format!("revision {OURS} has no method {}", name(method)))
}

/// The peer's word, if it is one.
fn name(text: &str) -> &str {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_');
    if text.len() <= LONGEST_NAME && text.bytes().all(is_name) { text } else { "an unreadable name" }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn told(path: &str) -> Option<String> {
        let status = other(path)?;
        assert_eq!(status.code(), Code::Unimplemented);
        Some(status.message().to_owned())
    }

    #[test]
    fn both_revisions_are_named() {
        for theirs in ["openshell.v0", "openshell.v2", "openshell.v1beta1"] {
            let told = told(&format!("/{theirs}.OpenShell/ConnectSupervisor")).unwrap();
            assert!(told.contains(OURS) && told.ends_with(theirs), "{told}");
        }
        assert!(told("/OpenShell/ConnectSupervisor").unwrap().contains(OURS));
        let told = no_such_method("ConnectSupervisorAgain");
        assert!(told.message().contains(OURS) && told.message().ends_with("ConnectSupervisorAgain"));
    }

    #[test]
    fn other_services_are_none_of_its_business() {
        for path in ["/grpc.health.v1.Health/Check", "/openshell.v1.Other/Call", "/x.NotOpenShell/Call", "/", ""] {
            assert_eq!(told(path), None, "{path}");
        }
    }

    #[test]
    fn nothing_but_names_is_repeated() {
        for odd in ["a%0Ab".to_owned(), "x".repeat(LONGEST_NAME + 1), "<b>".to_owned()] {
            assert!(told(&format!("/{odd}.OpenShell/Call")).unwrap().ends_with("an unreadable name"));
            assert!(no_such_method(&odd).message().ends_with("an unreadable name"));
        }
    }
}
