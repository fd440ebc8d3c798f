//! What a snapshot is built from (D5): everything in one statement, so in one state of the database.

use std::time::SystemTime;

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Json};
use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::{Fields, Malformed, only};
use crate::flight::{Flight, Step};
use crate::parameter::value;
use crate::read::{self, Seen, access_columns};
use crate::row::{Credential, Pairs, PolicyRevision, Provider, Sandbox, Settings};
use crate::table::{policy_revision, sandbox};

/// The inputs of one sandbox's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    pub epoch: u64,
    /// Postgres's clock in the same statement: what is expired by it is left out.
    pub now: SystemTime,
    pub sandbox: Sandbox,
    /// Newest revision of the sandbox's own policy.
    pub policy: Option<PolicyRevision>,
    /// Newest revision of the global policy, whether the setting that applies it stands or not.
    pub global_policy: Option<PolicyRevision>,
    pub sandbox_settings: Settings,
    pub global_settings: Settings,
    /// Attached providers in order of attachment, with the sealed values of their credentials.
    pub providers: Vec<Provider>,
}

/// A sandbox, for expansions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub workspace_id: Uuid,
    pub sandbox_id: Uuid,
}

/// A sandbox that is asked for by its name, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub workspace: String,
    pub name: String,
    /// As in [`Reader`](crate::read::Reader): none for those whose rights were judged elsewhere.
    pub subject: Option<String>,
}

/// What is asked for in one statement, each with its own end: one row that cannot be read is the fault of one.
pub type Each<T> = Vec<Result<T, StoreError>>;

/// Behind `asked`, rows with their place `n`, and a table `s` beside it. What all sandboxes share comes with the first row
/// only. Providers come as parallel arrays, and so do all their credentials, each with its provider's id.
macro_rules! input_columns {
    () => {
        concat!(
            "asked.n, e.value, clock_timestamp(), \
             g.scope, g.version, g.hash, g.policy, g.status, g.load_error, g.created_at, g.loaded_at, g.provenance, \
             gv.revision, gv.keys, gv.values, ",
            crate::table::sandbox::columns!(),
            ", ",
            crate::table::policy_revision::columns!(),
            ", coalesce((SELECT v.revision FROM settings_revision v WHERE v.scope = s.id), 0), v.keys, v.values, \
             p.ids, p.workspace_ids, p.names, p.kinds, p.profile_workspaces, p.configs, p.labels, p.annotations, \
             p.resource_versions, p.created_ats, c.owners, c.keys, c.sealed, c.expirations"
        )
    };
}

/// Each is looked up by its index once for a row, whatever the sizes of the tables when the plan was made.
macro_rules! input_tables {
    () => {
        " CROSS JOIN epoch e \
         LEFT JOIN LATERAL (SELECT * FROM policy_revision g WHERE asked.n = 1 \
             AND g.scope = '00000000-0000-0000-0000-000000000000' ORDER BY g.version DESC LIMIT 1) g ON true \
         LEFT JOIN LATERAL (SELECT coalesce((SELECT r.revision FROM settings_revision r \
                 WHERE r.scope = '00000000-0000-0000-0000-000000000000'), 0) AS revision, \
             ARRAY(SELECT v.key FROM setting v WHERE v.scope = '00000000-0000-0000-0000-000000000000' ORDER BY v.key) AS keys, \
             ARRAY(SELECT v.value FROM setting v WHERE v.scope = '00000000-0000-0000-0000-000000000000' ORDER BY v.key) \
                 AS values) gv ON asked.n = 1 \
         LEFT JOIN LATERAL (SELECT * FROM policy_revision r WHERE r.scope = s.id ORDER BY r.version DESC LIMIT 1) r ON true \
         CROSS JOIN LATERAL (SELECT array_agg(v.key) AS keys, array_agg(v.value) AS values \
             FROM setting v WHERE v.scope = s.id) v \
         CROSS JOIN LATERAL (SELECT array_agg(p.id) AS ids, array_agg(p.workspace_id) AS workspace_ids, \
             array_agg(p.name) AS names, array_agg(p.kind) AS kinds, \
             array_agg(p.profile_workspace) AS profile_workspaces, array_agg(p.config) AS configs, \
             array_agg(p.labels) AS labels, array_agg(p.annotations) AS annotations, \
             array_agg(p.resource_version) AS resource_versions, array_agg(p.created_at) AS created_ats \
             FROM (SELECT p.* FROM attachment a JOIN provider p ON p.id = a.provider_id WHERE a.sandbox_id = s.id \
                 ORDER BY a.ordinal) p) p \
         CROSS JOIN LATERAL (SELECT array_agg(p.id) AS owners, array_agg(u.key) AS keys, array_agg(u.value) AS sealed, \
             array_agg(u.expires_at) AS expirations \
             FROM attachment a JOIN provider p ON p.id = a.provider_id CROSS JOIN LATERAL \
                 unnest(p.credential_keys, p.credential_values, p.credential_expirations) u (key, value, expires_at) \
             WHERE a.sandbox_id = s.id) c"
    };
}

