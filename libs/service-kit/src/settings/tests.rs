use clap::{CommandFactory as _, Parser};
use roadstead_proto::role::Role;
use tempfile::tempdir;

use super::*;
use crate::keyring::Keyring;

#[derive(Parser, Debug)]
struct Everything {
    #[command(flatten)]
    admin: AdminSettings,
    #[command(flatten)]
    broker: BrokerSettings,
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    keys: KeysSettings,
    #[command(flatten)]
    log: LogSettings,
}

fn parsed(flags: &[&str]) -> Everything {
    Everything::parse_from(["role", "--keys=keys.json"].iter().chain(flags))
}

#[test]
fn all_of_them_go_together() {
    Everything::command().debug_assert();
}

#[test]
fn every_setting_can_come_from_the_environment_and_is_explained() {
    for argument in Everything::command().get_arguments() {
        let name = argument.get_id();
        let variable = argument.get_env().and_then(|variable| variable.to_str()).unwrap_or_default();
        assert!(variable.starts_with("ROADSTEAD_"), "{name}");
        assert!(argument.get_help().is_some_and(|help| help.to_string().len() > 40), "{name}");
    }
}

#[test]
fn each_role_has_an_admin_port_of_its_own() {
    let admin = parsed(&[]).admin;
    let mut ports: Vec<_> = Role::ALL.iter().map(|role| admin.address(*role).port()).collect();
    assert!(Role::ALL.iter().all(|role| admin.address(*role).ip().is_loopback()));
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), Role::ALL.len());
    let asked = parsed(&["--admin-listen=127.0.0.1:9"]).admin;
    assert_eq!(asked.address(Role::Watch).port(), 9);
}

#[test]
fn the_help_names_the_ports_that_are_used() {
    let command = Everything::command();
    let argument = command.get_arguments().find(|argument| argument.get_id() == "admin_listen").unwrap();
    let help = argument.get_help().unwrap().to_string();
    for role in Role::ALL.into_iter().filter(|role| *role != Role::Operator) {
        let port = parsed(&[]).admin.address(role).port();
        assert!(help.contains(&format!("{role} {port}")), "{role}");
    }
}

#[test]
fn the_broker_beyond_this_machine_needs_tls_or_leave() {
    let url = |flags: &[&str]| parsed(flags).broker.url().map(str::to_owned);
    assert!(url(&[]).is_ok());
    assert!(url(&["--nats-url=tls://nats:4222"]).is_ok());
    assert!(url(&["--nats-url=nats://nats:4222", "--nats-ca=ca.pem"]).is_ok());
    assert!(url(&["--nats-url=nats://nats:4222", "--nats-plaintext"]).is_ok());
    let error = url(&["--nats-url=tls://one:4222,nats://two:4222"]).unwrap_err();
    assert!(error.to_string().contains("--nats-plaintext"), "{error}");
}

#[test]
fn the_database_beyond_this_machine_needs_tls_or_leave() {
    let url = |flags: &[&str]| parsed(flags).database.url().map(str::to_owned);
    assert!(url(&[]).is_ok());
    assert!(url(&["--database-url=postgresql://db/roadstead?sslmode=require"]).is_ok());
    assert!(url(&["--database-url=postgresql://db/roadstead", "--database-plaintext"]).is_ok());
    assert!(url(&["--database-url=postgresql://db/roadstead?sslmode=require&sslrootcert=/etc/ca.pem"]).is_ok());
    for plain in [
        "",
        "?sslmode=prefer",
        "?sslmode=prefer&sslrootcert=/etc/ca.pem",
        "?sslmode=disable",
        "?sslmode=require&sslmode=disable",
    ] {
        let error = url(&[&format!("--database-url=postgresql://db/roadstead{plain}")]).unwrap_err();
        assert!(error.to_string().contains("--database-plaintext"), "{error}");
    }
}

#[test]
fn log_settings_are_handed_on_as_they_are() {
    let given = ["--log-format=json", "--log-level=debug", "--otlp-endpoint=http://127.0.0.1:4317"];
    assert_eq!(parsed(&given).log.arguments(), given);
    assert_eq!(parsed(&[]).log.arguments(), ["--log-format=text", "--log-level=info"]);
}

#[test]
fn keys_are_loaded_for_the_role_that_asks() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("watch.keys.json");
    Keyring::generate(crate::clock::now()).unwrap().export(Role::Watch).save(&file).unwrap();
    let flag = format!("--keys={}", file.display());
    let keys = Everything::parse_from(["role", &flag]).keys;
    assert_eq!(keys.load(Role::Watch).unwrap().role(), Role::Watch);
    assert!(keys.load(Role::Edge).is_err());
}

#[test]
fn nonsense_is_refused() {
    for flag in ["--drain-seconds=0", "--database-connections=0", "--log-level=loud", "--admin-listen=here"] {
        assert!(Everything::try_parse_from(["role", "--keys=keys.json", flag]).is_err(), "{flag}");
    }
}
