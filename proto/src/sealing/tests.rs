use bytes::Bytes;
use proptest::prelude::*;
use uuid::Uuid;
use x25519_dalek::{PublicKey, StaticSecret};

use super::*;
use crate::internal::Sealed;

const COMMAND: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);

fn key(byte: u8) -> SecretKey {
    SecretKey::from_bytes([byte; 32])
}

fn admission() -> AdmissionSeal {
    AdmissionSeal::new([("k1".to_owned(), key(1)), ("k2".to_owned(), key(2))])
}

fn door(byte: u8, key_id: &str) -> DoorSeal {
    DoorSeal::new(PublicKey::from(&StaticSecret::from([byte; 32])).to_bytes(), key_id).unwrap()
}

fn ciphers() -> CipherKeys {
    CipherKeys::new(("k2".to_owned(), key(2)), [("k1".to_owned(), key(1))])
}

#[test]
fn what_a_door_seals_admission_opens_and_answers() {
    let (door, admission) = (door(1, "k1"), admission());
    let sealed = door.seal_command(COMMAND, b"command");
    // Twice: agreed anew, then remembered.
    for _ in 0..2 {
        assert_eq!(admission.open_command(COMMAND, &sealed).unwrap(), "command");
        let answer = admission.seal_answer(COMMAND, &sealed, b"answer").unwrap();
        assert_eq!(door.open_answer(COMMAND, &answer).unwrap(), "answer");
    }
}

#[test]
fn another_replica_of_admission_answers_as_well() {
    let door = door(2, "k2");
    let sealed = door.seal_command(COMMAND, b"command");
    let answer = admission().seal_answer(COMMAND, &sealed, b"answer").unwrap();
    assert_eq!(door.open_answer(COMMAND, &answer).unwrap(), "answer");
}

#[test]
fn an_envelope_opens_for_its_command_only() {
    let (door, admission) = (door(1, "k1"), admission());
    let sealed = door.seal_command(COMMAND, b"command");
    assert_eq!(admission.open_command(OTHER, &sealed), Err(OpenError::Broken));
    let answer = admission.seal_answer(COMMAND, &sealed, b"answer").unwrap();
    assert_eq!(door.open_answer(OTHER, &answer), Err(OpenError::Broken));
}

#[test]
fn an_answer_does_not_pass_for_a_command_nor_a_command_for_an_answer() {
    let (door, admission) = (door(1, "k1"), admission());
    let sealed = door.seal_command(COMMAND, b"command");
    assert_eq!(door.open_answer(COMMAND, &sealed), Err(OpenError::Broken));
    let answer = admission.seal_answer(COMMAND, &sealed, b"answer").unwrap();
    assert_eq!(admission.open_command(COMMAND, &answer), Err(OpenError::Broken));
}

#[test]
fn one_door_cannot_open_what_is_for_another() {
    let (one, other, admission) = (door(1, "k1"), door(1, "k1"), admission());
    let answer = admission.seal_answer(COMMAND, &one.seal_command(COMMAND, b"command"), b"answer").unwrap();
    assert_eq!(other.open_answer(COMMAND, &answer), Err(OpenError::Broken));
    // Nor if the answer is dressed up as its own.
    let sender = other.seal_command(COMMAND, b"command").sender;
    assert_eq!(other.open_answer(COMMAND, &Sealed { sender, ..answer }), Err(OpenError::Broken));
}

#[test]
fn an_unknown_key_is_told_from_a_broken_seal() {
    let admission = admission();
    let unknown = door(3, "k3").seal_command(COMMAND, b"command");
    assert_eq!(admission.open_command(COMMAND, &unknown), Err(OpenError::UnknownKey));
    assert_eq!(admission.seal_answer(COMMAND, &unknown, b"answer"), Err(OpenError::UnknownKey));
    let impostor = door(3, "k1").seal_command(COMMAND, b"command");
    assert_eq!(admission.open_command(COMMAND, &impostor), Err(OpenError::Broken));
    let renamed = Sealed { key_id: "k2".to_owned(), ..door(1, "k1").seal_command(COMMAND, b"command") };
    assert_eq!(admission.open_command(COMMAND, &renamed), Err(OpenError::Broken));
}

#[test]
fn envelopes_of_another_shape_are_malformed() {
    let admission = admission();
    let sealed = door(1, "k1").seal_command(COMMAND, b"command");
    for malformed in [
        Sealed { sender: sealed.sender.slice(1..), ..sealed.clone() },
        Sealed { sender: Bytes::from_static(&[0; 32]), ..sealed.clone() },
        Sealed { sender: Bytes::new(), ..sealed.clone() },
        Sealed { nonce: sealed.nonce.slice(1..), ..sealed.clone() },
        Sealed { nonce: Bytes::new(), ..sealed },
    ] {
        assert_eq!(admission.open_command(COMMAND, &malformed), Err(OpenError::Malformed));
    }
    assert_eq!(admission.open_command(COMMAND, &Sealed::default()), Err(OpenError::UnknownKey));
}

