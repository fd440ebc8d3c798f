//! `roadstead keys`: the deployment's keyring and the key file of each role.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use roadstead_bus::permissions::{self, Auth};
use roadstead_proto::role::Role;
use roadstead_service_kit::keyring::{Keyring, OwnerKeys};
use roadstead_service_kit::whole_file::{self, Existing};
use secrecy::ExposeSecret as _;

use crate::client::output::line;

/// The deployment's secrets.
#[derive(Args, Debug)]
pub(crate) struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make the keyring, once, and write one key file per role, for the database and for the broker. Safe to repeat
    Init(Init),
    /// Show which keys there are and what each is still used for
    List {
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
    /// Announce the next key to all roles: the first step of a rotation. Restart the roles, then run `rotate`
    Stage(Init),
    /// Make the announced key the one in use: the second step. Restart the roles; the old key still opens and verifies
    Rotate(Init),
    /// Drop an old key. What was made with it cannot be opened any more
    Retire {
        id: String,
        #[command(flatten)]
        init: Init,
    },
}

#[derive(Args, Debug)]
struct Init {
    /// Folder with one folder for each reader: deployment, the roles, owner, database, broker
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Address that the broker's configuration listens on
    #[arg(long, default_value = "127.0.0.1:4222")]
    broker_listen: SocketAddr,
    /// Folder in which the broker keeps its streams
    #[arg(long, default_value = "/broker", value_name = "DIR")]
    broker_store: PathBuf,
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Init(init) => {
                let layout = Layout::new(&init.dir);
                let keyring = layout.keyring()?;
                init.export(&layout, &keyring)
            }
            Action::List { dir } => {
                for key in Keyring::load(&Layout::new(&dir).keyring_file())?.keys() {
                    line(&format!("{}  {:?}", key.id, key.state))?;
                }
                Ok(())
            }
            Action::Stage(init) => init.change(|keyring| Ok(keyring.stage(SystemTime::now()).map(drop)?)),
            Action::Rotate(init) => init.change(|keyring| Ok(keyring.rotate(SystemTime::now())?)),
            Action::Retire { id, init } => init.change(|keyring| Ok(keyring.retire(&id)?)),
        }
    }
}

impl Init {
    fn change(&self, change: impl FnOnce(&mut Keyring) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let layout = Layout::new(&self.dir);
        let mut keyring = Keyring::load(&layout.keyring_file())?;
        change(&mut keyring)?;
        keyring.save(&layout.keyring_file())?;
        self.export(&layout, &keyring)
    }

    fn export(&self, layout: &Layout, keyring: &Keyring) -> anyhow::Result<()> {
        layout.export(keyring)?;
        let users = Auth::Nkeys(broker_users(keyring));
        let config = permissions::server_config(self.broker_listen.to_string(), &self.broker_store, &users);
        write_private(&layout.folder("broker")?.join("nats.conf"), config.as_bytes())?;
        line(&format!("keys are in {}", layout.dir.display()))
    }
}

/// Each role with the public half of each of its nkeys.
pub(crate) fn broker_users(keyring: &Keyring) -> Vec<(Role, String)> {
    let keys = keyring.export_broker();
    keys.users().flat_map(|(role, keys)| keys.iter().map(move |key| (role, key.clone()))).collect()
}

/// Where key files stand below one folder: a folder for each reader, so that each can be mounted alone.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The keyring itself.
    pub(crate) fn keyring_file(&self) -> PathBuf {
        self.dir.join("deployment/keyring.json")
    }

    /// The key file of a role.
    pub(crate) fn role_file(&self, role: Role) -> PathBuf {
        self.dir.join(role.name()).join("keys.json")
    }

    /// The passwords that `roadstead migrate` sets.
    pub(crate) fn owner_file(&self) -> PathBuf {
        self.dir.join("owner/keys.json")
    }

    /// The keyring, made at the first start.
    pub(crate) fn keyring(&self) -> anyhow::Result<Keyring> {
        let file = self.keyring_file();
        if file.exists() {
            return Ok(Keyring::load(&file)?);
        }
        self.folder("deployment")?;
        let keyring = Keyring::generate(SystemTime::now())?;
        keyring.create(&file)?;
        Ok(keyring)
    }

    /// Writes the files of all roles, of the owner, and the database's first password.
    pub(crate) fn export(&self, keyring: &Keyring) -> anyhow::Result<()> {
        for role in Role::ALL {
            self.folder(role.name())?;
            keyring.export(role).save(&self.role_file(role))?;
        }
        self.folder("owner")?;
        let owner: OwnerKeys = keyring.export_owner();
        owner.save(&self.owner_file())?;
        // The postgres image reads it after it has become a user of its own, so the folder is what guards it: only the
        // database's container mounts it.
        let password = self.folder("database")?.join("password");
        write(&password, owner.owner_password().expose_secret().as_bytes(), 0o644)
    }

    fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folder = self.dir.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(folder)
    }
}

/// Writes a file, whole, that only its owner can read.
pub(crate) fn write_private(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    write(file, content, 0o600)
}

fn write(file: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    whole_file::write(file, content, mode, Existing::Replace)
        .with_context(|| format!("cannot write {}", file.display()))
}
