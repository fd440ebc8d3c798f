//! What Postgres itself saw: which transaction changed what, and which command it settled.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::world::World;

const INSTALL: &str = "
create schema audit;
create table audit.change (tx text, kind text, op text, id text, version bigint);
create table audit.command (tx text, id uuid, outcome int, replayed bool);
create function audit.changed() returns trigger language plpgsql security definer as $$
declare r jsonb := case tg_op when 'DELETE' then to_jsonb(old) else to_jsonb(new) end;
begin
    insert into audit.change values (pg_current_xact_id()::text, tg_table_name, tg_op,
        coalesce(r->>'id', r->>'sandbox_id', r->>'scope'), (r->>'resource_version')::bigint);
    return null;
end $$;
create function audit.settled() returns trigger language plpgsql security definer as $$
begin
    insert into audit.command values (pg_current_xact_id()::text, new.id, new.outcome, new.replayed);
    return null;
end $$;
create trigger settled after insert or update on roadstead.command
    for each row when (new.outcome is not null) execute function audit.settled();";

/// What a command of ours can change.
const TABLES: [&str; 10] = [
    "workspace",
    "member",
    "workload_template",
    "provider",
    "sandbox",
    "attachment",
    "service_endpoint",
    "policy_revision",
    "setting",
    "settings_revision",
];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    pub(crate) kind: String,
    pub(crate) op: String,
    pub(crate) id: String,
    pub(crate) version: Option<u64>,
}

/// How a command was settled.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    pub(crate) tx: String,
    pub(crate) command: Uuid,
    pub(crate) success: bool,
    pub(crate) replayed: bool,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) settled: Vec<Settled>,
    by_tx: BTreeMap<String, Vec<Change>>,
}

pub(crate) async fn install(world: &mut World) {
    world.sql.run(INSTALL).await;
    for table in TABLES {
        let trigger = format!(
            "create trigger changed after insert or update or delete on roadstead.{table}
             for each row execute function audit.changed()"
        );
        world.sql.run(&trigger).await;
    }
}

pub(crate) async fn read(world: &mut World) -> Log {
    let mut by_tx: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for row in world.sql.run("select tx, kind, op, id, version from audit.change").await {
        let [tx, kind, op, id, version] = row.try_into().unwrap();
        let version = Some(version).filter(|version| !version.is_empty()).map(|version| version.parse().unwrap());
        by_tx.entry(tx).or_default().push(Change { kind, op, id, version });
    }
    by_tx.values_mut().for_each(|changes| changes.sort());
    let mut settled = Vec::new();
    for row in world.sql.run("select tx, id, outcome, replayed from audit.command").await {
        let [tx, command, outcome, replayed] = row.try_into().unwrap();
        let (success, replayed) = (outcome == "1", replayed == "t");
        settled.push(Settled { tx, command: command.parse().unwrap(), success, replayed });
    }
    Log { settled, by_tx }
}

impl Log {
    /// All changes by transaction.
    pub(crate) fn changes(&self) -> &BTreeMap<String, Vec<Change>> {
        &self.by_tx
    }

    /// What that transaction changed.
    pub(crate) fn of(&self, tx: &str) -> &[Change] {
        self.by_tx.get(tx).map_or(&[], Vec::as_slice)
    }

    /// How a command was settled, if it was.
    pub(crate) fn command(&self, id: Uuid) -> Option<&Settled> {
        self.settled.iter().find(|settled| settled.command == id)
    }
}
