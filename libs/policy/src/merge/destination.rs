//! Destinations that no sandbox reaches whatever its policy says: the machine it runs on, its link, and the metadata
//! services of clouds. Supervisors block what a name resolves to; what is plain to see is refused here, early.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roadstead_proto::api::sandbox::NetworkEndpoint;

use crate::pattern::Host;
use crate::refusal::{Path, Reason, Refusal};

const NAMES: [&str; 3] = ["**.localhost", "metadata.google.internal", "metadata.goog"];

/// Blocked as a whole: a network that touches one of these is refused. IPv4 lies in its mapped range.
const NETWORKS: [Network; 5] = [
    Network::v4(Ipv4Addr::new(0, 0, 0, 0), 8),
    Network::v4(Ipv4Addr::new(127, 0, 0, 0), 8),
    Network::v4(Ipv4Addr::new(169, 254, 0, 0), 16),
    // Unspecified, loopback, and the form of IPv4 that nobody uses any more.
    Network::v6(Ipv6Addr::UNSPECIFIED, 96),
    Network::v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
];

/// Metadata services amid addresses that others may use: only the address itself is refused.
const ADDRESSES: [Network; 2] = [
    Network::v4(Ipv4Addr::new(100, 100, 100, 200), 32),
    Network::v6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254), 128),
];

/// Refuses an endpoint that names such a destination.
pub(super) fn check(endpoint: &NetworkEndpoint, at: &Path<'_>) -> Result<(), Refusal> {
    check_host(&endpoint.host, &at.field("host"))?;
    let blocked = |network: &String| Network::parse(network).is_some_and(Network::is_blocked);
    match endpoint.allowed_ips.iter().position(blocked) {
        Some(index) => Err(at.field("allowed_ips").index(index).refuse(Reason::AlwaysBlocked)),
        None => Ok(()),
    }
}

fn check_host(host: &str, at: &Path<'_>) -> Result<(), Refusal> {
    let bare = host.trim_matches(['[', ']']).to_ascii_lowercase();
    if let Some(address) = Network::parse(&bare) {
        return if address.is_blocked() { Err(at.refuse(Reason::AlwaysBlocked)) } else { Ok(()) };
    }
    // Resolvers read `127.1` and `0x7f000001` as addresses.
    let numeric = |label: &str| label.starts_with("0x") || label.bytes().all(|byte| byte.is_ascii_digit());
    if !bare.is_empty() && bare.rsplit('.').next().is_some_and(numeric) {
        return Err(at.refuse(Reason::Malformed));
    }
    let host = Host::new(&bare);
    if NAMES.iter().any(|name| Host::new(name).overlaps(&host)) {
        return Err(at.refuse(Reason::AlwaysBlocked));
    }
    Ok(())
}

/// A range of IPv6 addresses, those that stand for IPv4 included.
#[derive(Clone, Copy, Debug)]
struct Network {
    bits: u128,
    prefix: u32,
}

impl Network {
    const fn v4(address: Ipv4Addr, prefix: u32) -> Self {
        Self::v6(address.to_ipv6_mapped(), 96 + prefix)
    }

    const fn v6(address: Ipv6Addr, prefix: u32) -> Self {
        Self { bits: address.to_bits(), prefix }
    }

    /// An address, alone or with the length of a prefix.
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse().ok()?)),
            None => (text, None),
        };
        let address = address.split('%').next()?.parse().ok()?;
        Some(match address {
            IpAddr::V4(address) => Self::v4(address, prefix.unwrap_or(32).min(32)),
            IpAddr::V6(address) => Self::v6(address, prefix.unwrap_or(128).min(128)),
        })
    }

    fn is_blocked(self) -> bool {
        let is_one = |other: &Self| self.prefix == other.prefix && self.bits == other.bits;
        NETWORKS.iter().any(|other| self.touches(other)) || ADDRESSES.iter().any(is_one)
    }

    fn touches(self, other: &Self) -> bool {
        let common = self.prefix.min(other.prefix);
        (self.bits ^ other.bits).checked_shr(128 - common).unwrap_or(0) == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reason(host: &str, allowed_ips: &[&str]) -> Option<Reason> {
        let allowed_ips = allowed_ips.iter().map(ToString::to_string).collect();
        let endpoint = NetworkEndpoint { host: host.into(), allowed_ips, ..Default::default() };
        check(&endpoint, &Path::Root("endpoint")).err().map(|refusal| refusal.reason)
    }

    #[test]
    fn loopback_link_local_and_metadata_are_blocked_in_every_spelling() {
        for host in [
            "localhost",
            "LOCALHOST",
            "a.localhost",
            "metadata.google.internal",
            "*.google.internal",
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "100.100.100.200",
            "::1",
            "[::1]",
            "::",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "fe80::1",
            "[fe80::1%eth0]",
            "fd00:ec2::254",
        ] {
            assert_eq!(reason(host, &[]), Some(Reason::AlwaysBlocked), "{host}");
        }
        for host in ["127.1", "2130706433", "0x7f000001", "0X7F000001", "127.0.0.0X1", "0177.0.0.1", "*.0.0.1"] {
            assert_eq!(reason(host, &[]), Some(Reason::Malformed), "{host}");
        }
        for network in ["127.0.0.1", "127.0.0.0/8", "126.0.0.0/7", "0.0.0.0/0", "::/0", "169.254.0.0/16", "fe80::/64"] {
            assert_eq!(reason("db.example.com", &[network]), Some(Reason::AlwaysBlocked), "{network}");
        }
    }

    #[test]
    fn other_destinations_are_not() {
        for host in [
            "api.example.com",
            "*.example.com",
            "10.0.0.1",
            "8.8.8.8",
            "[2001:db8::1]",
            "fd00::1",
            "localhost.example.com",
        ] {
            assert_eq!(reason(host, &[]), None, "{host}");
        }
        assert_eq!(reason("", &["10.0.0.0/8", "100.64.0.0/10", "fd00::/8", "2001:db8::/32", "not an address"]), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_fall_over(host in ".{0,40}", network in "[0-9a-f:./%]{0,40}") {
            _ = reason(&host, &[&network]);
            _ = reason(&network, &[&host]);
        }

        #[test]
        fn every_network_that_holds_a_loopback_address_is_blocked(last in any::<[u8; 3]>(), prefix in 0..=32_u32) {
            let [a, b, c] = last;
            let blocked = Some(Reason::AlwaysBlocked);
            prop_assert_eq!(reason("", &[&format!("127.{a}.{b}.{c}/{prefix}")]), blocked);
        }
    }
}
