//! The rules of the tree: who may know whom.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use roadstead_testkit::programs::workspace;
use serde_json::Value;

/// The roles' crates.
const SERVICES: [&str; 5] = [
    "roadstead-edge",
    "roadstead-admission",
    "roadstead-config-snapshot",
    "roadstead-watch",
    "roadstead-supervisor-bridge",
];
/// The program that puts them together.
const PROGRAM: &str = "roadstead";
/// What does no I/O has nothing to do it with.
const IO: [&str; 8] = ["tokio", "hyper", "axum", "async-nats", "tokio-postgres", "nix", "reqwest", "tempfile"];

/// What each crate of the workspace names in its manifest, without what only its tests need.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name = |of: &Value| of["name"].as_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let needed = package["dependencies"].as_array().unwrap().iter();
            (name(package), needed.filter(|needed| needed["kind"] != "dev").map(name).collect())
        })
        .collect()
}

fn who_names(wanted: &str) -> Vec<String> {
    dependencies().into_iter().filter(|(_, named)| named.contains(wanted)).map(|(name, _)| name).collect()
}

#[test]
fn only_bus_knows_the_broker() {
    assert_eq!(who_names("async-nats"), ["roadstead-bus"]);
}

#[test]
fn only_store_knows_the_database() {
    for wanted in ["tokio-postgres", "deadpool-postgres", "refinery"] {
        assert_eq!(who_names(wanted), ["roadstead-store"], "{wanted}");
    }
}

#[test]
fn services_know_no_other_service() {
    for service in SERVICES {
        assert_eq!(who_names(service), [PROGRAM], "{service}");
    }
}

#[test]
fn doors_and_read_roles_reach_only_what_is_theirs() {
    let all = dependencies();
    for (service, forbidden) in [
        ("roadstead-edge", ["roadstead-store", "roadstead-policy"]),
        ("roadstead-supervisor-bridge", ["roadstead-store", "roadstead-policy"]),
    ] {
        for forbidden in forbidden {
            assert!(!all[service].contains(forbidden), "{service} names {forbidden}");
        }
    }
    for service in ["roadstead-admission", "roadstead-config-snapshot", "roadstead-watch"] {
        assert!(!all[service].contains("roadstead-door"), "{service} serves no gRPC");
    }
}

#[test]
fn what_is_pure_has_no_means_to_do_io() {
    let all = dependencies();
    for pure in ["roadstead-proto", "roadstead-policy"] {
        let means: Vec<_> = all[pure].iter().filter(|named| IO.contains(&named.as_str())).collect();
        assert!(means.is_empty(), "{pure} names {means:?}");
    }
}

#[test]
fn the_test_kit_knows_nothing_of_what_it_tests() {
    let named = &dependencies()["roadstead-testkit"];
    let own: Vec<_> = named.iter().filter(|named| named.starts_with("roadstead")).collect();
    assert_eq!(own, ["roadstead-embedded"]);
}

