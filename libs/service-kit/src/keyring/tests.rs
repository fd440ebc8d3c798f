use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::bytes::Bytes;
use roadstead_proto::internal::Sealed;
use roadstead_proto::role::Role;
use roadstead_proto::sealing::OpenError;
use secrecy::ExposeSecret as _;
use tempfile::tempdir;

use super::*;
use crate::hmac_keys::UnknownKey;
use crate::role_keys::{KeyError, RoleKeys};
use crate::sandbox_token::TokenError;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn keyring() -> Keyring {
    Keyring::generate(now()).unwrap()
}

/// As it comes from the file, so that the file's form is tested too.
fn exported(keyring: &Keyring, role: Role) -> RoleKeys {
    let folder = tempdir().unwrap();
    let file = folder.path().join(RoleKeys::file_name(role));
    keyring.export(role).save(&file).unwrap();
    RoleKeys::load(&file, role).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_keyring_survives_its_file() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    let mut keyring = keyring();
    keyring.create(&file).unwrap();
    keyring.rotate(now()).unwrap();
    keyring.stage(now()).unwrap();
    keyring.save(&file).unwrap();
    assert_eq!(mode(&file), 0o600);
    let loaded = Keyring::load(&file).unwrap();
    assert_eq!(loaded.deployment(), keyring.deployment());
    assert_eq!(loaded.keys().collect::<Vec<_>>(), keyring.keys().collect::<Vec<_>>());
    let seed = |keyring: &Keyring| keyring.export(Role::Edge).broker_seed().expose_secret().to_owned();
    assert_eq!(seed(&loaded), seed(&keyring));
    // Nothing but the file itself is left behind.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_keyring_is_never_made_over_another() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    let first = keyring();
    first.create(&file).unwrap();
    let error = keyring().create(&file).unwrap_err();
    assert!(matches!(error, KeyringError::File(KeyFileError::Exists { .. })), "{error}");
    assert_eq!(Keyring::load(&file).unwrap().deployment(), first.deployment());
}

#[test]
fn a_file_that_others_can_open_is_refused_with_the_remedy() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    keyring().create(&file).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o610, 0o644, 0o660] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let error = Keyring::load(&file).unwrap_err();
        assert!(matches!(error, KeyringError::File(KeyFileError::NotPrivate { .. })), "{error}");
        assert!(error.to_string().contains(&format!("chmod 600 {}", file.display())), "{error}");
    }
    for mode in [0o600, 0o400] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        Keyring::load(&file).unwrap();
    }
}

#[test]
fn what_is_no_keyring_is_refused_without_quoting_it() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    keyring().create(&file).unwrap();
    let sound = fs::read_to_string(&file).unwrap();
    let id = keyring().keys().next().unwrap().id;
    let secret_id = sound.find("\"id\": \"").unwrap() + 7;
    let old_id = &sound[secret_id..secret_id + id.len()];
    for unsound in [
        String::new(),
        "{}".to_owned(),
        "[]".to_owned(),
        sound.replace("\"format\": 1", "\"format\": 2"),
        sound.replace("\"active\"", "\"canary\""),
        sound.replace(old_id, "Canary/../id"),
        sound.replace(old_id, ""),
        sound.replace("\"secret\": \"", "\"secret\": \"canary"),
        sound.replace("\"deployment\": \"", "\"deployment\": \"canary"),
        sound.replace("\"active\": {", "\"next\": {\"id\": \"k1\"}, \"active\": {"),
    ] {
        fs::write(&file, &unsound).unwrap();
        let error = Keyring::load(&file).unwrap_err();
        assert!(matches!(error, KeyringError::File(KeyFileError::Invalid { .. })), "{unsound}");
        assert!(!error.to_string().to_lowercase().contains("canary"), "{error}");
    }
    fs::remove_file(&file).unwrap();
    assert!(matches!(Keyring::load(&file), Err(KeyringError::File(KeyFileError::Read { .. }))));
    assert!(matches!(Keyring::load(folder.path()), Err(KeyringError::File(KeyFileError::NotAFile { .. }))));
}

#[test]
fn two_keys_with_one_id_are_refused() {
    let mut keyring = keyring();
    keyring.rotate(now()).unwrap();
    keyring.old[0].id = keyring.active.id.clone();
    assert!(keyring.check().is_err());
}

