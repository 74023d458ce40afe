//! Requests that are rejected before they have a plan.

use super::Exchange;
use crate::gate::{BodyFields, RequestError, RouteMatch, Subject};
use crate::http1::RequestHead;
use crate::proxy::rejection::Rejection;

impl Exchange<'_> {
    /// Records what is known of a request that is rejected before it has a plan.
    #[cold]
    pub(super) fn rejected(
        &mut self,
        head: &RequestHead,
        fields: Option<&BodyFields>,
        rejection: Rejection,
    ) -> Rejection {
        let (gate, client) = (&self.proxy.snapshot.gate, self.client.identity());
        let location = gate.locate(client, head);
        let matched = gate.match_route(head, &location).ok();
        self.describe_match(head, matched.as_ref());
        if let (Rejection::Malformed(RequestError::Blocked(limit)), Some(matched)) = (&rejection, &matched) {
            let subject = Subject { body: fields, ..gate.subject(client, head, matched, &location) };
            self.record.describe_blocked(self.proxy, &subject, *limit);
        }
        rejection
    }

    /// Records the client and the route of a request without a plan.
    pub(super) fn describe_match(&mut self, head: &RequestHead, matched: Option<&RouteMatch<'_>>) {
        self.route = matched.and_then(|matched| matched.route);
        self.record.describe_match(&self.proxy.snapshot.gate, self.client, head, matched);
    }
}
