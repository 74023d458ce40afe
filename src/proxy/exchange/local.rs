//! Responses that an exchange makes itself: to rejected requests, and to preflights.

use bytes::Bytes;
use http::StatusCode;

use super::Exchange;
use crate::gate::{RequestError, RouteMatch};
use crate::http1::{RequestHead, ResponseHead};
use crate::proxy::local_reply::RejectedRequest;
use crate::proxy::rejection::Rejection;
use crate::proxy::response::ProxyResponse;
use crate::proxy::response_body::BodySource;

impl Exchange<'_> {
    /// The response to a CORS preflight. Limits do not count it, and it needs no credential: a page can't choose whether
    /// its browser sends one, and browsers send it without cookies and API keys.
    pub(super) fn preflight(&mut self, head: &RequestHead) -> Option<ProxyResponse<BodySource>> {
        let proxy = self.proxy;
        let preflight = proxy.snapshot.cors.as_deref()?.preflight(&proxy.snapshot.gate, head)?;
        self.cors = None;
        self.describe_match(head, preflight.matched.as_ref());
        let mut response =
            ProxyResponse::new(ResponseHead::new(StatusCode::NO_CONTENT), BodySource::Local(Bytes::new()));
        self.edit_local_reply(&mut response);
        preflight.write(head, &mut response.head.fields);
        Some(response)
    }

    /// Records what is known of a request that is rejected for its head.
    pub(super) fn describe_malformed(&mut self, head: &RequestHead, error: RequestError) -> Rejection {
        let matched = self.proxy.snapshot.gate.match_route(head).ok();
        self.describe_match(head, matched.as_ref());
        Rejection::Malformed(error)
    }

    /// Records the client and the route of a request without a plan.
    fn describe_match(&mut self, head: &RequestHead, matched: Option<&RouteMatch<'_>>) {
        self.route = matched.and_then(|matched| matched.route);
        if let Some(entry) = &mut self.log_entry {
            entry.describe_match(&self.proxy.snapshot.gate, self.client, head, matched);
        }
    }

    /// Makes the response to a rejected request. Status, headers, body, access log and counters all follow from the
    /// rejection.
    pub(super) fn reject(&mut self, rejection: &Rejection) -> ProxyResponse<BodySource> {
        let gate = &self.proxy.snapshot.gate;
        if let Some((limit, outcome)) = rejection.decision() {
            self.proxy.counts.record_decision(limit, outcome);
        }
        if let Rejection::Upstream(error) = rejection {
            let route = self.route.map_or("", |route| &gate.routes.get(route).name);
            tracing::debug!(route, "{error}");
        }
        if let Some(entry) = &mut self.log_entry {
            entry.describe_rejection(gate, rejection);
        }
        let policy = &self.proxy.snapshot.response_policy;
        let credential = gate.consumers.as_ref().map(|rules| &rules.source);
        let request = RejectedRequest::new(self.rate_headers(), &self.id, credential, rejection);
        let wait = request.wait(rejection);
        let mut response = request.response(rejection, wait);
        self.retry_after = self.retry_after.or(wait.map(|wait| policy.retry_after(wait)));
        self.edit_local_reply(&mut response);
        response
    }

    /// Makes the changes of the route to a response of the proxy itself, if they apply to such responses.
    fn edit_local_reply(&self, response: &mut ProxyResponse<BodySource>) {
        let action = self.route.map(|route| &self.proxy.snapshot.actions[route]);
        if let Some(action) = action.filter(|action| action.edits_local_replies) {
            action.response_headers.apply(&mut response.head.fields);
        }
    }
}