#[test]
fn a_key_goes_from_announced_to_active_to_verify_only_to_gone() {
    let mut keyring = keyring();
    let first = keyring.active.id.clone();
    let next = keyring.stage(now()).unwrap().to_owned();
    assert!(matches!(keyring.stage(now()), Err(KeyringError::AlreadyStaged(_))));
    keyring.rotate(now()).unwrap();
    let states: Vec<_> = keyring.keys().map(|key| (key.id, key.state)).collect();
    assert_eq!(states, [(next.clone(), KeyState::Active), (first.clone(), KeyState::VerifyOnly)]);
    assert!(matches!(keyring.retire(&next), Err(KeyringError::NotRetirable(_))));
    keyring.retire(&first).unwrap();
    assert_eq!(keyring.keys().count(), 1);
}

#[test]
fn old_keys_are_bounded() {
    let mut keyring = keyring();
    for _ in 0..MAX_OLD_KEYS {
        keyring.rotate(now()).unwrap();
    }
    assert!(matches!(keyring.rotate(now()), Err(KeyringError::Full)));
}

#[test]
fn each_role_holds_what_it_needs_and_nothing_else() {
    let keyring = keyring();
    for role in Role::ALL {
        let keys = exported(&keyring, role);
        let held = [
            keys.postgres_password().is_ok(),
            keys.door_seal().is_ok(),
            keys.admission_seal().is_ok(),
            keys.token_verifier().is_ok(),
            keys.token_signer().is_ok(),
            keys.fingerprints().is_ok(),
            keys.credentials().is_ok(),
            keys.snapshots().is_ok(),
            keys.environment_digests().is_ok(),
            keys.page_tokens().is_ok(),
        ];
        #[rustfmt::skip]
        let expected = match role {
            //                            passwd doorseal open   verify sign   finger cred   snap   digest page
            Role::Edge =>             [false, true,  false, true,  false, false, false, false, false, false],
            Role::Admission =>        [true,  false, true,  true,  true,  true,  true,  false, false, false],
            Role::ConfigSnapshot =>   [true,  false, false, true,  false, false, true,  true,  true,  false],
            Role::Watch =>            [true,  false, false, false, false, false, false, false, false, true],
            Role::SupervisorBridge => [false, true,  false, true,  false, false, false, true,  false, false],
            Role::Operator =>         [false, true,  false, false, false, false, false, false, false, false],
        };
        assert_eq!(held, expected, "{role}");
        assert!(keys.broker_seed().expose_secret().starts_with("SU"));
    }
}

#[test]
fn a_key_that_is_not_held_is_an_error_that_names_it() {
    let error = keyring().export(Role::Edge).fingerprints().unwrap_err();
    assert_eq!(error, KeyError::Missing { role: Role::Edge, what: "fingerprint key" });
}

#[test]
fn the_key_file_of_another_role_is_refused() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("keys.json");
    keyring().export(Role::Admission).save(&file).unwrap();
    assert_eq!(mode(&file), 0o600);
    let error = RoleKeys::load(&file, Role::Edge).unwrap_err();
    assert!(error.to_string().contains("it is for role admission, not edge"), "{error}");
}

#[test]
fn every_secret_of_every_role_differs() {
    let keyring = keyring();
    let mut secrets: Vec<String> = Vec::new();
    for role in Role::ALL {
        secrets.push(keyring.export(role).broker_seed().expose_secret().to_owned());
    }
    let owner = keyring.export_owner();
    secrets.push(owner.owner_password().expose_secret().to_owned());
    for role in OwnerKeys::ROLES {
        let password = owner.role_password(role).unwrap().expose_secret().to_owned();
        assert_eq!(password, keyring.export(role).postgres_password().unwrap().expose_secret());
        secrets.push(password);
    }
    let admission = keyring.export(Role::Admission);
    let snapshot = keyring.export(Role::ConfigSnapshot);
    let watch = keyring.export(Role::Watch);
    for set in [
        &admission.token_signing,
        &admission.token_public,
        &admission.seal,
        &keyring.export(Role::Edge).admission_public,
        &admission.fingerprint,
        &admission.credential,
        &snapshot.snapshot,
        &snapshot.environment_digest,
        &watch.page_token,
    ] {
        secrets.push(STANDARD.encode(set.as_ref().unwrap().active.key.expose()));
    }
    let count = secrets.len();
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), count);
}

