//! A bounded map that forgets what was used longest ago.

use std::collections::BTreeMap;

/// At most `capacity` entries.
pub(super) struct Recent<K, V> {
    capacity: usize,
    /// Counts uses; the entry with the lowest count was used longest ago.
    uses: u64,
    entries: BTreeMap<K, (u64, V)>,
    order: BTreeMap<u64, K>,
}

impl<K: Ord + Clone, V> Recent<K, V> {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, entries: BTreeMap::new(), order: BTreeMap::new() }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        let (used, value) = self.entries.get_mut(key)?;
        self.uses += 1;
        self.order.remove(used);
        self.order.insert(self.uses, key.clone());
        *used = self.uses;
        Some(value)
    }

    pub(super) fn insert(&mut self, key: K, value: V) {
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        if let Some((used, _)) = self.entries.insert(key, (self.uses, value)) {
            self.order.remove(&used);
        }
        while self.entries.len() > self.capacity {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn forgets_what_was_used_longest_ago() {
        let mut recent = Recent::new(2);
        recent.insert("a", 1);
        recent.insert("b", 2);
        assert_eq!(recent.get(&"a"), Some(&1));
        recent.insert("c", 3);
        assert_eq!(recent.get(&"b"), None);
        assert_eq!(recent.get(&"a"), Some(&1));
        assert_eq!(recent.get(&"c"), Some(&3));
    }

    #[test]
    fn an_entry_put_twice_counts_once() {
        let mut recent = Recent::new(2);
        recent.insert("a", 1);
        recent.insert("a", 2);
        recent.insert("b", 3);
        assert_eq!(recent.get(&"a"), Some(&2));
        assert_eq!(recent.order.len(), 2);
    }
}
