//! What a bridge knows of the others. Pure: time comes in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use roadstead_proto::internal::BridgePresence;
use uuid::Uuid;

use crate::config::Endpoint;

/// Who was not heard of for so long is not counted on.
const SILENT: Duration = Duration::from_secs(7);
/// Bridges that are remembered.
const MOST: usize = 256;

/// Another bridge, as it last told of itself.
#[derive(Clone, Debug)]
pub struct Peer {
    pub endpoint: Endpoint,
    pub held: u32,
    heard: Instant,
}

/// All of them, by id.
#[derive(Debug, Default)]
pub struct Peers(BTreeMap<Uuid, Peer>);

impl Peers {
    /// Takes in what one tells of itself.
    pub fn hear(&mut self, presence: &BridgePresence, now: Instant) {
        let Ok(id) = Uuid::try_parse(&presence.bridge_id) else { return };
        self.0.retain(|_, peer| peer.heard + SILENT > now);
        match presence.endpoint.parse() {
            Ok(endpoint) if !presence.leaves => {
                if self.0.len() < MOST || self.0.contains_key(&id) {
                    self.0.insert(id, Peer { endpoint, held: presence.held, heard: now });
                }
            }
            _ => {
                self.0.remove(&id);
            }
        }
    }

    /// Those that sessions may be handed over to.
    pub fn present(&self, now: Instant) -> impl Iterator<Item = (Uuid, &Peer)> {
        self.0.iter().filter(move |(_, peer)| peer.heard + SILENT > now).map(|(id, peer)| (*id, peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(id: u128, endpoint: &str) -> BridgePresence {
        let bridge_id = Uuid::from_u128(id).to_string();
        BridgePresence { bridge_id, endpoint: endpoint.to_owned(), held: 3, ..Default::default() }
    }

    #[test]
    fn only_who_can_be_reached_stays_and_speaks_is_counted_on() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        peers.hear(&presence(1, "http://b:1"), now);
        peers.hear(&presence(2, ""), now);
        peers.hear(&presence(3, "not a URL"), now);
        peers.hear(&BridgePresence { bridge_id: "x".to_owned(), ..presence(4, "http://b:4") }, now);
        peers.hear(&presence(5, "http://b:5"), now);
        peers.hear(&BridgePresence { leaves: true, ..presence(5, "http://b:5") }, now);
        let present = |peers: &Peers, at| peers.present(at).map(|(id, _)| id.as_u128()).collect::<Vec<_>>();
        assert_eq!(present(&peers, now), [1]);
        assert!(present(&peers, now + SILENT).is_empty());
        for id in 10..10 + 2 * MOST as u128 {
            peers.hear(&presence(id, "http://b:1"), now);
        }
        assert_eq!(present(&peers, now).len(), MOST);
        peers.hear(&presence(1_000_000, "http://b:1"), now + SILENT);
        assert_eq!(peers.0.len(), 1, "who fell silent makes room");
    }
}
