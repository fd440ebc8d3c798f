//! Sandboxes, and what hangs on the ones that a mutation selects.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed, all};
use crate::flight::Step;
use crate::mutation::{Providers, Sandboxes};
use crate::parameter::{Parameter, count, message, number, optional_time, pairs, time, value};
use crate::row::{Sandbox, Session};

/// The columns of [`read`]. Attached providers are read by a statement of their own, or stand behind these.
macro_rules! columns {
    () => {
        "s.id, s.workspace_id, s.workspace_name, s.name, s.labels, s.annotations, s.resource_version, s.created_at, \
         s.deletion_at, s.spec, s.created_from, s.status, s.phase, s.current_policy_version, s.attachment_epoch, s.generation, \
         s.provisioning_deadline, s.refused_content, s.configuration_instance_id, s.session_id, s.session_bridge_id, \
         s.session_instance_id, s.session_epoch, s.session_config_push, s.session_result_number, s.session_end_number"
    };
}
pub(crate) use columns;

/// Names of the attached providers, as one array; for statements that read one snapshot and wait for no lock.
macro_rules! provider_names {
    () => {
        "ARRAY(SELECT ap.name FROM attachment a JOIN provider ap ON ap.id = a.provider_id \
         WHERE a.sandbox_id = s.id ORDER BY a.ordinal)"
    };
}
pub(crate) use provider_names;

/// One statement for each way of selecting sandboxes: by name, by id, by the providers that the mutation locked. Each
/// takes two parameters.
macro_rules! selected {
    ($name:ident, $before:expr, $after:expr) => {
        const $name: [&str; 3] = [
            concat!($before, " WHERE s.workspace_name = $1 AND s.name = $2", $after),
            concat!($before, " WHERE s.id = $1 AND $2::text IS NULL", $after),
            concat!(
                $before,
                " WHERE s.id IN (SELECT sa.sandbox_id FROM attachment sa JOIN provider sp ON sp.id = sa.provider_id \
                 WHERE sp.workspace_name = $1 AND sp.name = ANY ($2))",
                $after
            ),
        ];
    };
}

selected!(LOCK, concat!("SELECT ", columns!(), " FROM sandbox s"), " ORDER BY s.id FOR UPDATE");

selected!(
    PROVIDER_NAMES,
    "SELECT s.id, p.name FROM sandbox s JOIN attachment a ON a.sandbox_id = s.id JOIN provider p ON p.id = a.provider_id",
    " ORDER BY a.ordinal"
);

selected!(
    PROVIDERS,
    concat!(
        "SELECT ",
        crate::table::provider::columns!(),
        ", NULL::bytea[] FROM provider p WHERE p.id IN (SELECT a.provider_id FROM attachment a \
         JOIN sandbox s ON s.id = a.sandbox_id"
    ),
    ") ORDER BY p.name"
);

selected!(
    POLICY,
    concat!(
        "SELECT ",
        crate::table::policy_revision::columns!(),
        " FROM sandbox s JOIN policy_revision r ON r.scope = s.id"
    ),
    " ORDER BY r.version DESC LIMIT 1"
);

selected!(
    POLICY_VERSION,
    concat!(
        "SELECT ",
        crate::table::policy_revision::columns!(),
        " FROM sandbox s JOIN policy_revision r ON r.scope = s.id"
    ),
    " AND r.version = $3"
);

selected!(
    SETTINGS,
    "SELECT coalesce(r.revision, 0), v.key, v.value FROM sandbox s LEFT JOIN settings_revision r ON r.scope = s.id \
     LEFT JOIN setting v ON v.scope = s.id",
    ""
);

selected!(
    SERVICES,
    concat!(
        "SELECT ",
        crate::table::service_endpoint::columns!(),
        " FROM sandbox s JOIN service_endpoint e ON e.sandbox_id = s.id"
    ),
    " ORDER BY e.service"
);

