//! The public protocol files say exactly what the descriptors of the PyPI package `openshell` 0.1.5 say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::process::Command;

use prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    ServiceDescriptor, Syntax, Value,
};
use roadstead_proto::api::FILE_DESCRIPTOR_SET;
use roadstead_proto::method::{AuthMode, Method, WorkspaceRole};

/// The facts about the package, written by `dump_descriptors.py`.
const FACTS: &str = include_str!("openshell-0.1.5.tsv");

#[test]
fn our_descriptors_equal_the_published_ones() {
    let ours = our_facts();
    let published = FACTS.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let missing = published.difference(&ours).collect::<Vec<_>>();
    let extra = ours.difference(&published).collect::<Vec<_>>();
    assert!(missing.is_empty() && extra.is_empty(), "missing: {missing:#?}\nextra: {extra:#?}");
    assert_eq!(ours.into_iter().map(|line| line + "\n").collect::<String>(), FACTS);
}

#[test]
fn the_facts_equal_the_installed_package() {
    let Some(python) = std::env::var_os("ROADSTEAD_PYTHON") else {
        eprintln!("skipped: ROADSTEAD_PYTHON names no Python that has openshell installed");
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dump_descriptors.py");
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(output.stdout).unwrap() == FACTS, "openshell-0.1.5.tsv differs; run {script} again");
}

#[test]
fn every_method_has_the_rule_that_was_published() {
    Method::check_rules().unwrap();
    let ours = Method::ALL.iter().map(|&method| {
        let rule = method.rule();
        let mut written = match rule.auth {
            AuthMode::Unauthenticated => "auth_mode=unauthenticated",
            AuthMode::Bearer => "auth_mode=bearer",
            AuthMode::Dual => "auth_mode=dual",
            AuthMode::Sandbox => "auth_mode=sandbox",
            AuthMode::Peer => "auth_mode=peer",
            AuthMode::Operator => "auth_mode=operator",
        }
        .to_owned();
        written += match rule.workspace_role {
            None => "",
            Some(WorkspaceRole::User) => " workspace_role=user",
            Some(WorkspaceRole::Admin) => " workspace_role=admin",
            Some(WorkspaceRole::Unspecified) => " workspace_role=?",
        };
        written += if rule.platform_admin { " global_role=platform_admin" } else { "" };
        if let Some(scope) = rule.scope {
            written = format!("{written} scope={scope}");
        }
        line(&["option", &format!("openshell.v1.OpenShell.{method}"), "openshell.options.v1.authorization", &written])
    });
    let published = FACTS.lines().filter(|line| line.starts_with("option\topenshell.v1.OpenShell."));
    assert_eq!(ours.collect::<BTreeSet<_>>(), published.map(str::to_owned).collect());
}

/// Everything the public files declare, in the format of `dump_descriptors.py`.
fn our_facts() -> BTreeSet<String> {
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let mut facts = BTreeSet::new();
    for file in pool.files().filter(|file| file.package_name().starts_with("openshell.")) {
        file_facts(&file, &mut facts);
    }
    facts
}

fn file_facts(file: &FileDescriptor, facts: &mut BTreeSet<String>) {
    let syntax = match file.syntax() {
        Syntax::Proto2 => "proto2",
        Syntax::Proto3 => "proto3",
    };
    facts.insert(line(&["file", file.name(), file.package_name(), syntax]));
    option_facts(file.name(), &file.options(), facts);
    for extension in file.extensions() {
        let (number, extendee) = (extension.number().to_string(), extension.containing_message());
        let kind = kind_name(&extension.kind());
        facts.insert(line(&["extension", extension.full_name(), &number, extendee.full_name(), &kind]));
    }
    file.messages().for_each(|message| message_facts(&message, facts));
    file.enums().for_each(|declared| enum_facts(&declared, facts));
    file.services().for_each(|service| service_facts(&service, facts));
}

fn message_facts(message: &MessageDescriptor, facts: &mut BTreeSet<String>) {
    let name = message.full_name();
    facts.insert(line(&["message", name]));
    option_facts(name, &message.options(), facts);
    message.fields().for_each(|field| field_facts(&field, facts));
    for reserved in message.reserved_ranges() {
        facts.insert(line(&["reserved", name, &span(reserved.start, reserved.end - 1)]));
    }
    for reserved in message.reserved_names() {
        facts.insert(line(&["reserved_name", name, reserved]));
    }
    message.child_messages().filter(|child| !child.is_map_entry()).for_each(|child| message_facts(&child, facts));
    message.child_enums().for_each(|child| enum_facts(&child, facts));
}

fn field_facts(field: &FieldDescriptor, facts: &mut BTreeSet<String>) {
    let kind = match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let (key, value) = (entry.map_entry_key_field(), entry.map_entry_value_field());
            format!("{},{}", kind_name(&key.kind()), kind_name(&value.kind()))
        }
        kind => kind_name(&kind),
    };
    let label = match field {
        field if field.is_map() => "map",
        field if field.is_list() => "repeated",
        field if field.field_descriptor_proto().proto3_optional() => "optional",
        _ => "singular",
    };
    let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
    let oneof = oneof.as_ref().map_or("-", |oneof| oneof.name());
    facts.insert(line(&["field", field.full_name(), &field.number().to_string(), label, &kind, oneof]));
    option_facts(field.full_name(), &field.options(), facts);
}

fn enum_facts(declared: &EnumDescriptor, facts: &mut BTreeSet<String>) {
    let name = declared.full_name();
    facts.insert(line(&["enum", name]));
    option_facts(name, &declared.options(), facts);
    for value in declared.values() {
        facts.insert(line(&["value", name, value.name(), &value.number().to_string()]));
        option_facts(&format!("{name}.{}", value.name()), &value.options(), facts);
    }
    for reserved in declared.reserved_ranges() {
        facts.insert(line(&["reserved", name, &span(*reserved.start(), *reserved.end())]));
    }
    for reserved in declared.reserved_names() {
        facts.insert(line(&["reserved_name", name, reserved]));
    }
}

fn service_facts(service: &ServiceDescriptor, facts: &mut BTreeSet<String>) {
    facts.insert(line(&["service", service.full_name()]));
    option_facts(service.full_name(), &service.options(), facts);
    for method in service.methods() {
        let (input, output) = (method.input(), method.output());
        let streams = [method.is_client_streaming().to_string(), method.is_server_streaming().to_string()];
        let types = [input.full_name(), output.full_name()];
        facts.insert(line(&["method", method.full_name(), types[0], types[1], &streams[0], &streams[1]]));
        option_facts(method.full_name(), &method.options(), facts);
    }
}

fn option_facts(owner: &str, options: &DynamicMessage, facts: &mut BTreeSet<String>) {
    for (field, value) in options.fields() {
        facts.insert(line(&["option", owner, field.full_name(), &value_text(value)]));
    }
    for (extension, value) in options.extensions() {
        facts.insert(line(&["option", owner, extension.full_name(), &value_text(value)]));
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::String(value) => value.clone(),
        Value::Message(message) => {
            let parts = message.fields().map(|(field, value)| format!("{}={}", field.name(), value_text(value)));
            parts.collect::<Vec<_>>().join(" ")
        }
        other => panic!("no public option has a value like {other:?}"),
    }
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(declared) => declared.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn span<N: PartialEq + std::fmt::Display>(start: N, last: N) -> String {
    if start == last { start.to_string() } else { format!("{start}-{last}") }
}

fn line(parts: &[&str]) -> String {
    parts.join("\t")
}