const BY_ID: &str = concat!(
    "SELECT ",
    input_columns!(),
    " FROM unnest($1::uuid[]) WITH ORDINALITY asked (id, n) \
     LEFT JOIN LATERAL (SELECT * FROM sandbox s WHERE s.id = asked.id LIMIT 1) s ON true",
    input_tables!()
);

const BY_NAME: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    input_columns!(),
    " FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY asked (workspace, subject, name, n) \
     LEFT JOIN LATERAL (SELECT * FROM workspace w WHERE w.name = asked.workspace LIMIT 1) w ON true \
     LEFT JOIN LATERAL (SELECT * FROM member m WHERE m.workspace_name = asked.workspace AND m.subject = asked.subject \
         LIMIT 1) m ON true \
     LEFT JOIN LATERAL (SELECT * FROM sandbox s WHERE (asked.subject IS NULL OR m.role IS NOT NULL) \
         AND s.workspace_name = asked.workspace AND s.name = asked.name LIMIT 1) s ON true",
    input_tables!()
);

const NEXT: &str = "SELECT nextval('snapshot_sequence')";

impl Database {
    /// A new number of the snapshot sequence, and then the inputs of each of these sandboxes, none for one that is gone, in
    /// one flight: whatever is built of them may be written under that number, for nobody draws a higher one and reads
    /// older inputs. Sandboxes may share a number: only those of one sandbox are ever compared.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn next_snapshot_inputs(&self, sandboxes: &[Uuid]) -> Result<(u64, Each<Option<Inputs>>), StoreError> {
        let mut flight = Flight::default();
        let sequence = flight.add(Step::plain(NEXT));
        let read = flight.add(Step::new(BY_ID, [value(sandboxes.to_vec())]));
        let answers = self.lease().await?.read(flight).await.map_err(StoreError::of)?;
        let sequence = only(answers.rows(sequence), |fields| fields.count())?;
        Ok((sequence, each(answers.rows(read), sandboxes.len(), |_| Ok(()), |(), found| found)?))
    }

    /// A new number of the snapshot sequence.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn next_snapshot_sequence(&self) -> Result<u64, StoreError> {
        Ok(only(&self.rows(Step::plain(NEXT)).await?, |fields| fields.count())?)
    }

    /// The inputs by the sandboxes' names, each with the reader's rights in the same statement.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn snapshot_inputs_by_name(&self, asked: &[Named]) -> Result<Each<Seen<Option<Inputs>>>, StoreError> {
        let workspaces: Vec<_> = asked.iter().map(|asked| asked.workspace.clone()).collect();
        let subjects: Vec<_> = asked.iter().map(|asked| asked.subject.clone()).collect();
        let names: Vec<_> = asked.iter().map(|asked| asked.name.clone()).collect();
        let rows = self.rows(Step::new(BY_NAME, [value(workspaces), value(subjects), value(names)])).await?;
        each(&rows, asked.len(), read::access, |access, found| Seen { access, found })
    }

    /// The epoch of this database's life.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn epoch(&self) -> Result<u64, StoreError> {
        let rows = self.rows(crate::table::epoch::read()).await?;
        Ok(only(&rows, |fields| fields.count())?)
    }

    /// A page of the sandboxes that have a provider attached, by id, after `after` (nil in front of all).
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn sandboxes_of_provider(
        &self,
        provider_id: Uuid,
        after: Uuid,
        most: u32,
    ) -> Result<Vec<Place>, StoreError> {
        let rows = self.rows(crate::table::attachment::sandboxes(provider_id, after, most)).await?;
        Ok(crate::fields::all(&rows, place)?)
    }

    /// A page of all sandboxes, by id, after `after` (nil in front of all).
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn all_sandboxes(&self, after: Uuid, most: u32) -> Result<Vec<Place>, StoreError> {
        let rows = self.rows(sandbox::all_after(after, most)).await?;
        Ok(crate::fields::all(&rows, place)?)
    }
}

fn place(fields: &mut Fields<'_>) -> Result<Place, Malformed> {
    Ok(Place { workspace_id: fields.take()?, sandbox_id: fields.take()? })
}

/// What all sandboxes have in common.
struct Shared {
    policy: Option<PolicyRevision>,
    settings: Settings,
}

/// How many columns it has.
const SHARED_COLUMNS: usize = policy_revision::COLUMNS + 3;

