//! Which requests an endpoint lets through: a preset or rules that allow, and rules that deny.

use roadstead_proto::api::sandbox::{L7Allow, L7DenyRule, L7Rule, NetworkAccessPreset as Preset, NetworkEndpoint};

use crate::refusal::{Path, Reason, Refusal};

const NONE: i32 = Preset::Unspecified as i32;
const FULL: i32 = Preset::Full as i32;

/// What lets requests through.
#[derive(Clone, Copy)]
pub(super) struct Allowed<'a> {
    pub(super) access: i32,
    pub(super) rules: &'a [L7Rule],
}

impl<'a> Allowed<'a> {
    pub(super) fn by(endpoint: &'a NetworkEndpoint) -> Self {
        Self { access: endpoint.access, rules: &endpoint.rules }
    }

    /// Whether all that `inner` lets through is let through, as far as they say so word by word.
    pub(super) fn covers(self, inner: Self, protocol: &str) -> bool {
        if self.access == FULL {
            return true;
        }
        let (most, more) = match (written_out(protocol, self.access), written_out(protocol, inner.access)) {
            (Some(most), Some(more)) => (most, more),
            _ if inner.access == self.access => (Vec::new(), Vec::new()),
            _ => return false,
        };
        more.iter().chain(inner.rules).all(|rule| most.contains(rule) || self.rules.contains(rule))
    }
}

/// Lets through what `added` lets through, beside what is let through already.
pub(super) fn allow(endpoint: &mut NetworkEndpoint, added: Allowed<'_>, at: &Path<'_>) -> Result<(), Refusal> {
    if Allowed::by(endpoint).covers(added, &endpoint.protocol) {
        return Ok(());
    }
    if added.access == FULL {
        (endpoint.access, endpoint.rules) = (FULL, Vec::new());
        return Ok(());
    }
    // A preset and rules exclude each other, so presets are written out.
    let written = |access| written_out(&endpoint.protocol, access).ok_or_else(|| at.refuse(Reason::PresetNotRules));
    let (own, more) = (written(endpoint.access)?, written(added.access)?);
    endpoint.access = NONE;
    append(&mut endpoint.rules, &own);
    append(&mut endpoint.rules, &more);
    append(&mut endpoint.rules, added.rules);
    Ok(())
}

/// Denies more of what is let through.
pub(super) fn deny(endpoint: &mut NetworkEndpoint, added: &[L7DenyRule], at: &Path<'_>) -> Result<(), Refusal> {
    if added.iter().all(|rule| endpoint.deny_rules.contains(rule)) {
        return Ok(());
    }
    if endpoint.access == NONE && endpoint.rules.is_empty() {
        return Err(at.refuse(Reason::NothingAllowed));
    }
    append(&mut endpoint.deny_rules, added);
    Ok(())
}

/// The rules that a preset stands for; none where rules cannot say the same.
fn written_out(protocol: &str, access: i32) -> Option<Vec<L7Rule>> {
    let methods: &[&str] = match (Preset::try_from(access).ok()?, protocol) {
        (Preset::Unspecified, _) => &[],
        (Preset::ReadOnly, "rest") => &["GET", "HEAD", "OPTIONS"],
        (Preset::ReadWrite, "rest") => &["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"],
        (Preset::ReadOnly | Preset::ReadWrite | Preset::Full, _) => return None,
    };
    let rule = |method: &&str| L7Rule {
        allow: Some(L7Allow { method: (*method).to_owned(), path: "**".to_owned(), ..Default::default() }),
    };
    Some(methods.iter().map(rule).collect())
}

/// Appends what is not there yet.
fn append<R: Clone + PartialEq>(known: &mut Vec<R>, more: &[R]) {
    for rule in more {
        if !known.contains(rule) {
            known.push(rule.clone());
        }
    }
}
