//! Services that sandboxes expose. Whoever holds a sandbox's lock holds those of its services.

use tokio_postgres::Row;
use uuid::Uuid;

use crate::fields::{Fields, Malformed, all};
use crate::flight::Step;
use crate::parameter::{count, number, time, value};
use crate::row::ServiceEndpoint;

macro_rules! columns {
    () => {
        "e.id, e.sandbox_id, e.workspace_name, e.sandbox_name, e.service, e.target_port, e.authorization_mode, \
         e.resource_version, e.created_at"
    };
}
pub(crate) use columns;

const INSERT: &str = "WITH hit AS (
        INSERT INTO service_endpoint (id, sandbox_id, service, target_port, authorization_mode, resource_version,
            created_at, workspace_name, sandbox_name)
        SELECT $1, $2, $3, $4, $5, $6, $7, workspace_name, name FROM sandbox WHERE id = $2 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'sandbox of a service') FROM hit";

const UPDATE: &str = "WITH hit AS (
        UPDATE service_endpoint SET target_port = $2, authorization_mode = $3, resource_version = $4
        WHERE id = $1 AND resource_version = $4::bigint - 1 RETURNING 1
    ) SELECT roadstead.must_hit(count(*), 'service') FROM hit";

const DELETE: &str = "WITH hit AS (DELETE FROM service_endpoint WHERE id = $1 RETURNING 1)
    SELECT roadstead.must_hit(count(*), 'service') FROM hit";

pub(crate) fn insert(row: ServiceEndpoint) -> Step {
    Step::new(
        INSERT,
        [
            value(row.id),
            value(row.sandbox_id),
            value(row.service),
            value(i32::from(row.target_port)),
            number(row.authorization_mode),
            count(row.resource_version),
            time(row.created_at),
        ],
    )
}

pub(crate) fn update(row: ServiceEndpoint) -> Step {
    Step::new(
        UPDATE,
        [value(row.id), value(i32::from(row.target_port)), number(row.authorization_mode), count(row.resource_version)],
    )
}

pub(crate) fn delete(id: Uuid) -> Step {
    Step::new(DELETE, [value(id)])
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Result<ServiceEndpoint, Malformed> {
    Ok(ServiceEndpoint {
        id: fields.take()?,
        sandbox_id: fields.take()?,
        workspace_name: fields.take()?,
        sandbox_name: fields.take()?,
        service: fields.take()?,
        target_port: port(fields.take()?)?,
        authorization_mode: fields.number()?,
        resource_version: fields.count()?,
        created_at: fields.time()?,
    })
}

pub(crate) fn read_all(rows: &[Row]) -> Result<Vec<ServiceEndpoint>, Malformed> {
    all(rows, read)
}

fn port(stored: i32) -> Result<u16, Malformed> {
    u16::try_from(stored).map_err(|_| Malformed(format!("port {stored}")))
}