selected!(
    RECEIPT,
    concat!(
        "SELECT ",
        crate::table::provider_receipt::columns!(),
        " FROM sandbox s JOIN provider_receipt r ON r.sandbox_id = s.id AND r.attachment_epoch = s.attachment_epoch"
    ),
    " AND r.provider_name = ANY ($3) ORDER BY r.ordinal DESC LIMIT 1"
);

selected!(
    OBSERVATION,
    concat!(
        "SELECT ",
        crate::table::observation::columns!(),
        " FROM sandbox s JOIN observation o ON o.sandbox_id = s.id"
    ),
    ""
);

selected!(
    PENDING_RECEIPTS,
    "SELECT true FROM sandbox s",
    " AND EXISTS (SELECT FROM provider_receipt r WHERE r.sandbox_id = s.id AND r.operation = 1)"
);

selected!(
    OWNER_IS_GONE,
    concat!("SELECT ", crate::table::process::owner_is_gone!("$3"), " FROM sandbox s"),
    " ORDER BY s.id LIMIT 1"
);

const BY_ID: &str = concat!("SELECT ", columns!(), ", ", provider_names!(), " FROM sandbox s WHERE s.id = $1");

const ALL: &str = "SELECT workspace_id, id FROM sandbox WHERE id > $1 ORDER BY id LIMIT $2";

/// Bridges are few: the stale ones lead to their sandboxes, and the whole predicate is asked of each.
const LOST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM sandbox s WHERE s.session_bridge_id IN \
     (SELECT b.id FROM process b WHERE b.renewed_at < clock_timestamp() - interval '20 seconds') AND ",
    crate::table::process::owner_is_gone!("$1"),
    " ORDER BY s.id LIMIT $2 FOR UPDATE OF s SKIP LOCKED"
);

const PAST_DEADLINE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM sandbox s WHERE s.provisioning_deadline <= statement_timestamp() AND s.id <> ALL ($2) \
     ORDER BY s.provisioning_deadline LIMIT $1 FOR UPDATE OF s SKIP LOCKED"
);

const LOCK_FREE: &str =
    concat!("SELECT ", columns!(), " FROM sandbox s WHERE s.id = ANY ($1) ORDER BY s.id FOR UPDATE OF s SKIP LOCKED");

/// A revision above the current one, or one that waits for a verdict or had a bad one, may be changed by the next verdict.
const NOTHING_OPEN: &str = concat!(
    "SELECT s.id FROM sandbox s WHERE s.id = ANY ($1) AND NOT ",
    crate::table::process::owner_is_gone!("$2"),
    " AND NOT EXISTS (SELECT FROM provider_receipt r WHERE r.sandbox_id = s.id AND r.operation = 1) \
     AND NOT EXISTS (SELECT FROM policy_revision r WHERE r.scope = s.id \
         AND (r.version > s.current_policy_version OR r.status IN (1, 3)))"
);

const INSERT: &str = "INSERT INTO sandbox (id, labels, annotations, resource_version, deletion_at, spec, status, phase,
        current_policy_version, attachment_epoch, generation, provisioning_deadline, configuration_instance_id,
        session_id, session_bridge_id, session_instance_id, session_epoch, session_config_push, session_result_number,
        session_end_number, refused_content, workspace_id, workspace_name, name, created_at, created_from)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
        $24, $25, $26)";

const UPDATE: &str = "WITH hit AS (
        UPDATE sandbox SET labels = $2, annotations = $3, resource_version = $4, deletion_at = $5, spec = $6,
            status = $7, phase = $8, current_policy_version = $9, attachment_epoch = $10, generation = $11,
            provisioning_deadline = $12, configuration_instance_id = $13, session_id = $14, session_bridge_id = $15,
            session_instance_id = $16, session_epoch = $17, session_config_push = $18, session_result_number = $19,
            session_end_number = $20, refused_content = $21
        WHERE id = $1 AND resource_version = $4::bigint - 1 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'sandbox') FROM hit";

const DELETE: &str = "WITH hit AS (DELETE FROM sandbox WHERE id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'sandbox') FROM hit";

