//! The key files of a system under test.

use std::{fs, iter, path::Path};

use serde_json::Value;

use super::{program, role_password, run};
use crate::Broker;

/// Runs `roadstead keys ACTION…` for a system around these brokers. The passwords for Postgres are replaced by the run's:
/// its roles are shared by all systems of the run.
pub(crate) async fn keys(action: &[&str], folder: &Path, brokers: &[Broker]) {
    // Each broker has its own address; `init` repeats what the action has made.
    for (broker, action) in brokers.iter().zip(iter::once(action).chain(iter::repeat(&["init"][..]))) {
        let listen = format!("127.0.0.1:{}", broker.port());
        let mut command = program(&[&["keys"], action, &["--broker-listen", &listen]].concat());
        command.arg("--dir").arg(folder).arg("--broker-store").arg(broker.store());
        run(command).await;
        broker.configure(&fs::read_to_string(folder.join("broker/nats.conf")).unwrap());
    }
    for reader in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let file = reader.join("keys.json");
        if file.exists() {
            let mut keys: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            share_passwords(&mut keys, role_password());
            // Written in place, which keeps the file's mode.
            fs::write(&file, serde_json::to_vec(&keys).unwrap()).unwrap();
        }
    }
}

fn share_passwords(keys: &mut Value, password: &str) {
    for name in ["postgres_password", "owner_password"] {
        if let Some(value) = keys.get_mut(name) {
            *value = password.into();
        }
    }
    let roles = keys.get_mut("role_passwords").and_then(Value::as_object_mut);
    for value in roles.into_iter().flat_map(|roles| roles.values_mut()) {
        *value = password.into();
    }
}