#[test]
fn a_degenerate_public_key_is_refused() {
    assert!(matches!(DoorSeal::new([0; 32], "k1"), Err(WeakKey)));
}

#[test]
fn equal_messages_never_look_equal() {
    let door = door(1, "k1");
    let (one, two) = (door.seal_command(COMMAND, b"command"), door.seal_command(COMMAND, b"command"));
    assert_ne!(one.nonce, two.nonce);
    assert_ne!(one.ciphertext, two.ciphertext);
    assert_ne!(ciphers().encrypt(b"", b"value"), ciphers().encrypt(b"", b"value"));
}

#[test]
fn what_is_encrypted_belongs_to_its_context() {
    let encrypted = ciphers().encrypt(b"one", b"value");
    assert_eq!(ciphers().decrypt(b"one", &encrypted).unwrap(), b"value");
    assert_eq!(ciphers().decrypt(b"two", &encrypted), Err(OpenError::Broken));
    assert_eq!(ciphers().decrypt(b"", &encrypted), Err(OpenError::Broken));
}

#[test]
fn an_old_key_still_decrypts_and_an_unknown_one_fails_closed() {
    let old = CipherKeys::new(("k1".to_owned(), key(1)), []);
    let unknown = CipherKeys::new(("k3".to_owned(), key(3)), []);
    let impostor = CipherKeys::new(("k1".to_owned(), key(3)), []);
    assert_eq!(ciphers().decrypt(b"", &old.encrypt(b"", b"value")).unwrap(), b"value");
    assert_eq!(ciphers().decrypt(b"", &unknown.encrypt(b"", b"value")), Err(OpenError::UnknownKey));
    assert_eq!(ciphers().decrypt(b"", &impostor.encrypt(b"", b"value")), Err(OpenError::Broken));
}

#[test]
fn nothing_secret_is_shown() {
    let shown = format!("{:?} {:?} {:?} {:?}", key(7), door(1, "k1"), admission(), ciphers());
    assert!(!shown.contains('7') && !shown.contains("1, 1"), "{shown}");
}

proptest! {
    #[test]
    fn sealed_and_opened_is_the_same(id: u128, command: Vec<u8>, answer: Vec<u8>) {
        let (door, admission, id) = (door(1, "k1"), admission(), Uuid::from_u128(id));
        let sealed = door.seal_command(id, &command);
        prop_assert_eq!(admission.open_command(id, &sealed).unwrap(), command);
        let sealed_answer = admission.seal_answer(id, &sealed, &answer).unwrap();
        prop_assert_eq!(door.open_answer(id, &sealed_answer).unwrap(), answer);
    }

    #[test]
    fn no_changed_bit_of_an_envelope_passes(command: Vec<u8>, place: prop::sample::Index, bit in 0..8u8) {
        let sealed = door(1, "k1").seal_command(COMMAND, &command);
        let mut bytes = [&sealed.sender[..], &sealed.nonce, &sealed.ciphertext].concat();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let bytes = Bytes::from(bytes);
        let changed = Sealed {
            key_id: sealed.key_id,
            sender: bytes.slice(..32),
            nonce: bytes.slice(32..56),
            ciphertext: bytes.slice(56..),
        };
        prop_assert!(admission().open_command(COMMAND, &changed).is_err());
    }

    #[test]
    fn encrypted_and_decrypted_is_the_same(context: Vec<u8>, value: Vec<u8>) {
        prop_assert_eq!(ciphers().decrypt(&context, &ciphers().encrypt(&context, &value)).unwrap(), value);
    }

    #[test]
    fn no_changed_bit_of_what_is_encrypted_passes(value: Vec<u8>, place: prop::sample::Index, bit in 0..8u8) {
        let mut encrypted = ciphers().encrypt(b"context", &value);
        let place = place.index(encrypted.len());
        encrypted[place] ^= 1 << bit;
        prop_assert!(ciphers().decrypt(b"context", &encrypted).is_err());
    }

    #[test]
    fn garbage_does_not_decrypt(garbage: Vec<u8>) {
        prop_assert!(ciphers().decrypt(b"context", &garbage).is_err());
    }

    #[test]
    fn no_part_can_move_between_context_and_header(value: Vec<u8>) {
        // The key id's length stands before it, so context and header never run together.
        let one = CipherKeys::new(("k".to_owned(), key(1)), []);
        let two = CipherKeys::new(("kk".to_owned(), key(1)), [("k".to_owned(), key(1))]);
        let encrypted = one.encrypt(b"kcontext", &value);
        prop_assert!(two.decrypt(b"context", &encrypted).is_err());
        prop_assert!(two.decrypt(b"kcontext", &encrypted).is_ok());
    }
}
