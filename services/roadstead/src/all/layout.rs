//! Which replicas run and on which ports: a plan from the command line, before anything is started.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use roadstead_proto::role::Role;
use roadstead_service_kit::settings::admin_port;

/// Roles that run as services, in the order in which they are started.
pub(crate) const SERVICES: [Role; 5] =
    [Role::Admission, Role::ConfigSnapshot, Role::Watch, Role::SupervisorBridge, Role::Edge];

/// Largest number of replicas of one role on one machine.
const MAX_REPLICAS: usize = 16;

/// How many replicas of each role: `edge=2,admission=2`; one where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(BTreeMap<Role, usize>);

/// One replica with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    pub(crate) role: Role,
    /// From 1.
    pub(crate) number: usize,
    pub(crate) admin: SocketAddr,
    pub(crate) listen: Option<SocketAddr>,
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut counts = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, count) = part.split_once('=').ok_or("must be of the form edge=2,admission=2")?;
            let role = SERVICES.into_iter().find(|role| role.name() == name);
            let role = role.ok_or_else(|| format!("there is no role {name:?} to run"))?;
            let count = count.parse().ok().filter(|count| (1..=MAX_REPLICAS).contains(count));
            counts.insert(role, count.ok_or("a role has 1 to 16 replicas")?);
        }
        Ok(Self(counts))
    }
}

impl Counts {
    fn of(&self, role: Role) -> usize {
        self.0.get(&role).copied().unwrap_or(1)
    }

    /// All replicas. The first of a role has the role's own port unless `free_ports`; others get theirs from `free`.
    pub(crate) fn replicas<E>(
        &self,
        free_ports: bool,
        mut free: impl FnMut() -> Result<u16, E>,
    ) -> Result<Vec<Replica>, E> {
        let mut replicas = Vec::new();
        for role in SERVICES {
            for number in 1..=self.of(role) {
                let mut address = |usual: u16| -> Result<SocketAddr, E> {
                    let port = if number == 1 && !free_ports { usual } else { free()? };
                    Ok((Ipv4Addr::LOCALHOST, port).into())
                };
                let admin = address(admin_port(role))?;
                let listen = listen_port(role).map(&mut address).transpose()?;
                replicas.push(Replica { role, number, admin, listen });
            }
        }
        Ok(replicas)
    }
}

const fn listen_port(role: Role) -> Option<u16> {
    match role {
        Role::Edge => Some(17670),
        Role::SupervisorBridge => Some(17671),
        Role::Admission | Role::ConfigSnapshot | Role::Watch | Role::Operator => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn counts_are_read_and_nonsense_is_refused() {
        let counts: Counts = "edge=2,admission=3".parse().unwrap();
        assert_eq!((counts.of(Role::Edge), counts.of(Role::Admission), counts.of(Role::Watch)), (2, 3, 1));
        for bad in ["edge", "edge=0", "edge=17", "edge=x", "operator=1", "nothing=1"] {
            assert!(bad.parse::<Counts>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_replica_has_the_usual_ports_and_no_two_share_one() {
        let counts: Counts = "edge=3,supervisor-bridge=2".parse().unwrap();
        let mut next = 20_000;
        let replicas = counts
            .replicas(false, || {
                next += 1;
                Ok::<_, ()>(next)
            })
            .unwrap();
        assert_eq!(replicas.len(), 3 + 2 + 3);
        let first = replicas.iter().find(|replica| replica.role == Role::Edge).unwrap();
        assert_eq!(first.listen.map(|listen| listen.port()), Some(17670));
        let ports: Vec<_> =
            replicas.iter().flat_map(|replica| [Some(replica.admin), replica.listen]).flatten().collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
    }
}
