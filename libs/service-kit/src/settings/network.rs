//! Which addresses may be spoken to without TLS: those of this machine, and others only if told so.

use std::net::IpAddr;

/// Why an address is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not of this machine, and nothing would be encrypted.
    #[error(
        "{flag} names another machine without TLS, so secrets would cross the network in the clear; use TLS, or set \
         {allow} if nobody else can use that network"
    )]
    Plaintext { flag: &'static str, allow: &'static str },
    /// Command lines and environments are no place for passwords.
    #[error("{flag} holds a password; leave it out, the key file has it")]
    Password { flag: &'static str },
}

/// An address as it was configured.
pub(super) struct Address<'a> {
    pub(super) flag: &'static str,
    /// One URL, or several hosts or URLs with commas between them.
    pub(super) url: &'a str,
    /// Whether TLS is used for sure.
    pub(super) encrypted: bool,
    /// The flag that permits plaintext, and whether it is set.
    pub(super) allow: (&'static str, bool),
}

impl<'a> Address<'a> {
    /// The URL, if it may be used.
    pub(super) fn permitted(self) -> Result<&'a str, AddressError> {
        let Self { flag, url, encrypted, allow: (allow, allowed) } = self;
        if url.split(',').any(has_password) {
            return Err(AddressError::Password { flag });
        }
        if encrypted || allowed || url.split(',').all(is_of_this_machine) {
            return Ok(url);
        }
        Err(AddressError::Plaintext { flag, allow })
    }
}

/// User, host and port of a URL; what comes before and after is cut off.
fn authority(url: &str) -> &str {
    let rest = url.trim().split_once("://").map_or(url.trim(), |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

fn has_password(url: &str) -> bool {
    let in_authority = authority(url).rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    in_authority || url.contains("password=")
}

fn is_of_this_machine(url: &str) -> bool {
    let authority = authority(url);
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host_and_port.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host_and_port.split(':').next().unwrap_or_default(),
    };
    // A parameter could name another host than the authority does.
    let overridden = url.contains("host=") || url.contains("hostaddr=");
    // A percent-encoded slash begins the path of a socket.
    let is_socket = host.starts_with("%2F") || host.starts_with("%2f");
    let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    !overridden && (is_socket || is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(url: &str) -> Result<&str, AddressError> {
        Address { flag: "--url", url, encrypted: false, allow: ("--plaintext", false) }.permitted()
    }

    #[test]
    fn this_machine_needs_no_tls() {
        for url in [
            "nats://127.0.0.1:4222",
            "127.0.0.1:4222",
            "localhost",
            "nats://[::1]:4222,nats://127.0.0.2",
            "postgresql://localhost:5432,127.0.0.1:5433/roadstead",
            "postgresql://%2Frun%2Fpostgresql/roadstead",
            "postgresql://roadstead@127.0.0.1/roadstead?connect_timeout=3",
        ] {
            assert_eq!(permitted(url), Ok(url));
        }
    }

    #[test]
    fn another_machine_needs_tls_or_leave() {
        let refused = AddressError::Plaintext { flag: "--url", allow: "--plaintext" };
        for url in [
            "nats://nats:4222",
            "nats://127.0.0.1,nats://10.0.0.1",
            "nats://127.0.0.1@10.0.0.1",
            "nats://127.0.0.1.example.com",
            "nats://10.0.0.1/127.0.0.1",
            "postgresql://127.0.0.1/roadstead?host=10.0.0.1",
            "host=10.0.0.1 dbname=roadstead",
            "postgresql:///roadstead",
            "",
        ] {
            assert_eq!(permitted(url), Err(refused), "{url}");
            for (encrypted, allowed) in [(true, false), (false, true)] {
                let address = Address { flag: "--url", url, encrypted, allow: ("--plaintext", allowed) };
                assert_eq!(address.permitted(), Ok(url));
            }
        }
    }

    #[test]
    fn passwords_have_no_place_in_an_address() {
        for url in ["nats://user:word@127.0.0.1", "postgresql://127.0.0.1/db?password=word", "a,nats://u:w@b"] {
            assert_eq!(permitted(url), Err(AddressError::Password { flag: "--url" }), "{url}");
        }
    }
}
