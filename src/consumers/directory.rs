//! The directory of consumers: finds the consumer of a credential in constant time.

use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::consumer::Consumer;
use super::credential::{CredentialCache, CredentialHash};

/// All consumers by their credentials. Immutable once it is served.
#[derive(Default)]
pub struct Directory {
    by_credential: HashMap<CredentialHash, Arc<Consumer>>,
    by_name: HashMap<Box<str>, Arc<Consumer>>,
    /// Unknown credentials are not in it, so that a flood of them evicts none.
    cache: CredentialCache<Arc<Consumer>>,
}

/// A credential that belongs to another consumer already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateCredential {
    /// The name of that consumer.
    pub consumer: Box<str>,
}

impl Directory {
    /// Adds a consumer with one of its credentials.
    ///
    /// # Errors
    /// Another consumer has the credential.
    pub fn add(
        &mut self,
        consumer: &Arc<Consumer>,
        credential: CredentialHash,
    ) -> Result<(), DuplicateCredential> {
        match self.by_credential.entry(credential) {
            Entry::Occupied(other) if other.get().name != consumer.name => {
                return Err(DuplicateCredential { consumer: other.get().name.clone() });
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(vacant) => drop(vacant.insert(Arc::clone(consumer))),
        }
        self.by_name.entry(consumer.name.clone()).or_insert_with(|| Arc::clone(consumer));
        Ok(())
    }

    /// The consumer of a credential.
    #[must_use]
    pub fn find(&self, credential: &[u8]) -> Option<Arc<Consumer>> {
        // All consumers may be in Redis.
        if self.is_empty() {
            return None;
        }
        if let Some(consumer) = self.cache.get(credential) {
            return Some(consumer);
        }
        let consumer = Arc::clone(self.by_credential.get(&CredentialHash::of(credential))?);
        self.cache.put(credential, Arc::clone(&consumer));
        Some(consumer)
    }

    /// The consumer of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Arc<Consumer>> {
        self.by_name.get(name)
    }

    /// All consumers, in no order.
    pub fn consumers(&self) -> impl Iterator<Item = &Consumer> {
        self.by_name.values().map(|consumer| &**consumer)
    }

    /// The number of consumers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are no consumers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl std::fmt::Debug for Directory {
    /// The consumers by their names, without credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut consumers: Vec<&Consumer> = self.consumers().collect();
        consumers.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        f.debug_list().entries(consumers).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(entries: &[(&str, &str)]) -> Directory {
        let mut directory = Directory::default();
        for (name, credential) in entries {
            let consumer = Arc::new(Consumer::new(name));
            directory.add(&consumer, CredentialHash::of(credential.as_bytes())).unwrap();
        }
        directory
    }

    #[test]
    fn consumers_are_found_by_each_of_their_credentials() {
        let directory = directory(&[("acme", "a"), ("acme", "b"), ("globex", "c")]);
        // The second time from the cache.
        for _ in 0..2 {
            for (credential, name) in
                [("a", Some("acme")), ("b", Some("acme")), ("c", Some("globex")), ("d", None)]
            {
                let found = directory.find(credential.as_bytes());
                assert_eq!(found.as_ref().map(|consumer| &*consumer.name), name, "{credential}");
            }
        }
        assert_eq!(directory.len(), 2);
    }

    #[test]
    fn a_credential_belongs_to_one_consumer() {
        let mut directory = directory(&[("acme", "a")]);
        let other = Arc::new(Consumer::new("globex"));
        let duplicate = DuplicateCredential { consumer: "acme".into() };
        assert_eq!(directory.add(&other, CredentialHash::of(b"a")), Err(duplicate));
    }
}
