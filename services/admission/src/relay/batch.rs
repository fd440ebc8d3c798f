//! A batch of marks: one message a subject, and which rows each message settles.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;
use roadstead_proto::internal::Mark;
use roadstead_proto::subject::{Dirty, Kind, Lane};
use roadstead_store::row::OutboxRow;

/// A message to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub subject: String,
    pub payload: Bytes,
}

/// Messages and the rows behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    messages: Vec<Message>,
    /// Each row with the places of its messages.
    rows: Vec<(i64, Vec<usize>)>,
}

impl Batch {
    /// The messages for these rows: for each object one on `CHANGES`, and for a sandbox whose configuration is
    /// concerned one on the lane of single changes. Rows of one object share their messages.
    #[must_use]
    pub fn of(rows: impl IntoIterator<Item = OutboxRow>) -> Self {
        let mut batch = Self::default();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for row in rows {
            let payload: Bytes = Mark { transaction: 0, traceparent: row.traceparent.clone() }.encode_to_vec().into();
            let mut settles = Vec::with_capacity(2);
            for subject in subjects(&row) {
                let next = batch.messages.len();
                let place = *places.entry(subject.clone()).or_insert(next);
                match batch.messages.get_mut(place) {
                    Some(message) => message.payload = payload.clone(),
                    None => batch.messages.push(Message { subject, payload: payload.clone() }),
                }
                settles.push(place);
            }
            batch.rows.push((row.id, settles));
        }
        batch
    }

    /// What is to be published.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }

    /// The rows that are done with, given which messages were stored.
    #[must_use]
    pub fn settled(&self, stored: &[bool]) -> Vec<i64> {
        let is_stored = |place: &usize| stored.get(*place).copied().unwrap_or(false);
        let done = self.rows.iter().filter(|(_, places)| places.iter().all(is_stored));
        done.map(|(id, _)| *id).collect()
    }
}

fn subjects(row: &OutboxRow) -> impl Iterator<Item = String> {
    let mark = row.mark;
    let dirty = (mark.kind == Kind::Sandbox && row.configuration)
        .then(|| Dirty { lane: Lane::One, workspace_id: mark.workspace_id, sandbox_id: mark.object_id }.to_string());
    [mark.to_string()].into_iter().chain(dirty)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use roadstead_proto::subject::Changed;
    use uuid::Uuid;

    use super::*;

    fn row(id: i64, kind: Kind, object: u128, configuration: bool) -> OutboxRow {
        let mark = Changed { kind, workspace_id: Uuid::from_u128(1), object_id: Uuid::from_u128(object) };
        OutboxRow { id, mark, configuration, traceparent: format!("trace-{id}") }
    }

    fn any_rows() -> impl Strategy<Value = Vec<OutboxRow>> {
        let one = (proptest::sample::select(Kind::ALL), 0_u128..4, any::<bool>());
        proptest::collection::vec(one, 0..40).prop_map(|rows| {
            let rows = rows.into_iter().zip(0..);
            rows.map(|((kind, object, configuration), id)| row(id, kind, object, configuration)).collect()
        })
    }

    proptest! {
        #[test]
        fn each_subject_stands_once_and_every_row_has_its_messages(rows in any_rows()) {
            let batch = Batch::of(rows.clone());
            let subjects = batch.messages().map(|message| message.subject.clone()).collect::<Vec<_>>();
            prop_assert_eq!(subjects.iter().collect::<BTreeSet<_>>().len(), subjects.len());
            for row in &rows {
                prop_assert!(subjects.contains(&row.mark.to_string()));
            }
            let all = vec![true; subjects.len()];
            prop_assert_eq!(batch.settled(&all).len(), rows.len());
        }

        #[test]
        fn a_row_is_done_only_when_all_its_messages_are_stored(rows in any_rows(), seed in any::<u64>()) {
            let batch = Batch::of(rows.clone());
            let stored = (0..batch.messages().count()).map(|at| seed >> (at % 64) & 1 == 1).collect::<Vec<_>>();
            let lost = batch.messages().zip(&stored).filter(|(_, stored)| !**stored);
            let lost = lost.map(|(message, _)| message.subject.clone()).collect::<BTreeSet<_>>();
            let done = batch.settled(&stored);
            for row in &rows {
                let missing = subjects(row).any(|subject| lost.contains(&subject));
                prop_assert_eq!(done.contains(&row.id), !missing);
            }
        }
    }

    #[test]
    fn only_a_sandbox_whose_configuration_is_concerned_is_dirty() {
        for (kind, configuration, messages) in [
            (Kind::Sandbox, true, 2),
            (Kind::Sandbox, false, 1),
            (Kind::Provider, true, 1),
            (Kind::Global, true, 1),
            (Kind::Workspace, false, 1),
        ] {
            assert_eq!(Batch::of([row(1, kind, 2, configuration)]).messages().count(), messages, "{kind:?}");
        }
    }

    #[test]
    fn the_newest_trace_travels() {
        let batch = Batch::of([row(1, Kind::Sandbox, 2, false), row(2, Kind::Sandbox, 2, false)]);
        let message = batch.messages().next().unwrap();
        assert_eq!(Mark::decode(message.payload.clone()).unwrap().traceparent, "trace-2");
    }
}
