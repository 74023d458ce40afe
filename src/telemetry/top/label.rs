//! Who has a key, for people.

use std::sync::Arc;

/// Who has a key, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLabel {
    /// The consumer of its requests.
    pub consumer: KeyConsumer,
    /// The values of its parts.
    pub name: Option<Box<str>>,
}

/// The consumer of all requests of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyConsumer {
    /// None of its requests has a consumer.
    #[default]
    None,
    /// All of its requests have the consumer of this name.
    One(Box<str>),
    /// Its requests differ in their consumers: the key does not belong to one.
    Several,
}

impl KeyConsumer {
    /// The consumer of one request.
    pub(super) fn of(name: Option<&str>) -> Self {
        name.map_or(Self::None, |name| Self::One(name.into()))
    }

    fn is(&self, name: Option<&str>) -> bool {
        match self {
            Self::None => name.is_none(),
            Self::One(own) => name == Some(own),
            Self::Several => true,
        }
    }
}

impl KeyLabel {
    /// Adds the consumer of a further request of the key.
    pub(super) fn add_consumer(label: &mut Arc<Self>, consumer: Option<&str>) {
        if !label.consumer.is(consumer) {
            Arc::make_mut(label).consumer = KeyConsumer::Several;
        }
    }

    /// The label of a key that has both.
    pub(super) fn merged(one: Option<&Arc<Self>>, other: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let (Some(label), Some(other)) = (one, other) else { return one.or(other).cloned() };
        let is_same = label.consumer == other.consumer;
        if is_same && (label.name.is_some() || other.name.is_none()) {
            return Some(Arc::clone(label));
        }
        let consumer = if is_same { label.consumer.clone() } else { KeyConsumer::Several };
        Some(Arc::new(Self { consumer, name: label.name.clone().or_else(|| other.name.clone()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(consumer: Option<&str>, name: Option<&str>) -> Arc<KeyLabel> {
        Arc::new(KeyLabel { consumer: KeyConsumer::of(consumer), name: name.map(Into::into) })
    }

    #[test]
    fn a_key_has_a_consumer_only_if_all_requests_have_it() {
        let mut acme = label(Some("acme"), Some("10.0.0.1"));
        KeyLabel::add_consumer(&mut acme, Some("acme"));
        assert_eq!(acme.consumer, KeyConsumer::One("acme".into()));
        KeyLabel::add_consumer(&mut acme, None);
        assert_eq!(acme.consumer, KeyConsumer::Several);
        KeyLabel::add_consumer(&mut acme, Some("acme"));
        assert_eq!(acme.consumer, KeyConsumer::Several);
        assert_eq!(acme.name.as_deref(), Some("10.0.0.1"));
    }

    #[test]
    fn labels_complete_each_other() {
        let merged = |one, other| KeyLabel::merged(Some(&one), Some(&other)).unwrap();
        let (plain, hashed) = (label(Some("acme"), Some("k")), label(Some("acme"), None));
        assert_eq!(merged(Arc::clone(&hashed), Arc::clone(&plain)), plain);
        assert_eq!(merged(Arc::clone(&plain), hashed), plain);
        assert_eq!(merged(plain, label(Some("globex"), None)).consumer, KeyConsumer::Several);
        assert_eq!(KeyLabel::merged(None, Some(&label(None, None))), Some(label(None, None)));
    }
}
