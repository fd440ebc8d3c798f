//! Where services that sandboxes expose are reached.

use clap::Args;

/// From these an address is made for each service: a host name in the domain. Roles that show services are given the
/// same.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceUrls {
    /// Domain in which each exposed service of a sandbox has a name. Empty: services are kept, and have no address
    #[arg(long, env = "ROADSTEAD_SERVICE_DOMAIN", value_name = "DOMAIN", default_value = "", value_parser = domain)]
    service_domain: String,
    /// Services are reached without TLS. So they always are in a domain of this machine: localhost, or below it
    #[arg(long, env = "ROADSTEAD_SERVICE_PLAINTEXT")]
    service_plaintext: bool,
    /// Port at which services are reached, if it is not the usual one
    #[arg(long, env = "ROADSTEAD_SERVICE_PORT", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    service_port: Option<u16>,
}

impl ServiceUrls {
    /// The address of a service, or of the sandbox's one service without a name; empty if there is no domain.
    #[must_use]
    pub fn url(&self, workspace: &str, sandbox: &str, service: &str) -> String {
        let domain = &self.service_domain;
        if domain.is_empty() {
            return String::new();
        }
        let is_local = domain == "localhost" || domain.ends_with(".localhost");
        let (scheme, usual) = if self.service_plaintext || is_local { ("http", 80) } else { ("https", 443) };
        let port = self.service_port.filter(|port| *port != usual).map(|port| format!(":{port}")).unwrap_or_default();
        let service = if service.is_empty() { String::new() } else { format!("--{service}") };
        format!("{scheme}://{workspace}--{sandbox}{service}.{domain}{port}/")
    }
}

/// A domain: labels of letters, digits and hyphens with dots between them. The first label of an address goes in front.
fn domain(text: &str) -> Result<String, &'static str> {
    const LONGEST: usize = 253 - 64;
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.is_empty() || (text.len() <= LONGEST && text.split('.').all(is_label)) {
        return Ok(text.to_owned());
    }
    Err("is not a domain in lower case")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        urls: ServiceUrls,
    }

    fn urls(flags: &[&str]) -> Result<ServiceUrls, clap::Error> {
        Line::try_parse_from([&["role"], flags].concat()).map(|line| line.urls)
    }

    fn url(flags: &[&str], service: &str) -> String {
        urls(flags).unwrap().url("w", "s", service)
    }

    #[test]
    fn a_service_has_a_name_in_the_domain() {
        assert_eq!(url(&["--service-domain=apps.example.com"], "web"), "https://w--s--web.apps.example.com/");
        assert_eq!(url(&["--service-domain=apps.example.com"], ""), "https://w--s.apps.example.com/");
    }

    #[test]
    fn without_a_domain_there_is_no_address() {
        assert_eq!(url(&["--service-port=8080"], "web"), "");
        assert_eq!(url(&["--service-domain="], "web"), "");
    }

    #[test]
    fn what_is_local_or_said_to_be_is_plain() {
        assert_eq!(url(&["--service-domain=localhost"], ""), "http://w--s.localhost/");
        assert_eq!(url(&["--service-domain=apps.localhost"], ""), "http://w--s.apps.localhost/");
        assert_eq!(url(&["--service-domain=example.com", "--service-plaintext"], ""), "http://w--s.example.com/");
        assert_eq!(url(&["--service-domain=notlocalhost"], ""), "https://w--s.notlocalhost/");
    }

    #[test]
    fn the_usual_port_is_left_out() {
        let port = |port: &str, more: &[&str]| {
            url(&[&["--service-domain=example.com", &format!("--service-port={port}")], more].concat(), "")
        };
        assert_eq!(port("443", &[]), "https://w--s.example.com/");
        assert_eq!(port("80", &[]), "https://w--s.example.com:80/");
        assert_eq!(port("80", &["--service-plaintext"]), "http://w--s.example.com/");
        assert_eq!(port("8443", &["--service-plaintext"]), "http://w--s.example.com:8443/");
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for bad in ["Example.com", "a..b", ".a", "a.", "-a.b", "a-.b", "a b", "a/b", "a:1", &"a.".repeat(100)] {
            assert!(urls(&[&format!("--service-domain={bad}")]).is_err(), "{bad}");
        }
        assert!(urls(&["--service-port=0"]).is_err());
    }
}
