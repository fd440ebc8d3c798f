//! Rules on one endpoint.

use roadstead_proto::api::sandbox::{NetworkEndpoint, NetworkTlsMode};

use crate::refusal::{Path, Reason, Refusal};

const HOST_BYTES: usize = 253;
const PATH_BYTES: usize = 4096;
const PORTS: usize = 64;
const ADDRESSES: usize = 256;
const ADDRESS_BYTES: usize = 64;
const WORD_BYTES: usize = 64;

/// The ports of an endpoint: the list if there is one, else the single one.
pub(crate) fn ports(endpoint: &NetworkEndpoint) -> impl Iterator<Item = u32> {
    let single = endpoint.ports.is_empty().then_some(endpoint.port);
    endpoint.ports.iter().copied().chain(single)
}

/// Whether the requests inside the connection are seen: a protocol is named and TLS is not passed by.
pub(crate) fn is_inspected(endpoint: &NetworkEndpoint) -> bool {
    #[allow(deprecated, reason = "an old client may still send it")]
    let opaque = matches!(endpoint.tls(), NetworkTlsMode::Skip | NetworkTlsMode::Passthrough);
    let requests = !endpoint.protocol.is_empty() && endpoint.protocol != "tcp";
    requests && !opaque
}

/// Checks what one endpoint says by itself.
pub(crate) fn check(endpoint: &NetworkEndpoint, at: &Path<'_>) -> Result<(), Refusal> {
    check_host(endpoint, at)?;
    check_ports(endpoint, at)?;
    at.field("path").at_most(&endpoint.path, PATH_BYTES)?;
    if !endpoint.path.is_empty() && !endpoint.path.starts_with('/') {
        return Err(at.field("path").refuse(Reason::Malformed));
    }
    at.field("protocol").at_most(&endpoint.protocol, WORD_BYTES)?;
    let allowed_ips = at.field("allowed_ips");
    allowed_ips.at_most_of("addresses", endpoint.allowed_ips.len(), ADDRESSES)?;
    for (index, address) in endpoint.allowed_ips.iter().enumerate() {
        allowed_ips.index(index).at_most(address, ADDRESS_BYTES)?;
    }
    check_binding(endpoint, at)
}

fn check_host(endpoint: &NetworkEndpoint, at: &Path<'_>) -> Result<(), Refusal> {
    let host = endpoint.host.as_str();
    let at = at.field("host");
    if host.is_empty() {
        return if endpoint.allowed_ips.is_empty() { Err(at.refuse(Reason::Missing)) } else { Ok(()) };
    }
    at.at_most(host, HOST_BYTES)?;
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'@' | b'?' | b'#' | b'\\');
    if !host.bytes().all(plain) || host.split('.').any(str::is_empty) {
        return Err(at.refuse(Reason::Malformed));
    }
    let labels = host.split('.').count();
    let fixed = host.rsplit('.').take_while(|label| !label.contains('*')).count();
    if fixed < labels && fixed < 2 {
        return Err(at.refuse(Reason::WildcardTooBroad));
    }
    Ok(())
}

fn check_ports(endpoint: &NetworkEndpoint, at: &Path<'_>) -> Result<(), Refusal> {
    if endpoint.ports.is_empty() {
        check_port(endpoint.port, &at.field("port"))
    } else {
        check_port_list(&endpoint.ports, &at.field("ports"))
    }
}

pub(crate) fn check_port(port: u32, at: &Path<'_>) -> Result<(), Refusal> {
    if (1..=65535).contains(&port) { Ok(()) } else { Err(at.refuse(Reason::PortOutOfRange)) }
}

pub(crate) fn check_port_list(ports: &[u32], at: &Path<'_>) -> Result<(), Refusal> {
    at.at_most_of("ports", ports.len(), PORTS)?;
    ports.iter().try_for_each(|port| check_port(*port, at))
}

fn check_binding(endpoint: &NetworkEndpoint, at: &Path<'_>) -> Result<(), Refusal> {
    let Some(binding) = &endpoint.credential_binding else { return Ok(()) };
    let at = at.field("credential_binding");
    if binding.provider.is_empty() {
        return Err(at.field("provider").refuse(Reason::Missing));
    }
    if endpoint.host.is_empty() {
        return Err(at.refuse(Reason::BindingWithoutHost));
    }
    if !is_inspected(endpoint) && !endpoint.allow_uninspected_credentials {
        return Err(at.refuse(Reason::Uninspected));
    }
    Ok(())
}
