//! *Convergence*: what each supervisor holds, what `GetSandboxConfig` says and what Postgres holds are equal, and every
//! open watch has shown the current version.

use std::{collections::BTreeMap, time::Duration};

use roadstead_proto::api::{
    sandbox::{GetSandboxConfigRequest, GetSandboxConfigResponse},
    v1::{ListSandboxesRequest, SandboxPhase},
};
use roadstead_supervisor::Status;
use roadstead_testkit::{Stack, eventually, sql::Session};
use tokio::sync::Mutex;

use crate::{
    Fleet,
    api::{client, scope},
    watched::Seen,
};

/// By when everything has to agree again after a fault has gone.
pub const CONVERGENCE: Duration = Duration::from_secs(10);

/// A sandbox's configuration, as far as everybody can tell it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Configuration {
    pub policy_version: u64,
    pub policy_hash: String,
    pub settings_revision: u64,
    pub attachment_epoch: String,
}

/// A configuration with what is computed when it is composed; Postgres does not hold that.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Composed {
    pub configuration: Configuration,
    pub config_revision: u64,
    pub environment_revision: u64,
}

impl Composed {
    /// What a poll says.
    #[must_use]
    pub fn polled(response: &GetSandboxConfigResponse) -> Self {
        Self {
            configuration: Configuration {
                policy_version: response.version.into(),
                policy_hash: response.policy_hash.clone(),
                settings_revision: response.settings_revision,
                attachment_epoch: response.provider_attachment_epoch.clone(),
            },
            config_revision: response.config_revision,
            environment_revision: response.provider_env_revision,
        }
    }

    /// What a supervisor holds: both halves, which have to belong together.
    ///
    /// # Errors
    /// One is missing, or they do not belong together yet.
    pub fn held(status: &Status) -> Result<Self, String> {
        let config = status.config.as_ref().ok_or("its supervisor holds no configuration")?;
        let environment = status.environment.as_ref().ok_or("its supervisor holds no environment")?;
        let halves = [
            (&config.policy_hash, config.provider_env_revision, &config.provider_attachment_epoch),
            (&environment.policy_hash, environment.provider_env_revision, &environment.provider_attachment_epoch),
        ];
        if halves[0] != halves[1] {
            return Err(format!("its supervisor holds halves that do not belong together: {halves:?}"));
        }
        Ok(Self {
            configuration: Configuration {
                policy_version: config.policy_version.into(),
                policy_hash: config.policy_hash.clone(),
                settings_revision: config.settings_revision,
                attachment_epoch: config.provider_attachment_epoch.clone(),
            },
            config_revision: config.config_revision,
            environment_revision: config.provider_env_revision,
        })
    }
}

/// A sandbox as Postgres holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub resource_version: u64,
    pub phase: SandboxPhase,
    pub configuration: Configuration,
}

/// Whether the parties agree about one supervised sandbox.
///
/// # Errors
/// They do not, and how.
pub fn agree(row: &Row, polled: &[Composed], supervisor: &Status, watches: &[Seen]) -> Result<(), String> {
    let held = Composed::held(supervisor)?;
    if supervisor.connection.is_none() || row.phase != SandboxPhase::Ready {
        return Err(format!("it is {:?}, its supervisor has {:?}", row.phase, supervisor.connection));
    }
    if held.configuration != row.configuration {
        return Err(format!("its supervisor holds {:?}, Postgres {:?}", held.configuration, row.configuration));
    }
    if let Some(other) = polled.iter().find(|polled| **polled != held) {
        return Err(format!("its supervisor holds {held:?}, GetSandboxConfig says {other:?}"));
    }
    let current = Some((row.resource_version, row.phase));
    match watches.iter().map(Seen::current).find(|shown| *shown != current) {
        Some(shown) => Err(format!("Postgres holds {current:?}, a watch shows {shown:?}")),
        None => Ok(()),
    }
}

/// The sandboxes of a workspace as Postgres holds them, by name.
pub async fn rows(session: &mut Session, workspace: &str) -> BTreeMap<String, Row> {
    let rows = session
        .run(&format!(
            "select s.name, s.resource_version, s.phase, coalesce(p.version, 0), p.hash, coalesce(r.revision, 0), \
             s.attachment_epoch from roadstead.sandbox s left join roadstead.settings_revision r on r.scope = s.id \
             left join lateral (select version, hash from roadstead.policy_revision where scope = s.id \
             order by version desc limit 1) p on true where s.workspace_name = '{workspace}'"
        ))
        .await;
    let number = |text: &str| text.parse::<u64>().unwrap();
    let row = |row: Vec<String>| {
        let phase = SandboxPhase::try_from(row[2].parse::<i32>().unwrap()).unwrap();
        let configuration = Configuration {
            policy_version: number(&row[3]),
            policy_hash: row[4].clone(),
            settings_revision: number(&row[5]),
            attachment_epoch: row[6].clone(),
        };
        (row[0].clone(), Row { resource_version: number(&row[1]), phase, configuration })
    };
    rows.into_iter().map(row).collect()
}

