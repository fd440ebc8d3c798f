//! TLS to a Postgres that takes nothing else.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use roadstead_proto::role::Role;
use roadstead_store::database::SettingsError;
use roadstead_store::migrate::{MigrateError, ensure_database, migrate, raise_epoch, user};
use roadstead_store::mutation::{Locks, Write};
use roadstead_store::tls::TlsError;
use roadstead_store::{Database, StoreError};
use roadstead_testkit::sql::Session;
use roadstead_testkit::{Login, Postgres, Run};
use tempfile::TempDir;

use crate::world::{World, command, effect, passwords, settings, workspace};

/// A certificate authority and its file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// `url`, for connections that trust this authority.
    fn trusted(&self, url: &str) -> String {
        format!("{url}?sslmode=require&sslrootcert={}", self.file().display())
    }

    /// A certificate for `name` and its key.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A Postgres that is 127.0.0.1 by word of `authority` and lets nobody in without TLS.
async fn server(authority: &Authority) -> Postgres {
    let mut postgres = Postgres::start().await;
    let mut sql = Session::open(&postgres.superuser()).await;
    let (certificate, key) = authority.sign("127.0.0.1");
    // Written by the server itself: the key has to belong to the user it runs as.
    for (file, text) in [
        ("server.crt", certificate.as_str()),
        ("server.key", key.as_str()),
        ("pg_hba.conf", "hostssl all all 127.0.0.1/32 scram-sha-256"),
    ] {
        let lines = format!("select regexp_split_to_table('{}', '\\n')", text.trim());
        sql.run(&format!("copy ({lines}) to program 'umask 077; cat >{file}'")).await;
    }
    sql.run("alter system set ssl = on").await;
    postgres.stop().await;
    postgres.resume().await;
    postgres
}

fn admission(postgres: &Postgres) -> Login {
    let user = user(Role::Admission).unwrap().to_owned();
    Login { password: Run::get().role_password().clone(), user, ..postgres.superuser() }
}

/// Connects as admission by another address.
fn store(login: &Login, url: String) -> Result<Database, SettingsError> {
    Database::connect(roadstead_store::DatabaseSettings { url, ..settings(login, Role::Admission) })
}

/// The causes below an error, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(|error| format!("{error}; ")).collect()
}

async fn refusal(store: Result<Database, SettingsError>) -> String {
    let error = store.unwrap().now().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    causes(&error)
}

#[tokio::test]
async fn roles_and_the_owner_work_over_tls() {
    let authority = Authority::new();
    let postgres = server(&authority).await;
    let owner = authority.trusted(&postgres.owner().url_with_password()).into();
    migrate(&owner, &passwords()).await.unwrap();
    assert_eq!(raise_epoch(&owner).await.unwrap().before, 1);
    let superuser = authority.trusted(&postgres.superuser().url_with_password()).into();
    ensure_database(&superuser, "another").await.unwrap();

    let login = admission(&postgres);
    let store = store(&login, authority.trusted(&login.url())).unwrap();
    let in_flight = store.first_flight(&command(), &Locks::default()).await.unwrap();
    in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("over-tls"))])).await.unwrap();
    let mut sql = Session::open(&postgres.superuser()).await;
    assert_eq!(sql.value("select count(*) from roadstead.workspace where name = 'over-tls'").await, "1");
    let encrypted = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where usename =";
    assert_eq!(sql.value(&format!("{encrypted} '{}'", login.user)).await, "t");
}

#[tokio::test]
async fn a_server_that_is_not_who_it_should_be_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let postgres = server(&authority).await;
    let login = admission(&postgres);

    let unknown = refusal(store(&login, stranger.trusted(&login.url()))).await;
    assert!(unknown.contains("UnknownIssuer") || unknown.contains("BadSignature"), "{unknown}");
    let owner = stranger.trusted(&postgres.owner().url_with_password()).into();
    assert!(matches!(migrate(&owner, &passwords()).await, Err(MigrateError::Postgres { .. })));

    let url = Login { host: "localhost".to_owned(), ..login.clone() }.url();
    let misnamed = refusal(store(&login, authority.trusted(&url))).await;
    assert!(misnamed.contains("not valid for name"), "{misnamed}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let world = World::new().await;
    let authority = Authority::new();
    let login = crate::world::login(&world.postgres, Role::Admission);
    let refused = refusal(store(&login, authority.trusted(&login.url()))).await;
    assert!(refused.contains("does not support TLS"), "{refused}");
}

#[tokio::test]
async fn half_a_word_about_tls_is_a_settings_error() {
    let login = Login {
        host: "127.0.0.1".to_owned(),
        port: 1,
        user: "nobody".to_owned(),
        password: "none".into(),
        database: "none".to_owned(),
    };
    let error = |parameters: &str| match store(&login, format!("{}?{parameters}", login.url())) {
        Err(SettingsError::Tls(error)) => error,
        other => panic!("{parameters}: {other:?}"),
    };
    let alone = error("sslmode=require");
    assert!(matches!(alone, TlsError::NoAuthority));
    assert!(alone.to_string().contains("sslrootcert=FILE"), "{alone}");
    let file = Authority::new().file();
    assert!(matches!(error("sslrootcert=ca.pem"), TlsError::NotRequired));
    assert!(matches!(error("sslmode=prefer&sslrootcert=ca.pem"), TlsError::NotRequired));
    // Its folder went with the authority.
    assert!(matches!(error(&format!("sslmode=require&sslrootcert={}", file.display())), TlsError::Read { .. }));
    let empty = tempfile::NamedTempFile::new().unwrap();
    let empty = error(&format!("sslmode=require&sslrootcert={}", empty.path().display()));
    assert!(matches!(empty, TlsError::Read { .. }), "{empty:?}");
    let owner = format!("{}?sslmode=require", login.url_with_password()).into();
    let refused = migrate(&owner, &passwords()).await.unwrap_err();
    assert!(matches!(refused, MigrateError::Settings(SettingsError::Tls(TlsError::NoAuthority))), "{refused:?}");
}