/// Which sandboxes a mutation locks, as parameters of the statements above.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    way: usize,
    values: Selected,
}

#[derive(Clone, Debug)]
enum Selected {
    Named { workspace: String, name: String },
    Id(Uuid),
    Providers { workspace: String, names: Vec<String> },
}

impl Selection {
    /// None if no sandbox is selected, or if a name is given without a workspace to look in.
    pub(crate) fn of(workspace: Option<&str>, sandboxes: &Sandboxes, providers: &Providers) -> Option<Self> {
        let (way, values) = match sandboxes {
            Sandboxes::None => return None,
            Sandboxes::Named(name) => (0, Selected::Named { workspace: workspace?.to_owned(), name: name.clone() }),
            Sandboxes::ById(id) => (1, Selected::Id(*id)),
            Sandboxes::OfLockedProviders => {
                let Providers::Named(names, _) = providers else { return None };
                (2, Selected::Providers { workspace: workspace?.to_owned(), names: names.clone() })
            }
        };
        Some(Self { way, values })
    }

    pub(crate) fn lock(&self) -> Step {
        self.step(&LOCK, None)
    }

    /// Rows of sandbox id and provider name.
    pub(crate) fn provider_names(&self) -> Step {
        self.step(&PROVIDER_NAMES, None)
    }

    /// Without the values of their credentials.
    pub(crate) fn providers(&self) -> Step {
        self.step(&PROVIDERS, None)
    }

    pub(crate) fn policy(&self) -> Step {
        self.step(&POLICY, None)
    }

    pub(crate) fn policy_version(&self, version: u32) -> Step {
        self.step(&POLICY_VERSION, Some(value(i64::from(version))))
    }

    pub(crate) fn settings(&self) -> Step {
        self.step(&SETTINGS, None)
    }

    pub(crate) fn services(&self) -> Step {
        self.step(&SERVICES, None)
    }

    pub(crate) fn receipt(&self, providers: Vec<String>) -> Step {
        self.step(&RECEIPT, Some(value(providers)))
    }

    pub(crate) fn observation(&self) -> Step {
        self.step(&OBSERVATION, None)
    }

    /// A row if there is one.
    pub(crate) fn pending_receipts(&self) -> Step {
        self.step(&PENDING_RECEIPTS, None)
    }

    pub(crate) fn owner_is_gone(&self, judge: Uuid) -> Step {
        self.step(&OWNER_IS_GONE, Some(value(judge)))
    }