#[test]
fn the_broker_knows_each_role_by_the_key_it_signs_with() {
    let mut keyring = keyring();
    let before = exported(&keyring, Role::Edge);
    keyring.stage(now()).unwrap();
    let announced = keyring.export_broker();
    keyring.rotate(now()).unwrap();
    let after = exported(&keyring, Role::Edge);
    let public = |keys: &RoleKeys| nkeys::KeyPair::from_seed(keys.broker_seed().expose_secret()).unwrap().public_key();
    for broker in [announced, keyring.export_broker()] {
        assert_eq!(broker.users().count(), Role::ALL.len());
        for keys in [&before, &after] {
            assert!(broker.of(Role::Edge).contains(&public(keys)));
            assert!(!broker.of(Role::Watch).contains(&public(keys)));
        }
    }
}

#[test]
fn a_rotation_in_steps_refuses_nothing() {
    let mut keyring = keyring();
    let before = keyring.clone();
    keyring.stage(now()).unwrap();
    let staged = keyring.clone();
    keyring.rotate(now()).unwrap();
    let after = keyring;
    // Each step reaches processes one by one, so neighbours in the sequence meet.
    for (older, newer) in [(&before, &staged), (&staged, &after)] {
        for (one, other) in [(older, newer), (newer, older), (newer, newer)] {
            all_agree(one, other);
        }
    }
}

fn all_agree(made_by: &Keyring, used_by: &Keyring) {
    let id = Uuid::from_u128(7);
    let door = exported(made_by, Role::Edge).door_seal().unwrap();
    let admission = exported(used_by, Role::Admission).admission_seal().unwrap();
    let sealed = door.seal_command(id, b"command");
    assert_eq!(admission.open_command(id, &sealed), Ok(Bytes::from_static(b"command")));
    let answer = admission.seal_answer(id, &sealed, b"answer").unwrap();
    assert_eq!(door.open_answer(id, &answer), Ok(Bytes::from_static(b"answer")));

    let token = exported(made_by, Role::Admission).token_signer().unwrap().mint(id, 1, now(), Duration::from_secs(60));
    let verifier = exported(used_by, Role::SupervisorBridge).token_verifier().unwrap();
    assert_eq!(verifier.verify(token.token.expose_secret(), now()).unwrap().sandbox_id, id);

    let tags = exported(made_by, Role::Admission).fingerprints().unwrap();
    let checks = exported(used_by, Role::Admission).fingerprints().unwrap();
    assert_eq!(checks.verify(tags.active_id(), b"payload", &tags.tag(b"payload")), Ok(true));
    assert_eq!(checks.verify(tags.active_id(), b"other", &tags.tag(b"payload")), Ok(false));

    let credential = exported(made_by, Role::Admission).credentials().unwrap().encrypt(b"provider", b"value");
    let credentials = exported(used_by, Role::ConfigSnapshot).credentials().unwrap();
    assert_eq!(credentials.decrypt(b"provider", &credential).unwrap(), b"value");
    let environment = exported(made_by, Role::ConfigSnapshot).snapshots().unwrap().encrypt(b"sandbox", b"value");
    let snapshots = exported(used_by, Role::SupervisorBridge).snapshots().unwrap();
    assert_eq!(snapshots.decrypt(b"sandbox", &environment).unwrap(), b"value");
}

#[test]
fn a_key_that_is_gone_opens_nothing_and_says_so() {
    let made_by = keyring();
    let mut used_by = made_by.clone();
    used_by.rotate(now()).unwrap();
    used_by.retire(&made_by.active.id).unwrap();
    let id = Uuid::from_u128(7);

    let admission = exported(&used_by, Role::Admission);
    let sealed: Sealed = exported(&made_by, Role::Edge).door_seal().unwrap().seal_command(id, b"command");
    let seal = admission.admission_seal().unwrap();
    assert_eq!(seal.open_command(id, &sealed), Err(OpenError::UnknownKey));
    assert_eq!(seal.seal_answer(id, &sealed, b"answer"), Err(OpenError::UnknownKey));

    let old = exported(&made_by, Role::Admission);
    let token = old.token_signer().unwrap().mint(id, 1, now(), Duration::from_secs(60)).token;
    let verdict = admission.token_verifier().unwrap().verify(token.expose_secret(), now());
    assert_eq!(verdict, Err(TokenError::UnknownKey));

    let tags = old.fingerprints().unwrap();
    let verdict = admission.fingerprints().unwrap().verify(tags.active_id(), b"payload", &tags.tag(b"payload"));
    assert_eq!(verdict, Err(UnknownKey));

    let credential = old.credentials().unwrap().encrypt(b"provider", b"value");
    assert_eq!(admission.credentials().unwrap().decrypt(b"provider", &credential), Err(OpenError::UnknownKey));
}