/// Roles in one process meet at the broker like roles in many: nothing they run holds state for the whole process.
#[test]
fn no_crate_that_roles_run_has_changing_state_of_the_whole_process() {
    const CHANGING: [&str; 7] = ["Mutex", "RwLock", "Atomic", "OnceCell", "OnceLock", "LazyLock", "thread_local!"];
    let mut found = Vec::new();
    for folder in ["proto/src", "libs/bus/src", "libs/store/src", "libs/door/src", "libs/service-kit/src", "services"] {
        for file in sources(&workspace().join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            let statics = text.lines().filter(|line| {
                let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
                (line.starts_with("static ") && !is_computed_once(line)) || line.starts_with("thread_local!")
            });
            found.extend(
                statics
                    .filter(|line| CHANGING.iter().any(|word| line.contains(word)))
                    .map(|line| format!("{}: {}", file.display(), line.trim())),
            );
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// A value that is the same for all who ask is shared, but nobody can say anything through it.
fn is_computed_once(line: &str) -> bool {
    ["LazyLock<", "OnceLock<"].iter().any(|cell| line.contains(cell))
        && !["Mutex", "RwLock", "Atomic"].iter().any(|word| line.contains(word))
}

/// The ids of known faults (docs/testing.md), by letter.
const FAULTS: [(char, &[u32]); 8] = [
    ('A', &[1, 2, 5, 7, 8, 9, 12, 13, 14, 15]),
    ('S', &[1, 3, 4, 5, 7, 8, 9, 11]),
    ('W', &[1, 2, 3, 5, 6, 8, 9]),
    ('B', &[1, 4, 5, 6, 7, 8, 9]),
    ('E', &[1, 2, 3, 6, 7, 8, 9]),
    ('P', &[2, 3, 5, 7, 8, 9]),
    ('N', &[2, 5, 6, 7, 8, 9]),
    ('O', &[1, 2, 3, 4]),
];

fn is_a_fault(id: &str) -> bool {
    let known = |(letter, numbers): &(char, &[u32])| {
        id.strip_prefix(*letter).is_some_and(|number| numbers.iter().any(|known| known.to_string() == number))
    };
    FAULTS.iter().any(known)
}

/// Every line maps a known fault, once, to tests that exist.
#[test]
fn every_mapped_fault_is_known_and_names_tests_that_exist() {
    let map = fs::read_to_string(workspace().join("e2e/faults.toml")).unwrap();
    let tests: String = ["e2e", "libs", "services"]
        .iter()
        .flat_map(|folder| sources(&workspace().join(folder)))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let mut mapped = BTreeSet::new();
    for line in map.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (id, names) = line.split_once(" = ").unwrap_or_else(|| panic!("one line for an id, not {line}"));
        assert!(is_a_fault(id), "{id} is no known fault");
        assert!(mapped.insert(id), "{id} is mapped twice");
        let names: Vec<String> = serde_json::from_str(names).unwrap_or_else(|error| panic!("{id}: {error}"));
        assert!(!names.is_empty(), "no test is mapped to {id}");
        for name in names {
            let is_test = tests.split(&format!("fn {name}(")).next().is_some_and(|before| {
                before.len() < tests.len() && before.trim_end().trim_end_matches("async").trim_end().ends_with(']')
            });
            assert!(is_test, "e2e/faults.toml names {name}, which is no test");
        }
    }
}

/// Every metric that the page for operators names is registered by some role.
#[test]
fn the_operators_page_names_metrics_that_exist() {
    let page = fs::read_to_string(workspace().join("docs/operations.md")).unwrap();
    let code: String = ["libs", "services"]
        .iter()
        .flat_map(|folder| sources(&workspace().join(folder)))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let named: BTreeSet<&str> = page
        .split("roadstead_")
        .skip(1)
        .map(|rest| rest.split(|letter: char| !letter.is_ascii_lowercase() && letter != '_').next().unwrap())
        .filter(|name| !name.is_empty())
        .collect();
    assert!(named.len() > 10, "{named:?}");
    for name in named {
        // A counter's suffix and the prefix of a role's own registry are added when it is shown.
        let name = name.trim_end_matches("_total");
        let registered = [name, name.trim_start_matches("snapshot_")];
        assert!(registered.iter().any(|name| code.contains(&format!("\"{name}\""))), "no metric is called {name}");
    }
}

#[test]
fn there_is_no_mod_rs_and_no_file_called_after_nothing() {
    for folder in ["proto", "libs", "services", "e2e"] {
        for file in sources(&workspace().join(folder)) {
            let stem = file.file_stem().unwrap().to_str().unwrap();
            assert!(
                !["mod", "utils", "util", "common", "helper", "helpers", "manager", "misc"].contains(&stem),
                "{}",
                file.display()
            );
        }
    }
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            files.extend(sources(&entry));
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            files.push(entry);
        }
    }
    files
}
