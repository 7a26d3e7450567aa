//! Scopes, keys and values of the rendezvous server, and Horovod's rule for deleting a scope. Pure; never blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Memory limit. Peer addresses are some hundred bytes per rank, far below it.
const MAX_TOTAL_BYTES: usize = 256 * 1024 * 1024;
/// Bytes that are counted per key, so that the number of empty values is bounded too.
const KEY_OVERHEAD: usize = 128;

#[derive(Debug)]
pub struct Store {
    known: BTreeMap<String, usize>,
    scopes: HashMap<String, Scope>,
    n_bytes: usize,
}

#[derive(Debug, Default)]
struct Scope {
    values: HashMap<String, Arc<[u8]>>,
    finished: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct StoreFull;

impl Store {
    /// `known`: number of ranks that use each scope that is known in advance.
    pub fn new(known: BTreeMap<String, usize>) -> Store {
        Store { known, scopes: HashMap::new(), n_bytes: 0 }
    }

    pub fn put(&mut self, scope: &str, key: &str, value: Vec<u8>) -> Result<(), StoreFull> {
        let added = cost(key, &value);
        let replaced = self.get(scope, key).map_or(0, |old| cost(key, &old));
        if self.n_bytes - replaced + added > MAX_TOTAL_BYTES {
            return Err(StoreFull);
        }
        self.n_bytes = self.n_bytes - replaced + added;
        let scope = self.scopes.entry(scope.to_owned()).or_default();
        scope.values.insert(key.to_owned(), value.into());
        Ok(())
    }

    pub fn get(&self, scope: &str, key: &str) -> Option<Arc<[u8]>> {
        self.scopes.get(scope)?.values.get(key).cloned()
    }

    /// Handles a `DELETE`. In a known scope, the key is a rank that has finished with the scope, which is emptied when its last rank has finished, since
    /// others may still read. In any other scope, deletes the key.
    pub fn delete(&mut self, scope_name: &str, key: &str) {
        match self.known.get(scope_name) {
            Some(&n_ranks) => {
                let scope = self.scopes.entry(scope_name.to_owned()).or_default();
                // A set, because a client that lost the reply repeats its request.
                scope.finished.insert(key.to_owned());
                if scope.finished.len() < n_ranks {
                    return;
                }
                let scope = self.scopes.remove(scope_name).unwrap_or_default();
                self.n_bytes -= scope.values.iter().map(|(key, value)| cost(key, value)).sum::<usize>();
            }
            None => {
                let Some(scope) = self.scopes.get_mut(scope_name) else {
                    return;
                };
                if let Some(value) = scope.values.remove(key) {
                    self.n_bytes -= cost(key, &value);
                }
                if scope.values.is_empty() {
                    self.scopes.remove(scope_name);
                }
            }
        }
    }

    /// Removes scopes with all their keys.
    pub fn remove_scopes(&mut self, is_removed: impl Fn(&str) -> bool) {
        let n_bytes = &mut self.n_bytes;
        self.scopes.retain(|name, scope| {
            let is_kept = !is_removed(name);
            if !is_kept {
                *n_bytes -= scope.values.iter().map(|(key, value)| cost(key, value)).sum::<usize>();
            }
            is_kept
        });
    }
}

fn cost(key: &str, value: &[u8]) -> usize {
    key.len() + value.len() + KEY_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Store {
        Store::new(BTreeMap::from([("global".to_owned(), 2)]))
    }

    #[test]
    fn a_known_scope_is_emptied_by_its_last_rank() {
        let mut store = store();
        for _round in 0..2 {
            store.put("global", "0", b"a".to_vec()).unwrap();
            store.put("global", "1", b"b".to_vec()).unwrap();
            store.delete("global", "0");
            store.delete("global", "0");
            assert_eq!(store.get("global", "0").as_deref(), Some(&b"a"[..]), "rank 1 may still read it");
            store.delete("global", "1");
            assert_eq!(store.get("global", "0"), None);
            assert_eq!(store.get("global", "1"), None);
            assert_eq!(store.n_bytes, 0);
        }
    }

    #[test]
    fn in_other_scopes_the_key_is_deleted() {
        let mut store = store();
        store.put("own", "x", b"1".to_vec()).unwrap();
        store.put("own", "x", b"22".to_vec()).unwrap();
        store.put("own", "y", b"3".to_vec()).unwrap();
        store.delete("own", "x");
        store.delete("nowhere", "x");
        assert_eq!(store.get("own", "x"), None);
        assert_eq!(store.get("own", "y").as_deref(), Some(&b"3"[..]));
        store.delete("own", "y");
        assert!(store.scopes.is_empty());
        assert_eq!(store.n_bytes, 0);
    }

    #[test]
    fn scopes_are_removed_with_their_keys() {
        let mut store = store();
        for scope in ["corro_1", "corro_2"] {
            store.put(scope, "x", b"1".to_vec()).unwrap();
        }
        let n_bytes = store.n_bytes;
        store.remove_scopes(|scope| scope == "corro_1");
        assert_eq!((store.get("corro_1", "x"), store.n_bytes), (None, n_bytes / 2));
        assert!(store.get("corro_2", "x").is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let mut store = store();
        let piece = vec![0; 16 * 1024 * 1024];
        let n_fitting = (0..).take_while(|n| store.put("own", &n.to_string(), piece.clone()).is_ok()).count();
        assert_eq!(n_fitting, 15);
        assert_eq!(store.put("own", "0", piece), Ok(()), "replacing needs no more room");
    }
}
