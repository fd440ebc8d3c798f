//! The embedded servers, as real processes in temporary folders.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use roadstead_embedded::{
    Binaries, Embedded, EmbeddedSettings, Error, NatsServer, NatsSettings, PostgresServer, PostgresSettings,
    keep::Server,
};
use secrecy::ExposeSecret;
use tempfile::TempDir;

const STOP_TIME: Duration = Duration::from_secs(20);

/// The programs as the environment says, or as `./dev` has put them into the workspace.
fn binaries() -> Binaries {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.roadstead/tools/nats-server");
    let nats = env::var_os("ROADSTEAD_NATS_SERVER").map(PathBuf::from).or_else(|| fetched.exists().then_some(fetched));
    let postgres = env::var_os("ROADSTEAD_POSTGRES_BIN").map(PathBuf::from);
    Binaries::find(nats.as_deref(), postgres.as_deref()).unwrap()
}

fn settings(folder: &TempDir) -> EmbeddedSettings {
    EmbeddedSettings {
        binaries: binaries(),
        folder: folder.path().to_owned(),
        nats_port: None,
        nats_config: "max_payload: 4MB".to_owned(),
        postgres_port: None,
        postgres_settings: vec![("max_connections".to_owned(), "20".to_owned())],
        durable: false,
    }
}

fn postgres_settings(folder: &TempDir) -> PostgresSettings {
    PostgresSettings {
        bin: binaries().postgres_bin,
        folder: folder.path().join("postgres"),
        port: None,
        settings: Vec::new(),
        durable: false,
    }
}

fn psql(port: u16, password: &str, sql: &str) -> Output {
    Command::new(binaries().postgres_bin.join("psql"))
        .args(["-XAtq", "-h", "127.0.0.1", "-U", "postgres", "-c", sql, "-p", &port.to_string()])
        .env("PGPASSWORD", password)
        .output()
        .unwrap()
}

fn answer(embedded: &Embedded, sql: &str) -> String {
    let output = psql(embedded.postgres_port(), embedded.superuser_password().expose_secret(), sql);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn kill(signal: &str, pid: u32) {
    let killed = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().unwrap();
    assert!(killed.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn both_start_stop_in_order_and_find_their_data_again() {
    let folder = tempfile::tempdir().unwrap();
    let first = Embedded::start(&settings(&folder)).await.unwrap();
    answer(&first, "create table kept (value int)");
    answer(&first, "insert into kept values (7)");
    let pids = [first.nats_pid().unwrap(), first.postgres_pid().unwrap()];
    assert!(first.nats_url().starts_with("nats://127.0.0.1:"));
    first.stop(STOP_TIME).await.unwrap();
    assert!(pids.into_iter().all(|pid| !alive(pid)));

    let second = Embedded::start(&settings(&folder)).await.unwrap();
    assert_eq!(answer(&second, "select value from kept"), "7");
    second.stop(STOP_TIME).await.unwrap();
}

#[tokio::test]
async fn postgres_lets_nobody_in_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let server = PostgresServer::prepare(&postgres_settings(&folder)).await.unwrap();
    let process = server.start().await.unwrap();
    let refused = psql(server.port(), "wrong", "select 1");
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("password authentication failed"), "{refused:?}");
    assert!(!format!("{server:?}").contains(server.superuser_password().expose_secret()));
    process.stop(STOP_TIME).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_is_started_again_at_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let embedded = Embedded::start(&settings(&folder)).await.unwrap();
    answer(&embedded, "create table kept (value int)");
    let (nats, postgres) = (embedded.nats_pid().unwrap(), embedded.postgres_pid().unwrap());
    kill("KILL", nats);
    kill("KILL", postgres);
    wait_until("both run again", || {
        embedded.nats_pid().is_some_and(|pid| pid != nats) && embedded.postgres_pid().is_some_and(|pid| pid != postgres)
    });
    assert_eq!(answer(&embedded, "select count(*) from kept"), "0");
    embedded.stop(STOP_TIME).await.unwrap();
}

#[tokio::test]
async fn a_folder_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nats = NatsSettings {
        program: binaries().nats_server,
        folder: folder.path().to_owned(),
        port: None,
        config: String::new(),
    };
    let _held = NatsServer::prepare(&nats).unwrap();
    assert!(matches!(NatsServer::prepare(&nats), Err(Error::InUse { .. })));
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let nats = NatsSettings {
        program: binaries().nats_server,
        folder: folder.path().to_owned(),
        port: None,
        config: "no such setting {".to_owned(),
    };
    let error = NatsServer::prepare(&nats).unwrap().start().await.unwrap_err();
    assert!(matches!(&error, Error::Ended { log, .. } if log.contains("Parse error")), "{error}");
}

/// Not a test of its own: what the next test runs as the parent that is killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by another test"]
async fn a_parent_to_be_killed() {
    let folder = PathBuf::from(env::var_os("PARENT_FOLDER").unwrap());
    let settings = EmbeddedSettings { folder: folder.clone(), ..settings(&tempfile::tempdir().unwrap()) };
    let embedded = Embedded::start(&settings).await.unwrap();
    let pids = format!("{} {}", embedded.nats_pid().unwrap(), embedded.postgres_pid().unwrap());
    fs::write(folder.join("pids.new"), pids).unwrap();
    fs::rename(folder.join("pids.new"), folder.join("pids")).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_end_with_a_parent_that_is_killed_and_the_next_start_recovers() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    let mut parent = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_parent_to_be_killed", "--ignored"])
        .env("PARENT_FOLDER", folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let file = folder.path().join("pids");
    wait_until("the parent's servers run", || file.exists());
    let pids: Vec<u32> = fs::read_to_string(file).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| alive(*pid)));
    parent.kill().unwrap();
    parent.wait().unwrap();

    // The next owner waits for what the former left; nothing here does.
    let embedded = Embedded::start(&settings(&folder)).await.unwrap();
    assert!(pids.iter().all(|pid| !alive(*pid)));
    assert_eq!(answer(&embedded, "select 1"), "1");
    embedded.stop(STOP_TIME).await.unwrap();
}

#[tokio::test]
async fn below_a_folder_that_is_closed_to_its_user_postgres_keeps_its_data_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let wanted = postgres_settings(&folder);
    let server = PostgresServer::prepare(&wanted).await.unwrap();
    server.start().await.unwrap().stop(STOP_TIME).await.unwrap();
    let kept = server.folder().to_owned();
    drop(server);
    // Only root hands it over to another user.
    if fs::symlink_metadata(&wanted.folder).unwrap().is_symlink() {
        assert_eq!(PostgresServer::prepare(&wanted).await.unwrap().folder(), kept);
        fs::remove_dir_all(kept).unwrap();
    } else {
        assert_eq!(kept, wanted.folder.canonicalize().unwrap());
    }
}