/// The rows in the order in which they were asked for.
fn each<A, T>(
    rows: &[Row],
    asked: usize,
    access: impl Fn(&mut Fields<'_>) -> Result<A, Malformed>,
    found: impl Fn(A, Option<Inputs>) -> T,
) -> Result<Each<T>, StoreError> {
    let mut of_row = Vec::with_capacity(rows.len());
    let mut shared = None;
    for row in rows {
        let mut fields = Fields::of(row);
        let access = access(&mut fields)?;
        let (place, epoch, now) = (fields.count()?, fields.count()?, fields.time()?);
        if place == 1 {
            shared = Some(Shared { policy: policy(&mut fields)?, settings: settings(&mut fields)? });
        } else {
            fields.skip(SHARED_COLUMNS);
        }
        of_row.push((place, access, epoch, now, fields));
    }
    let shared = match shared {
        Some(shared) if rows.len() == asked => shared,
        None if asked == 0 => return Ok(Vec::new()),
        _ => return Err(Malformed("not a row for each that was asked for".to_owned()).into()),
    };
    of_row.sort_by_key(|(place, ..)| *place);
    let read = |(_, access, epoch, now, mut fields): (u64, A, u64, SystemTime, Fields<'_>)| {
        let gone = fields.is_next_null::<Uuid>()?;
        let inputs = if gone { None } else { Some(inputs(&mut fields, epoch, now, &shared)?) };
        Ok(found(access, inputs))
    };
    Ok(of_row.into_iter().map(read).collect())
}

fn inputs(fields: &mut Fields<'_>, epoch: u64, now: SystemTime, shared: &Shared) -> Result<Inputs, Malformed> {
    let mut sandbox = sandbox::read(fields)?;
    let (policy, sandbox_settings, providers) = (policy(fields)?, settings(fields)?, providers(fields)?);
    sandbox.providers = providers.iter().map(|provider| provider.name.clone()).collect();
    Ok(Inputs {
        epoch,
        now,
        sandbox,
        policy,
        global_policy: shared.policy.clone(),
        sandbox_settings,
        global_settings: shared.settings.clone(),
        providers,
    })
}

fn policy(fields: &mut Fields<'_>) -> Result<Option<PolicyRevision>, Malformed> {
    if fields.is_next_null::<Uuid>()? {
        fields.skip(policy_revision::COLUMNS);
        return Ok(None);
    }
    policy_revision::read(fields).map(Some)
}

fn settings(fields: &mut Fields<'_>) -> Result<Settings, Malformed> {
    let revision = fields.count()?;
    let (keys, values) = (array::<String>(fields)?, array::<&[u8]>(fields)?);
    let values = keys
        .zip(values)
        .map(|(key, value)| {
            let value = prost::Message::decode(value).map_err(|error| Malformed(error.to_string()))?;
            Ok((key, value))
        })
        .collect::<Result<_, Malformed>>()?;
    Ok(Settings { revision, values })
}

/// An array, empty if there was nothing to gather.
fn array<'a, T: FromSql<'a>>(fields: &mut Fields<'a>) -> Result<std::vec::IntoIter<T>, Malformed> {
    Ok(fields.take::<Option<Vec<T>>>()?.unwrap_or_default().into_iter())
}

fn providers(fields: &mut Fields<'_>) -> Result<Vec<Provider>, Malformed> {
    let (ids, mut workspaces) = (array::<Uuid>(fields)?, array::<Uuid>(fields)?);
    let (mut names, mut kinds, mut profiles) =
        (array::<String>(fields)?, array::<String>(fields)?, array::<String>(fields)?);
    let (mut configs, mut labels, mut annotations) =
        (array::<Json<Pairs>>(fields)?, array::<Json<Pairs>>(fields)?, array::<Json<Pairs>>(fields)?);
    let (mut versions, mut created) = (array::<i64>(fields)?, array::<SystemTime>(fields)?);
    let mut credentials = credentials(fields)?;
    let mut providers = Vec::with_capacity(ids.len());
    for id in ids {
        let provider = (|| {
            Some(Provider {
                id,
                workspace_id: workspaces.next()?,
                name: names.next()?,
                kind: kinds.next()?,
                profile_workspace: profiles.next()?,
                config: configs.next()?.0,
                labels: labels.next()?.0,
                annotations: annotations.next()?.0,
                resource_version: versions.next()?.cast_unsigned(),
                created_at: created.next()?,
                credentials: credentials.extract_if(.., |(owner, _)| *owner == id).map(|(_, known)| known).collect(),
            })
        })();
        providers.push(provider.ok_or_else(|| Malformed("arrays of providers differ in length".to_owned()))?);
    }
    Ok(providers)
}

/// Credentials with their providers' ids, by key.
fn credentials(fields: &mut Fields<'_>) -> Result<Vec<(Uuid, Credential)>, Malformed> {
    let (owners, keys) = (array::<Uuid>(fields)?, array::<String>(fields)?);
    let (values, expirations) = (array::<Vec<u8>>(fields)?, array::<Option<SystemTime>>(fields)?);
    let mut credentials: Vec<_> = owners
        .zip(keys)
        .zip(values)
        .zip(expirations)
        .map(|(((owner, key), value), expires_at)| {
            (owner, Credential { key, sealed_value: Bytes::from(value), expires_at })
        })
        .collect();
    credentials.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    Ok(credentials)
}
