//! Text that is known again wherever it turns up.

use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use uuid::Uuid;

/// In every secret.
const SECRET: &str = "kept-secret-canary";
/// In every text that a client may choose and nobody may repeat.
const HOSTILE: &str = "hostile-text-canary";

/// What must not be found.
#[derive(Debug, Default)]
pub(crate) struct Canaries {
    /// Secrets that were made by others, such as tokens.
    others: Mutex<Vec<String>>,
}

/// Where text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    Nothing,
    /// Text that is no secret: what users wrote into their objects is stored and shown.
    Hostile,
}

impl Canaries {
    /// A secret like no other.
    pub(crate) fn secret(&self, of: &str) -> String {
        format!("{SECRET}-{of}-{}", Uuid::new_v4().simple())
    }

    /// Text that breaks lines, terminals, markup and statements.
    pub(crate) fn hostile(&self) -> String {
        format!("{HOSTILE}\r\n\u{1b}[31m<script>\"';drop table x;--{{}}%s\u{202e}")
    }

    /// Text that is allowed wherever text is, and is to be repeated nowhere all the same.
    pub(crate) fn plain(&self) -> String {
        format!("{HOSTILE}-that-is-sound")
    }

    /// A secret that somebody else made.
    pub(crate) fn add(&self, secret: &str) {
        self.others.lock().unwrap().push(secret.to_owned());
    }

    /// The needles: each as it is, as hex digits, and as base64 from each of the three places it can begin at.
    pub(crate) fn needles(&self, allowed: Allowed) -> Vec<Vec<u8>> {
        let mut texts = vec![SECRET.to_owned()];
        texts.extend(self.others.lock().unwrap().clone());
        if allowed == Allowed::Nothing {
            texts.push(HOSTILE.to_owned());
        }
        texts.iter().flat_map(|text| forms(text.as_bytes())).collect()
    }
}

fn forms(text: &[u8]) -> Vec<Vec<u8>> {
    let hex = text.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into_bytes();
    let mut forms = vec![text.to_vec(), hex];
    for before in 0..3 {
        let padded = [vec![0; before], text.to_vec()].concat();
        // Without what the bytes before and after it have a part in.
        let whole = STANDARD_NO_PAD.encode(&padded[..padded.len() / 3 * 3]);
        forms.push(whole.into_bytes()[if before == 0 { 0 } else { 4 }..].to_vec());
    }
    forms
}

#[test]
fn a_needle_is_found_in_any_coding() {
    let canaries = Canaries::default();
    let secret = canaries.secret("x");
    for before in ["", "a", "ab", "abc"] {
        let text = format!("{before}{secret} and more");
        let hex = text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
        for coded in [text.clone(), hex, STANDARD_NO_PAD.encode(&text)] {
            let found = canaries
                .needles(Allowed::Hostile)
                .iter()
                .any(|needle| coded.as_bytes().windows(needle.len()).any(|window| window == needle));
            assert!(found, "{coded}");
        }
    }
}
