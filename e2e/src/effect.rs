//! *Effect count*: each mutation had 0 or 1 effects, never 2; a reported success has its effect and a refusal none.

use std::{collections::BTreeMap, fmt};

use roadstead_testkit::sql::Session;
use tonic::{Code, Status};

use crate::api;

/// What a caller was told of a mutation in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It succeeded.
    Done {
        /// For this request id it had succeeded before.
        replayed: bool,
    },
    /// It was not carried out, and why.
    Refused(String),
    /// The outcome is unknown, and why.
    Unknown(String),
}

impl Told {
    /// Reads a status. Certain is only what the server says itself, and not every code of it.
    #[must_use]
    pub fn by(status: &Status) -> Self {
        let text = format!("{:?}: {}", status.code(), status.message());
        let broken = std::error::Error::source(status).is_some();
        let unknown = match status.code() {
            Code::Unavailable => !status.message().contains("nothing was done"),
            Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal => true,
            _ => api::reason(status) == "REQUEST_OUTCOME_UNCERTAIN",
        };
        if broken || unknown { Self::Unknown(text) } else { Self::Refused(text) }
    }

    /// Whether it succeeded.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }

    /// Whether it may have failed only for the moment: nobody was there to carry it out, or to tell its outcome.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Done { .. } => false,
            Self::Refused(why) => why.starts_with("Unavailable"),
            Self::Unknown(_) => true,
        }
    }
}

/// A mutation whose effects can be counted by its mark.
#[derive(Debug, Clone)]
pub struct Mutation {
    /// What its effects are found by; no other mutation has it.
    pub mark: String,
    /// Index of the edge it was sent through first.
    pub edge: usize,
    /// Whether it had a request id, and was repeated with it until something certain was told.
    pub has_id: bool,
    /// How often it was sent.
    pub sent: u32,
    /// What was told last.
    pub told: Told,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// More than one effect.
    Doubled { mark: String, effects: u64 },
    /// A success was told and there is no effect.
    Missing { mark: String },
    /// A refusal was told and there is an effect.
    Despite { mark: String, refusal: String },
    /// An effect that nobody asked for.
    UnaskedFor { mark: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doubled { mark, effects } => write!(formatter, "{mark} has {effects} effects"),
            Self::Missing { mark } => write!(formatter, "{mark} succeeded and has no effect"),
            Self::Despite { mark, refusal } => write!(formatter, "{mark} has an effect and was refused ({refusal})"),
            Self::UnaskedFor { mark } => write!(formatter, "{mark} has an effect and was not asked for"),
        }
    }
}

/// Compares what was told with the effects there are, by mark.
#[must_use]
pub fn judge(mutations: &[Mutation], effects: &BTreeMap<String, u64>) -> Vec<Fault> {
    let told: BTreeMap<&str, &Told> = mutations.iter().map(|one| (one.mark.as_str(), &one.told)).collect();
    assert_eq!(told.len(), mutations.len(), "two mutations have the same mark");
    let unasked = effects.keys().filter(|mark| !told.contains_key(mark.as_str()));
    let unasked = unasked.map(|mark| Fault::UnaskedFor { mark: mark.clone() });
    let judged = told.iter().filter_map(|(mark, told)| {
        let mark = (*mark).to_owned();
        match (effects.get(&mark).copied().unwrap_or(0), told) {
            (0, Told::Done { .. }) => Some(Fault::Missing { mark }),
            (1, Told::Refused(refusal)) => Some(Fault::Despite { mark, refusal: refusal.clone() }),
            (0 | 1, _) => None,
            (effects, _) => Some(Fault::Doubled { mark, effects }),
        }
    });
    judged.chain(unasked).collect()
}

/// Notes the mark of every effect that is committed from then on, for good: what it made may be deleted or, like an old
/// revision of a policy, pruned. Marks are the names of sandboxes that begin with `m`, and the annotations of revisions.
const JOURNAL: &str = "
    create schema if not exists effects;
    create table if not exists effects.effect (workspace text, mark text);
    create or replace function effects.note_sandbox() returns trigger language plpgsql security definer as $$
    begin
        insert into effects.effect values (new.workspace_name, new.name);
        return null;
    end $$;
    create or replace function effects.note_revision() returns trigger language plpgsql security definer as $$
    begin
        insert into effects.effect
            select workspace_name, new.provenance->>'mark' from roadstead.sandbox where id = new.scope;
        return null;
    end $$;
    create or replace trigger note_effect after insert on roadstead.sandbox for each row
        when (new.name like 'm%') execute function effects.note_sandbox();
    create or replace trigger note_effect after insert on roadstead.policy_revision for each row
        when (new.provenance->>'mark' is not null) execute function effects.note_revision()";

/// Begins to note effects, so that they can be counted. A second time it changes nothing.
pub async fn note(session: &mut Session) {
    session.run(JOURNAL).await;
}

/// Counts the effects of a [`crate::Load`]'s mutations in a workspace since they are noted, by mark.
pub async fn count(session: &mut Session, workspace: &str) -> BTreeMap<String, u64> {
    let count = format!("select mark, count(*) from effects.effect where workspace = '{workspace}' group by mark");
    let rows = session.run(&count).await;
    rows.into_iter().map(|row| (row[0].clone(), row[1].parse().unwrap())).collect()
}

/// The oracle: counts and compares.
///
/// # Panics
/// Something is not as what was told demands.
pub async fn assert_sound(session: &mut Session, workspace: &str, mutations: &[Mutation]) {
    let faults = judge(mutations, &count(session, workspace).await);
    let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "of {} mutations: {}", mutations.len(), text.join("; "));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutation(mark: &str, told: Told) -> Mutation {
        Mutation { mark: mark.to_owned(), edge: 0, has_id: true, sent: 1, told }
    }

    fn faults(told: Told, effects: u64) -> Vec<Fault> {
        judge(&[mutation("m", told)], &BTreeMap::from([("m".to_owned(), effects)]))
    }

    #[test]
    fn a_success_has_one_effect_a_refusal_none_and_the_unknown_at_most_one() {
        let done = Told::Done { replayed: false };
        let mark = || "m".to_owned();
        assert_eq!(faults(done.clone(), 1), []);
        assert_eq!(faults(done.clone(), 0), [Fault::Missing { mark: mark() }]);
        assert_eq!(faults(done, 2), [Fault::Doubled { mark: mark(), effects: 2 }]);
        let refused = Told::Refused("no".to_owned());
        assert_eq!(faults(refused.clone(), 0), []);
        assert_eq!(faults(refused, 1), [Fault::Despite { mark: mark(), refusal: "no".to_owned() }]);
        for (effects, sound) in [(0, true), (1, true), (2, false)] {
            assert_eq!(faults(Told::Unknown(String::new()), effects).is_empty(), sound);
        }
    }

    #[test]
    fn an_effect_without_a_mutation_is_a_fault() {
        let effects = BTreeMap::from([("other".to_owned(), 1)]);
        assert_eq!(judge(&[], &effects), [Fault::UnaskedFor { mark: "other".to_owned() }]);
    }

    #[test]
    fn only_what_the_server_says_for_certain_is_a_refusal() {
        let is_refusal = |status: &Status| matches!(Told::by(status), Told::Refused(_));
        assert!(is_refusal(&Status::already_exists("it does")));
        assert!(is_refusal(&Status::unavailable("mutations cannot be taken now; nothing was done")));
        assert!(!is_refusal(&Status::unavailable("shutting down")));
        assert!(!is_refusal(&Status::deadline_exceeded("the outcome is unknown")));
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(!is_refusal(&Status::from_error(Box::new(broken))));
    }
}
