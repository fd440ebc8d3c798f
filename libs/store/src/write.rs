//! Changes of state as statements.

use crate::flight::{Flight, Step};
use crate::mutation::Write;
use crate::table::{
    attachment, member, observation, policy_revision, process, provider, provider_receipt, sandbox, service_endpoint,
    setting, workload_template, workspace,
};

/// Adds the writes in their order.
pub(crate) fn add_all(flight: &mut Flight, writes: Vec<Write>) {
    for write in writes {
        if let Write::InsertSandbox(row) | Write::UpdateSandbox(row) = &write
            && let Some(session) = row.session.as_ref().filter(|session| session.result_number == 0)
        {
            flight.add(process::ensure_bridge(session.bridge_id));
        }
        if let Write::InsertPolicyRevision(row) = &write
            && let Some(prune) = policy_revision::prune(row.scope, row.version)
        {
            flight.add(prune);
        }
        flight.add(step(write));
    }
}

fn step(write: Write) -> Step {
    match write {
        Write::InsertWorkspace(row) => workspace::insert(row),
        Write::UpdateWorkspace(row) => workspace::update(row),
        Write::DeleteWorkspace(id) => workspace::delete(id),
        Write::InsertMember(row) => member::insert(row),
        Write::DeleteMember { workspace_id, subject } => member::delete(workspace_id, subject),
        Write::InsertTemplate(row) => workload_template::insert(row),
        Write::DeleteTemplate(id) => workload_template::delete(id),
        Write::InsertProvider(row) => provider::insert(row),
        Write::UpdateProvider(row) => provider::update(row),
        Write::DeleteProvider(id) => provider::delete(id),
        Write::InsertSandbox(row) => sandbox::insert(row),
        Write::UpdateSandbox(row) => sandbox::update(row),
        Write::DeleteSandbox(id) => sandbox::delete(id),
        Write::InsertService(row) => service_endpoint::insert(row),
        Write::UpdateService(row) => service_endpoint::update(row),
        Write::DeleteService(id) => service_endpoint::delete(id),
        Write::Attach { sandbox_id, provider_id } => attachment::attach(sandbox_id, provider_id),
        Write::Detach { sandbox_id, provider_id } => attachment::detach(sandbox_id, provider_id),
        Write::InsertReceipts(rows) => provider_receipt::insert(&rows),
        Write::SettleReceipts { sandbox_id, end } => provider_receipt::settle(sandbox_id, end),
        Write::PutObservation(row) => observation::put(row),
        Write::InsertPolicyRevision(row) => policy_revision::insert(row),
        Write::SettlePolicy { scope, version, status, error } => policy_revision::settle(scope, version, status, error),
        Write::PutSetting { scope, key, value } => setting::put(scope, key, &value),
        Write::DeleteSetting { scope, key } => setting::delete(scope, key),
        Write::SetSettingsRevision { scope, revision } => setting::set_revision(scope, revision),
    }
}