    fn step(&self, sql: &[&'static str; 3], third: Option<Parameter>) -> Step {
        let mut parameters = match self.values.clone() {
            Selected::Named { workspace, name } => vec![value(workspace), value(name)],
            Selected::Id(id) => vec![value(id), value(None::<String>)],
            Selected::Providers { workspace, names } => vec![value(workspace), value(names)],
        };
        parameters.extend(third);
        Step { sql: sql[self.way], parameters }
    }
}

pub(crate) fn by_id(id: Uuid) -> Step {
    Step::new(BY_ID, [value(id)])
}

/// Locks sandboxes whose bridge is gone, as the judge may judge it.
pub(crate) fn lost(judge: Uuid, most: u32) -> Step {
    Step::new(LOST, [value(judge), value(i64::from(most))])
}

/// Locks sandboxes whose deadline has come, without those that are left out.
pub(crate) fn past_deadline(most: u32, left_out: &[Uuid]) -> Step {
    Step::new(PAST_DEADLINE, [value(i64::from(most)), value(left_out.to_vec())])
}

/// Locks those of the sandboxes that nobody else has locked.
pub(crate) fn lock_free(ids: Vec<Uuid>) -> Step {
    Step::new(LOCK_FREE, [value(ids)])
}

/// Ids of those of the sandboxes of which nothing is open that a verdict on their configuration may end, and whose owner is
/// not gone, as the judge may judge it.
pub(crate) fn nothing_open(ids: Vec<Uuid>, judge: Uuid) -> Step {
    Step::new(NOTHING_OPEN, [value(ids), value(judge)])
}

/// Workspace and id of every sandbox, by id, after `after`.
pub(crate) fn all_after(after: Uuid, most: u32) -> Step {
    Step::new(ALL, [value(after), value(i64::from(most))])
}

pub(crate) fn insert(row: Sandbox) -> Step {
    let lasting = [
        value(row.workspace_id),
        value(row.workspace_name.clone()),
        value(row.name.clone()),
        time(row.created_at),
        value(row.created_from.as_ref().map(prost::Message::encode_to_vec)),
    ];
    let mut parameters = Vec::from(changing(row));
    parameters.extend(lasting);
    Step { sql: INSERT, parameters }
}

pub(crate) fn update(row: Sandbox) -> Step {
    Step::new(UPDATE, changing(row))
}

pub(crate) fn delete(id: Uuid) -> Step {
    Step::new(DELETE, [value(id)])
}

/// The columns that an update may change, behind the id.
fn changing(row: Sandbox) -> [Parameter; 21] {
    let session = row.session;
    let of_session = |number: fn(&Session) -> u64| session.as_ref().map_or(0, number);
    [
        value(row.id),
        pairs(row.labels),
        pairs(row.annotations),
        count(row.resource_version),
        optional_time(row.deletion_at),
        message(&row.spec),
        message(&row.status),
        number(row.phase),
        value(i64::from(row.current_policy_version)),
        value(row.attachment_epoch),
        count(row.generation),
        optional_time(row.deadline),
        value(row.configuration_instance_id),
        value(session.as_ref().map(|session| session.id)),
        value(session.as_ref().map(|session| session.bridge_id)),
        value(session.as_ref().map(|session| session.instance_id.clone()).unwrap_or_default()),
        count(of_session(|session| session.connection_epoch)),
        value(session.as_ref().is_some_and(|session| session.config_push)),
        count(of_session(|session| session.result_number)),
        count(of_session(|session| session.end_number)),
        value(row.refused_content),
    ]
}

/// A sandbox without the names of its providers.
pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Sandbox, Malformed> {
    Ok(Sandbox {
        id: fields.take()?,
        workspace_id: fields.take()?,
        workspace_name: fields.take()?,
        name: fields.take()?,
        labels: fields.pairs()?,
        annotations: fields.pairs()?,
        resource_version: fields.count()?,
        created_at: fields.time()?,
        deletion_at: fields.take()?,
        spec: fields.message()?,
        created_from: fields.optional_message()?,
        status: fields.message()?,
        phase: fields.number()?,
        current_policy_version: fields.version()?,
        attachment_epoch: fields.take()?,
        generation: fields.count()?,
        deadline: fields.take()?,
        refused_content: fields.take()?,
        configuration_instance_id: fields.take()?,
        session: session(fields)?,
        providers: Vec::new(),
    })
}

/// A sandbox with the names of its providers in the column behind it.
pub(crate) fn read_whole(fields: &mut Fields<'_>) -> Result<Sandbox, Malformed> {
    let sandbox = read(fields)?;
    Ok(Sandbox { providers: fields.take()?, ..sandbox })
}

pub(crate) fn read_all(rows: &[Row]) -> Result<Vec<Sandbox>, Malformed> {
    all(rows, read)
}

fn session(fields: &mut Fields<'_>) -> Result<Option<Session>, Malformed> {
    let (id, bridge_id): (Option<Uuid>, Option<Uuid>) = (fields.take()?, fields.take()?);
    let rest = Session {
        id: Uuid::nil(),
        bridge_id: Uuid::nil(),
        instance_id: fields.take()?,
        connection_epoch: fields.count()?,
        config_push: fields.take()?,
        result_number: fields.count()?,
        end_number: fields.count()?,
    };
    Ok(id.zip(bridge_id).map(|(id, bridge_id)| Session { id, bridge_id, ..rest }))
}
