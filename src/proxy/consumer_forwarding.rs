//! What an upstream learns about the consumer of a request.

use http::header::HeaderName;

use crate::consumers::Consumer;
use crate::gate::{CredentialSource, remove_credential};
use crate::http1::{Fields, RequestHead};
use crate::upstream::ForwardError;

/// What an upstream learns about the consumer of a request. Clients can't set these headers: they are among those that
/// `[client_ip]` removes.
#[derive(Clone, Debug)]
pub struct ConsumerForwarding {
    /// The header with the name.
    pub name_header: HeaderName,
    /// The header with the tier.
    pub tier_header: HeaderName,
    /// The credential that is removed, if the upstream must not see it.
    pub hidden: Option<CredentialSource>,
}

impl ConsumerForwarding {
    /// Adds the consumer to a request, and removes its credential. The same headers of a trusted proxy are removed first, since
    /// it may have them from its client; those of other clients are removed already. Fails if the target is not valid without its
    /// credential.
    pub(super) fn apply(
        &self,
        head: &mut RequestHead,
        consumer: Option<&Consumer>,
        is_trusted: bool,
    ) -> Result<(), ForwardError> {
        if let Some(source) = &self.hidden {
            remove_credential(source, head).map_err(|error| ForwardError::Target(error.into()))?;
        }
        if is_trusted {
            head.fields.remove(&self.name_header);
            head.fields.remove(&self.tier_header);
        }
        if let Some(consumer) = consumer {
            self.add_consumer(&mut head.fields, consumer);
        }
        Ok(())
    }

    /// Adds the name and the tier of a consumer.
    fn add_consumer(&self, fields: &mut Fields, consumer: &Consumer) {
        fields.push(&self.name_header, consumer.name.as_bytes());
        if let Some(tier) = &consumer.tier {
            fields.push(&self.tier_header, tier.as_bytes());
        }
    }

    /// Adds both headers to a decision. What a request does not have is empty: a proxy that copies the headers replaces those of
    /// its client in any case.
    pub(super) fn add_to_decision(&self, fields: &mut Fields, consumer: Option<&Consumer>) {
        let name = consumer.map_or("", |consumer| &consumer.name);
        let tier = consumer.and_then(|consumer| consumer.tier.as_deref()).unwrap_or_default();
        fields.push(&self.name_header, name.as_bytes());
        fields.push(&self.tier_header, tier.as_bytes());
    }
}
