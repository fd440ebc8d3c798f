//! What a snapshot is built from (D5): everything in one statement, so in one state of the database.

use std::time::SystemTime;

use bytes::Bytes;
use tokio_postgres::types::Json;
use uuid::Uuid;

use crate::database::Database;
use crate::error::StoreError;
use crate::fields::{Fields, Malformed, first, only};
use crate::flight::{Flight, Step};
use crate::parameter::value;
use crate::read::{self, Access, Reader, Seen, access_columns, from_access};
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

macro_rules! input_columns {
    () => {
        concat!(
            crate::table::sandbox::columns!(),
            ", ",
            crate::table::sandbox::provider_names!(),
            ", e.value, clock_timestamp(), ",
            crate::table::policy_revision::columns!(),
            ", g.scope, g.version, g.hash, g.policy, g.status, g.load_error, g.created_at, g.loaded_at, g.provenance, \
             coalesce(sr.revision, 0), \
             ARRAY(SELECT v.key FROM setting v WHERE v.scope = s.id ORDER BY v.key), \
             ARRAY(SELECT v.value FROM setting v WHERE v.scope = s.id ORDER BY v.key), \
             coalesce(gr.revision, 0), \
             ARRAY(SELECT v.key FROM setting v WHERE v.scope = gr.scope ORDER BY v.key), \
             ARRAY(SELECT v.value FROM setting v WHERE v.scope = gr.scope ORDER BY v.key), \
             p.ids, p.workspace_ids, p.names, p.kinds, p.profile_workspaces, p.configs, p.labels, p.annotations, \
             p.resource_versions, p.created_ats, c.owners, c.keys, c.sealed, c.expirations"
        )
    };
}

/// Behind a table `s`. Providers come as parallel arrays, and so do all their credentials, each with its provider's id.
macro_rules! input_tables {
    () => {
        " CROSS JOIN epoch e \
         LEFT JOIN LATERAL (SELECT * FROM policy_revision r WHERE r.scope = s.id ORDER BY r.version DESC LIMIT 1) r ON true \
         LEFT JOIN LATERAL (SELECT * FROM policy_revision g WHERE g.scope = '00000000-0000-0000-0000-000000000000' \
             ORDER BY g.version DESC LIMIT 1) g ON true \
         LEFT JOIN settings_revision sr ON sr.scope = s.id \
         LEFT JOIN settings_revision gr ON gr.scope = '00000000-0000-0000-0000-000000000000' \
         CROSS JOIN LATERAL (SELECT array_agg(p.id ORDER BY a.ordinal) AS ids, \
             array_agg(p.workspace_id ORDER BY a.ordinal) AS workspace_ids, array_agg(p.name ORDER BY a.ordinal) AS names, \
             array_agg(p.kind ORDER BY a.ordinal) AS kinds, \
             array_agg(p.profile_workspace ORDER BY a.ordinal) AS profile_workspaces, \
             array_agg(p.config ORDER BY a.ordinal) AS configs, array_agg(p.labels ORDER BY a.ordinal) AS labels, \
             array_agg(p.annotations ORDER BY a.ordinal) AS annotations, \
             array_agg(p.resource_version ORDER BY a.ordinal) AS resource_versions, \
             array_agg(p.created_at ORDER BY a.ordinal) AS created_ats \
             FROM attachment a JOIN provider p ON p.id = a.provider_id WHERE a.sandbox_id = s.id) p \
         CROSS JOIN LATERAL (SELECT array_agg(p.id) AS owners, array_agg(u.key) AS keys, array_agg(u.value) AS sealed, \
             array_agg(u.expires_at) AS expirations \
             FROM attachment a JOIN provider p ON p.id = a.provider_id CROSS JOIN LATERAL \
                 unnest(p.credential_keys, p.credential_values, p.credential_expirations) u (key, value, expires_at) \
             WHERE a.sandbox_id = s.id) c"
    };
}

const BY_ID: &str = concat!("SELECT ", input_columns!(), " FROM sandbox s", input_tables!(), " WHERE s.id = $1");

const BY_NAME: &str = concat!(
    "SELECT ",
    access_columns!(),
    ", ",
    input_columns!(),
    from_access!(),
    " LEFT JOIN sandbox s ON seen AND s.workspace_name = $1 AND s.name = $3",
    input_tables!()
);

const NEXT: &str = "SELECT nextval('snapshot_sequence')";

impl Database {
    /// The inputs of a sandbox's configuration; none if it is gone.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn snapshot_inputs(&self, sandbox_id: Uuid) -> Result<Option<Inputs>, StoreError> {
        let rows = self.rows(Step::new(BY_ID, [value(sandbox_id)])).await?;
        Ok(first(&rows, inputs)?)
    }

    /// A new number of the snapshot sequence, and then the inputs, in one flight: whatever is built of them may be
    /// written under that number, for nobody draws a higher one and reads older inputs.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn next_snapshot_inputs(&self, sandbox_id: Uuid) -> Result<(u64, Option<Inputs>), StoreError> {
        let mut flight = Flight::default();
        let sequence = flight.add(Step::plain(NEXT));
        let read = flight.add(Step::new(BY_ID, [value(sandbox_id)]));
        let answers = self.lease().await?.read(flight).await.map_err(StoreError::of)?;
        let sequence = only(answers.rows(sequence), |fields| fields.count())?;
        Ok((sequence, first(answers.rows(read), inputs)?))
    }

    /// The inputs by the sandbox's name, with the reader's rights in the same statement.
    ///
    /// # Errors
    /// Postgres cannot be used now.
    pub async fn snapshot_inputs_by_name(
        &self,
        workspace: &str,
        name: &str,
        reader: Reader<'_>,
    ) -> Result<Seen<Option<Inputs>>, StoreError> {
        let step = Step::new(
            BY_NAME,
            [value(workspace.to_owned()), value(reader.subject.map(str::to_owned)), value(name.to_owned())],
        );
        let rows = self.rows(step).await?;
        let (access, found): (Access, Option<Inputs>) = only(&rows, |fields| {
            let access = read::access(fields)?;
            let found = if fields.is_next_null::<Uuid>()? { None } else { Some(inputs(fields)?) };
            Ok((access, found))
        })?;
        Ok(Seen { access, found })
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

fn inputs(fields: &mut Fields<'_>) -> Result<Inputs, Malformed> {
    let sandbox = sandbox::read_whole(fields)?;
    Ok(Inputs {
        sandbox,
        epoch: fields.count()?,
        now: fields.time()?,
        policy: policy(fields)?,
        global_policy: policy(fields)?,
        sandbox_settings: settings(fields)?,
        global_settings: settings(fields)?,
        providers: providers(fields)?,
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
    let (keys, values): (Vec<String>, Vec<Vec<u8>>) = (fields.take()?, fields.take()?);
    let values = keys
        .into_iter()
        .zip(values)
        .map(|(key, value)| {
            let value = prost::Message::decode(value.as_slice()).map_err(|error| Malformed(error.to_string()))?;
            Ok((key, value))
        })
        .collect::<Result<_, Malformed>>()?;
    Ok(Settings { revision, values })
}

/// An array, empty if there was nothing to gather.
fn array<T>(fields: &mut Fields<'_>) -> Result<std::vec::IntoIter<T>, Malformed>
where
    T: for<'b> tokio_postgres::types::FromSql<'b>,
{
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