/// Name and version of every sandbox in a workspace, as an edge lists them.
async fn listed(edge: &str, workspace: &str) -> Result<BTreeMap<String, u64>, tonic::Status> {
    let mut found = BTreeMap::new();
    let mut page_token = String::new();
    loop {
        let request = ListSandboxesRequest {
            workspace_scope: scope(workspace),
            page_size: 1000,
            page_token,
            ..Default::default()
        };
        let page = client(edge).list_sandboxes(request).await?.into_inner();
        let metadata = page.sandboxes.into_iter().filter_map(|sandbox| sandbox.metadata);
        found.extend(metadata.map(|metadata| (metadata.name, metadata.resource_version)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(found);
        }
    }
}

async fn polled(edge: &str, workspace: &str, sandbox: &str) -> Result<Composed, tonic::Status> {
    let request = GetSandboxConfigRequest { workspace_scope: scope(workspace), name: sandbox.to_owned() };
    Ok(Composed::polled(&client(edge).get_sandbox_config(request).await?.into_inner()))
}

/// Compares everything once.
async fn compare(edges: &[String], fleet: &Fleet, session: &mut Session) -> Result<(), String> {
    let workspace = fleet.workspace();
    let rows = rows(session, workspace).await;
    let versions: BTreeMap<String, u64> = rows.iter().map(|(name, row)| (name.clone(), row.resource_version)).collect();
    for edge in edges {
        let listed = listed(edge, workspace).await.map_err(|status| format!("no list: {status}"))?;
        if listed != versions {
            return Err(format!("an edge lists {listed:?}, Postgres holds {versions:?}"));
        }
    }
    for member in fleet.members() {
        let name = &member.name;
        let row = rows.get(name).ok_or_else(|| format!("{name} is not in Postgres"))?;
        let mut answers = Vec::new();
        for edge in edges {
            answers.push(polled(edge, workspace, name).await.map_err(|status| format!("{name}: no poll: {status}"))?);
        }
        let watches: Vec<Seen> = member.watches.iter().map(crate::Watched::seen).collect();
        agree(row, &answers, &member.status(), &watches).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// The oracle: within 10 s everything agrees. Nothing may be changing any more.
///
/// # Panics
/// It does not.
pub async fn assert_converges(stack: &Stack, fleet: &Fleet) {
    let edges = Fleet::edges(stack);
    let session = Mutex::new(stack.session().await);
    eventually(CONVERGENCE, "everything agrees", async || compare(&edges, fleet, &mut *session.lock().await).await)
        .await;
}

#[cfg(test)]
mod tests {
    use roadstead_proto::api::sandbox::PolicySource;
    use roadstead_supervisor::{ConfigSeen, Connection, EnvironmentSeen};

    use super::*;
    use crate::watched::Stream;

    fn held(version: u32) -> Status {
        let config = ConfigSeen {
            config_revision: 7,
            policy_version: version,
            policy_hash: "hash".to_owned(),
            source: PolicySource::Sandbox,
            global_policy_version: 0,
            settings_revision: 2,
            provider_env_revision: 9,
            provider_attachment_epoch: "epoch".to_owned(),
            admitted: true,
            has_policy: true,
            error: String::new(),
        };
        let environment = EnvironmentSeen {
            provider_env_revision: 9,
            policy_hash: "hash".to_owned(),
            provider_attachment_epoch: "epoch".to_owned(),
            names: Vec::new(),
        };
        let connection = Some(Connection { session_id: "s".to_owned(), pushes: true });
        Status { connection, config: Some(config), environment: Some(environment), ..Status::default() }
    }

    fn row(held: &Status) -> Row {
        let configuration = Composed::held(held).unwrap().configuration;
        Row { resource_version: 5, phase: SandboxPhase::Ready, configuration }
    }

    fn seen(version: u64) -> Seen {
        Seen { streams: vec![Stream { shown: vec![(version, SandboxPhase::Ready)], ended: None }] }
    }

    #[test]
    fn those_who_hold_the_same_agree() {
        let held = held(3);
        assert_eq!(agree(&row(&held), &[Composed::held(&held).unwrap()], &held, &[seen(5)]), Ok(()));
    }

    #[test]
    fn any_difference_is_told() {
        let newer = held(4);
        let (row, polled) = (row(&newer), Composed::held(&newer).unwrap());
        let says = |row: &Row, polled: &Composed, status: &Status, seen: Seen| {
            agree(row, std::slice::from_ref(polled), status, &[seen]).unwrap_err()
        };
        assert!(says(&row, &polled, &held(3), seen(5)).contains("Postgres"));
        let other = Composed { config_revision: 8, ..polled.clone() };
        assert!(says(&row, &other, &newer, seen(5)).contains("GetSandboxConfig"));
        assert!(says(&row, &polled, &newer, seen(4)).contains("a watch shows"));
        let unready = Row { phase: SandboxPhase::Provisioning, ..row.clone() };
        assert!(says(&unready, &polled, &newer, seen(5)).contains("Provisioning"));
        let mut torn = newer;
        torn.environment.as_mut().unwrap().provider_env_revision = 8;
        assert!(says(&row, &polled, &torn, seen(5)).contains("belong together"));
    }
}