#[test]
fn the_owners_file_has_every_password() {
    let folder = tempdir().unwrap();
    let file = folder.path().join(OwnerKeys::FILE_NAME);
    let keyring = keyring();
    keyring.export_owner().save(&file).unwrap();
    assert_eq!(mode(&file), 0o600);
    let owner = OwnerKeys::load(&file).unwrap();
    assert_eq!(owner.owner_password().expose_secret().len(), 64);
    assert!(owner.role_password(Role::Edge).is_none());
    let text = fs::read_to_string(&file).unwrap().replace("\"watch\"", "\"watcher\"");
    fs::write(&file, text).unwrap();
    let error = OwnerKeys::load(&file).unwrap_err();
    assert!(error.to_string().contains("no password for role watch"), "{error}");
}

#[test]
fn nothing_secret_is_shown() {
    let keyring = keyring();
    let master = STANDARD.encode(keyring.active.secret.expose());
    let bytes = format!("{:?}", &keyring.active.secret.expose()[..4]);
    let mut shown = format!("{keyring:?} {:?}", keyring.export_owner());
    let mut secrets = vec![master, bytes[1..bytes.len() - 1].to_owned()];
    for role in Role::ALL {
        let keys = keyring.export(role);
        shown += &format!("{keys:?} {:?} {:?}", keys.credentials(), keys.fingerprints());
        shown += &format!("{:?} {:?} {:?}", keys.door_seal(), keys.admission_seal(), keys.page_tokens());
        secrets.push(keys.broker_seed().expose_secret().to_owned());
        secrets.extend(keys.postgres_password().ok().map(|password| password.expose_secret().to_owned()));
    }
    for secret in secrets {
        assert!(!shown.contains(&secret), "{shown}");
    }
}

/// What is stored and signed in running deployments depends on these: a change here locks them out.
#[test]
fn what_is_derived_never_changes() {
    let keyring = Keyring {
        format: FORMAT,
        deployment: Uuid::from_u128(1),
        active: MasterKey { id: "k1".to_owned(), secret: SecretKey::from_bytes([7; 32]), created: 0 },
        next: None,
        old: Vec::new(),
    };
    let admission = keyring.export(Role::Admission);
    let snapshot = keyring.export(Role::ConfigSnapshot);
    let key =
        |set: &Option<crate::role_keys::key_set::KeySet>| STANDARD.encode(set.as_ref().unwrap().active.key.expose());
    let derived = [
        keyring.export_broker().of(Role::Edge)[0].clone(),
        admission.postgres_password().unwrap().expose_secret().to_owned(),
        keyring.export_owner().owner_password().expose_secret().to_owned(),
        key(&admission.token_public),
        key(&keyring.export(Role::Edge).admission_public),
        key(&admission.fingerprint),
        key(&admission.credential),
        key(&snapshot.snapshot),
        key(&snapshot.environment_digest),
        key(&keyring.export(Role::Watch).page_token),
    ];
    let expected = [
        "UAX3YVA6ITQ4SDJVRFF2X53MDFN5RXGDWFCXWDNZUT6ZKT2KYVUTCIUZ",
        "acd7c89532325d4de5b836360178e5cc18d3f797b55f0c5000238396a87cbbf8",
        "6e0b0793f709a0f3b5520a1fe4dc64d480187b0421223ffebbad012fb9372574",
        "tgLAdD6FBaZxy9irPfrRGQGptQ25p68jaNceQiXT0KQ=",
        "XuI91T3Dtosy/vxRdJrWbtM4x2UbhaMTSpxbMpZqyBc=",
        "WnaEAjt3VpTZuCTRkYC7LaRoPR2XsPkd0ZeYhMH1LJ0=",
        "3hxkmSjBonb4Gp3ZsWi9CLstpnl1z0GN1mtguRr3/oY=",
        "+BlY8sG/MsL2wAByp8MeZcbNjVuYplFqHJjjFb+62kY=",
        "0ldgQWukbyol0bIO6KYazBPbygxsjPYDD1710gRtpTI=",
        "sFBPlu5dHkzouV69Y1XTr8CP7QuiSa9s+wMwJUXmoz8=",
    ];
    assert_eq!(derived, expected);
}
