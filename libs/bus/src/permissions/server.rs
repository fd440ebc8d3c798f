//! The broker's configuration file.

use std::fmt::{Display, Write as _};
use std::path::Path;

use roadstead_proto::role::Role;

use super::Permissions;

/// Who may connect.
#[derive(Debug, Clone)]
pub enum Auth {
    /// Anybody, as anybody: for tests of parts.
    Open,
    /// The roles, each by its nkey's public half.
    Nkeys(Vec<(Role, String)>),
}

/// The text of a whole `nats-server.conf`: `listen` is an address with port, `store_dir` the folder of the streams. A
/// deployment that leaves the machine adds a `tls` block.
#[must_use]
pub fn server_config(listen: impl Display, store_dir: &Path, auth: &Auth) -> String {
    format!(
        r#"listen: {listen}
jetstream {{
  store_dir: {store_dir}
  # What the broker loses in a crash is made again from Postgres.
  sync_interval: "1s"
}}
{rest}"#,
        listen = quoted(&listen.to_string()),
        store_dir = quoted(&store_dir.to_string_lossy()),
        rest = limits_and_users(auth),
    )
}

/// The part of the configuration that does not depend on where the broker runs: limits, and who may do what.
#[must_use]
pub fn limits_and_users(auth: &Auth) -> String {
    let mut text = String::from(
        r#"max_payload: 4MB
# A client that does not read is cut off instead of buffered for.
write_deadline: "5s"
# Room for the snapshots of a fleet on their way to one bridge.
max_pending: 256MB
ping_interval: "10s"
ping_max: 2
"#,
    );
    if let Auth::Nkeys(keys) = auth {
        text.push_str("authorization {\n  users: [\n");
        for (role, public_key) in keys {
            user(&mut text, *role, public_key);
        }
        text.push_str("  ]\n}\n");
    }
    text
}

fn user(text: &mut String, role: Role, public_key: &str) {
    let Permissions { publish, subscribe, answers_requests } = Permissions::of(role);
    let responses = if answers_requests { r#"allow_responses: { max: 1, expires: "2m" }"# } else { "" };
    // Writing to a string cannot fail.
    let _written = write!(
        text,
        r"    # {role}
    {{
      nkey: {key}
      permissions: {{
        publish: {{ allow: [{publish}] }}
        subscribe: {{ allow: [{subscribe}] }}
        {responses}
      }}
    }}
",
        key = quoted(public_key),
        publish = list(&publish),
        subscribe = list(&subscribe),
    );
}

fn list(subjects: &[String]) -> String {
    subjects.iter().map(|subject| quoted(subject)).collect::<Vec<_>>().join(", ")
}

/// A string of the configuration language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_gets_its_user() {
        let keys = Role::ALL.map(|role| (role, format!("U{role}"))).to_vec();
        let text = server_config("127.0.0.1:4222", Path::new("/data/nats"), &Auth::Nkeys(keys));
        for role in Role::ALL {
            assert!(text.contains(&format!("nkey: \"U{role}\"")), "{text}");
        }
    }

    #[test]
    fn paths_cannot_leave_their_quotes() {
        let text = server_config("127.0.0.1:4222", Path::new(r#"/a"b\c"#), &Auth::Open);
        assert!(text.contains(r#"store_dir: "/a\"b\\c""#), "{text}");
    }
}
