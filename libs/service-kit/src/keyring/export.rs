//! Who gets which keys.

use roadstead_proto::role::Role;
use roadstead_proto::sealing::SecretKey;
use secrecy::SecretString;

use super::{BrokerKeys, Keyring, MasterKey, OwnerKeys};
use crate::derive::{self, Purpose};
use crate::role_keys::key_set::{KeySet, NamedKey};
use crate::role_keys::{self, RoleKeys};

impl Keyring {
    /// The keys of one role: what it needs and nothing else.
    #[must_use]
    pub fn export(&self, role: Role) -> RoleKeys {
        let mut keys = RoleKeys {
            format: role_keys::FORMAT,
            role,
            deployment: self.deployment,
            broker_seed: self.broker_seed(role),
            postgres_password: None,
            admission_public: None,
            token_public: None,
            token_signing: None,
            seal: None,
            fingerprint: None,
            credential: None,
            snapshot: None,
            environment_digest: None,
            page_token: None,
        };
        match role {
            Role::Edge => {
                keys.admission_public = Some(self.public_seal_keys());
                keys.token_public = Some(self.public_token_keys());
            }
            Role::SupervisorBridge => {
                keys.admission_public = Some(self.public_seal_keys());
                keys.token_public = Some(self.public_token_keys());
                keys.snapshot = Some(self.key_set(Purpose::Snapshot));
            }
            Role::Admission => {
                keys.postgres_password = Some(self.password(Purpose::Postgres(role)));
                keys.token_public = Some(self.public_token_keys());
                keys.token_signing = Some(self.key_set(Purpose::SandboxToken));
                keys.seal = Some(self.key_set(Purpose::Seal));
                keys.fingerprint = Some(self.key_set(Purpose::Fingerprint));
                keys.credential = Some(self.key_set(Purpose::Credential));
            }
            Role::ConfigSnapshot => {
                keys.postgres_password = Some(self.password(Purpose::Postgres(role)));
                keys.token_public = Some(self.public_token_keys());
                keys.credential = Some(self.key_set(Purpose::Credential));
                keys.snapshot = Some(self.key_set(Purpose::Snapshot));
                keys.environment_digest = Some(self.key_set(Purpose::EnvironmentDigest));
            }
            Role::Watch => {
                keys.postgres_password = Some(self.password(Purpose::Postgres(role)));
                keys.page_token = Some(self.key_set(Purpose::PageToken));
            }
            // Sealed, because what operators ask for can be a token.
            Role::Operator => keys.admission_public = Some(self.public_seal_keys()),
        }
        keys
    }

    /// The public keys by which the broker knows each role. Old and announced ones are in it, so that processes with
    /// older or newer exports can connect during a rotation.
    #[must_use]
    pub fn export_broker(&self) -> BrokerKeys {
        let mut users = BrokerKeys::default();
        for role in Role::ALL {
            for (_, master) in self.masters() {
                let user = derive::broker_user(&self.derived(master, Purpose::Broker(role)));
                users.add(role, user.public_key);
            }
        }
        users
    }

    /// What sets Postgres up: the owner's password and those of all roles.
    #[must_use]
    pub fn export_owner(&self) -> OwnerKeys {
        let mut owner = OwnerKeys::new(self.password(Purpose::PostgresOwner));
        for role in OwnerKeys::ROLES {
            owner.add(role, self.password(Purpose::Postgres(role)));
        }
        owner
    }

    fn broker_seed(&self, role: Role) -> SecretString {
        derive::broker_user(&self.derived(&self.active, Purpose::Broker(role))).seed
    }

    fn password(&self, purpose: Purpose) -> SecretString {
        derive::password(&self.derived(&self.active, purpose))
    }

    /// The purpose's keys, derived from every master key.
    fn key_set(&self, purpose: Purpose) -> KeySet {
        self.keys_made(|master| self.derived(master, purpose))
    }

    fn public_seal_keys(&self) -> KeySet {
        self.keys_made(|master| derive::seal_public(&self.derived(master, Purpose::Seal)))
    }

    fn public_token_keys(&self) -> KeySet {
        self.keys_made(|master| derive::token_public(&self.derived(master, Purpose::SandboxToken)))
    }

    fn keys_made(&self, make: impl Fn(&MasterKey) -> SecretKey) -> KeySet {
        let named = |master: &MasterKey| NamedKey { id: master.id.clone(), key: make(master) };
        KeySet {
            active: named(&self.active),
            others: self.masters().skip(1).map(|(_, master)| named(master)).collect(),
        }
    }

    fn derived(&self, master: &MasterKey, purpose: Purpose) -> SecretKey {
        derive::key(&master.secret, self.deployment, purpose)
    }
}
