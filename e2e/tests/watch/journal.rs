//! When each version of a sandbox came to be, as Postgres notes it.

use std::time::{Duration, SystemTime};

use roadstead_testkit::sql::Session;

use crate::watching::Seen;

const JOURNAL: &str = "
    create schema journal;
    create table journal.version (at timestamptz default clock_timestamp(), id uuid, version bigint);
    create function journal.record() returns trigger language plpgsql security definer as $$
    begin
        if tg_op = 'DELETE' then
            insert into journal.version (id) values (old.id);
        elsif tg_op = 'INSERT' or old.resource_version <> new.resource_version then
            insert into journal.version (id, version) values (new.id, new.resource_version);
        end if;
        return null;
    end $$;
    create trigger journal after insert or update or delete on roadstead.sandbox
        for each row execute function journal.record()";

/// One version, or none any more, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) version: Option<u64>,
    pub(crate) at: SystemTime,
}

/// Notes every version from now on.
pub(crate) async fn keep(session: &mut Session) {
    session.run(JOURNAL).await;
}

/// What was noted of a sandbox, oldest first.
pub(crate) async fn of(session: &mut Session, id: &str) -> Vec<Entry> {
    let noted = format!(
        "select version, (extract(epoch from at) * 1000000)::bigint from journal.version where id = '{id}' order by at"
    );
    let entry = |row: Vec<String>| Entry {
        version: row[0].parse().ok(),
        at: SystemTime::UNIX_EPOCH + Duration::from_micros(row[1].parse().unwrap()),
    };
    session.run(&noted).await.into_iter().map(entry).collect()
}

/// How long after each entry a stream, open at the time, showed that version or a newer one, or ended.
///
/// # Panics
/// It never did.
pub(crate) fn delays(journal: &[Entry], seen: &Seen) -> Vec<Duration> {
    let first = seen.states.first().map_or(0, |state| state.version);
    let entries = journal.iter().filter(|entry| entry.version.is_none_or(|version| version > first));
    let delay = |entry: &Entry| {
        let state = seen.states.iter().find(|state| entry.version.is_some_and(|version| state.version >= version));
        let at = state.map(|state| state.at).or(seen.ended.map(|(at, _)| at));
        let at = at.unwrap_or_else(|| panic!("{entry:?} was never shown: {seen:?}"));
        at.duration_since(entry.at).unwrap_or_default()
    };
    entries.map(delay).collect()
}
