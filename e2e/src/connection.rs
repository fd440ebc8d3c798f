//! The broker of a stack as one of its roles sees it.

use std::time::Duration;

use roadstead_bus::{Bus, ConnectSettings};
use roadstead_proto::{role::Role, stream::Stream};
use roadstead_service_kit::role_keys::RoleKeys;
use roadstead_testkit::Stack;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(10);

/// Connects with the keys of `role`.
pub async fn connect_as(stack: &mut Stack, role: Role) -> Bus {
    let keys = RoleKeys::load(&stack.keys_of(role.name()), role).unwrap();
    let settings = ConnectSettings {
        url: stack.broker().url(),
        name: format!("a test as {role}"),
        role,
        nkey_seed: Some(keys.broker_seed().clone()),
        ca: None,
    };
    let bus = Bus::connect(settings).await.unwrap();
    bus.connected().await;
    bus
}

/// Gives a stream room for so many messages; `admission` is a connection of that role. Admission itself puts it right again
/// when it looks: after a reconnect, and twice a minute.
pub async fn limit(admission: &Bus, stream: Stream, messages: i64) {
    let name = stream.config().name;
    let mut info = ask(admission, &format!("STREAM.INFO.{name}"), &Value::Null).await;
    let mut config = info["config"].take();
    config["max_msgs"] = messages.into();
    ask(admission, &format!("STREAM.UPDATE.{name}"), &config).await;
}

async fn ask(admission: &Bus, call: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = admission.request(format!("$JS.API.{call}"), body.into(), SOON).await.unwrap();
    let reply: Value = serde_json::from_slice(&reply).unwrap();
    assert_eq!(reply["error"], Value::Null, "{call}");
    reply
}
