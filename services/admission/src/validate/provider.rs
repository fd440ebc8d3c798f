//! A provider's own values.

use roadstead_policy::budget;
use roadstead_store::row::Pairs;

use super::{Checked, at_most, count_at_most};
use crate::refusal::Refusal;

/// Credentials of one provider.
pub const CREDENTIALS: usize = 32;
/// Configuration entries of one provider.
pub const CONFIG: usize = 64;
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 8192;

/// Keys and values of credentials. Those whose key is a variable's name go into the environment of a sandbox.
///
/// # Errors
/// `Invalid` with the field; the text never repeats a value.
pub fn credentials(credentials: &Pairs) -> Checked {
    count_at_most("provider.credentials", credentials.len(), CREDENTIALS)?;
    credentials.iter().try_for_each(|(key, value)| entry("provider.credentials", key, value))
}

/// Keys and values of the configuration.
///
/// # Errors
/// `Invalid` with the field.
pub fn config(config: &Pairs) -> Checked {
    count_at_most("provider.config", config.len(), CONFIG)?;
    config.iter().try_for_each(|(key, value)| entry("provider.config", key, value))
}

fn entry(field: &str, key: &str, value: &str) -> Checked {
    if key.is_empty() || key.contains(char::is_control) {
        return Err(Refusal::invalid(field, "a key may not be empty or contain control characters"));
    }
    at_most(field, key, KEY_BYTES)?;
    at_most(field, value, VALUE_BYTES)?;
    if value.contains('\0') {
        return Err(Refusal::invalid(field, "a value may not contain NUL"));
    }
    Ok(())
}

/// All of one provider together, as a snapshot carries it: credentials as (key, length of the value), configuration.
///
/// # Errors
/// `Invalid` if there are too many entries or the budget of one provider is exceeded.
pub fn whole<'a>(credentials: impl IntoIterator<Item = (&'a str, usize)>, config: &Pairs) -> Checked {
    let credentials = credentials.into_iter().collect::<Vec<_>>();
    count_at_most("provider.credentials", credentials.len(), CREDENTIALS)?;
    count_at_most("provider.config", config.len(), CONFIG)?;
    let config = config.iter().map(|(key, value)| (key.as_str(), value.len()));
    Ok(budget::check_provider(credentials, config)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: &str, value: &str) -> Pairs {
        [(key.to_owned(), value.to_owned())].into()
    }

    #[test]
    fn credentials_are_of_bounded_size() {
        assert!(credentials(&one("API_KEY", "line\nline")).is_ok());
        assert!(credentials(&one("", "x")).is_err());
        assert!(credentials(&one("API_KEY", &"x".repeat(8193))).is_err());
        assert!(credentials(&(0..33).map(|at| (format!("K{at}"), "x".into())).collect()).is_err());
    }

    #[test]
    fn no_refusal_repeats_a_value() {
        let text = credentials(&one("API_KEY", &format!("hush\0{}", "x".repeat(9000)))).unwrap_err().to_string();
        assert!(!text.contains("hush"));
    }

    #[test]
    fn the_whole_has_a_budget() {
        let credentials = [("K", 8192); 8];
        assert!(whole(credentials.iter().copied().take(6), &Pairs::new()).is_ok());
        assert!(whole(credentials, &Pairs::new()).is_err());
    }
}
