//! Names for objects whose creator gave none: two lower-case words.

/// First words; short, so that both fit the limit of a name.
const FIRST: [&str; 32] = [
    "able", "ample", "brave", "brisk", "bright", "calm", "candid", "clear", "deft", "eager", "early", "fair", "fleet",
    "frank", "gentle", "glad", "hardy", "keen", "kind", "lively", "loyal", "mellow", "merry", "noble", "plain",
    "quick", "quiet", "ready", "sober", "sturdy", "swift", "warm",
];
const CONSONANTS: &[u8; 16] = b"bdfghjklmnprstvz";
const VOWELS: &[u8; 4] = b"aeio";
/// Syllables of the second word: 64 to the 6th names follow each first word, so two do not meet by chance.
const SYLLABLES: usize = 6;

/// Coins a name of at most 19 bytes: equal seeds give equal names.
#[must_use]
pub fn coined(seed: &[u8; 32]) -> String {
    let [first, rest @ ..] = seed;
    let mut name = FIRST.get(usize::from(first % 32)).copied().unwrap_or("plain").to_owned();
    name.push('-');
    for byte in rest.iter().take(SYLLABLES) {
        name.push(letter(CONSONANTS, byte & 15));
        name.push(letter(VOWELS, byte >> 4 & 3));
    }
    name
}

fn letter(letters: &[u8], at: u8) -> char {
    letters.get(usize::from(at)).copied().map_or('a', char::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::validate::name::label;

    proptest! {
        #[test]
        fn a_coined_name_is_two_words_and_a_valid_name(seed in any::<[u8; 32]>()) {
            let name = coined(&seed);
            prop_assert!(label("name", &name).is_ok(), "{}", name);
            let words = name.split('-').collect::<Vec<_>>();
            prop_assert_eq!(words.len(), 2);
            prop_assert!(words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
            prop_assert_eq!(coined(&seed), name);
        }
    }
}
