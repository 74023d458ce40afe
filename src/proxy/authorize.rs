//! Asks an authorization server about a request: a GET without a body that describes the request in `X-Forwarded-*`, as
//! Traefik's forwardAuth sends it, over the connections of an upstream. A response of 2xx lets the request pass, with headers
//! that the server sets in it; 401, 403, 429 and redirects go to the client; anything else decides nothing, and `on_failure`
//! applies.

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode, Version};
use http_body_util::BodyExt as _;

use super::admission_rule;
use super::authorization::{
    AuthorizationError, AuthorizationRule, CopiedHeaders, DESCRIBING, OnFailure, Refusal,
};
use super::authorization_cache::CacheKey;
use super::client::ClientConnection;
use super::forward::ForwardPlan;
use super::hop::{normalize_length, remove_hop_by_hop};
use super::http2;
use super::outbound::OutboundHead;
use super::rejection::Rejection;
use super::request_id::RequestId;
use super::route_action::{HeaderEdits, Rewrite};
use super::snapshot::Proxy;
use crate::gate::{ClassInput, KeyLookup};
use crate::http1::names::{CACHE_CONTROL, CONTENT_LENGTH, LOCATION};
use crate::http1::{Fields, RequestHead, ResponseHead};
use crate::telemetry::{RequestTrace, UpstreamEvent};
use crate::time::cached_now;
use crate::upstream::{
    AdmissionRequest, AttemptLog, ForwardError, ForwardOptions, HostRule, RequestBody, ResponseBody,
    UpstreamRequest,
};

/// The longest body of a response that refuses a request.
const MAX_BODY: usize = 64 * 1024;

/// A request that is to be authorized.
pub(super) struct Authorization<'e> {
    pub proxy: &'e Proxy,
    pub client: &'e ClientConnection,
    pub id: &'e RequestId,
    pub plan: &'e ForwardPlan,
    pub trace: Option<&'e mut RequestTrace>,
}

/// What an authorization server has decided.
enum Decision {
    Allowed {
        copied: CopiedHeaders,
        /// Whether the decision may be kept for later requests.
        is_cacheable: bool,
    },
    Refused(Box<Refusal>),
}

impl Authorization<'_> {
    /// Has the request authorized. Returns the headers to set in it, or its rejection.
    pub async fn run(
        mut self,
        rule: &AuthorizationRule,
        head: &RequestHead,
    ) -> Result<CopiedHeaders, Rejection> {
        let (proxy, key) = (self.proxy, self.cache_key(rule, head));
        let upstream = &proxy.upstreams[rule.upstream];
        if let Some(copied) = key.and_then(|key| proxy.authorizations.get(&key, cached_now())) {
            upstream.record_event(UpstreamEvent::AuthorizationReused);
            return Ok(copied);
        }
        // What is wrong with the request itself is no failure of the server.
        let question = self.question(rule, head).map_err(Rejection::Upstream)?;
        let admission = self.admission(head);
        let answer = self.ask(rule, question, admission).await;
        if let Some(trace) = &mut self.trace {
            trace.end_authorization();
        }
        match answer {
            Ok(Decision::Allowed { copied, is_cacheable }) => {
                upstream.record_event(UpstreamEvent::Authorized);
                if let (Some(key), Some(caching), true) = (key, &rule.cache, is_cacheable) {
                    proxy.authorizations.put(key, copied.clone(), cached_now() + caching.lasts);
                }
                Ok(copied)
            }
            Ok(Decision::Refused(refusal)) => {
                upstream.record_event(UpstreamEvent::Unauthorized);
                Err(Rejection::Unauthorized(refusal))
            }
            Err(error) => {
                upstream.record_event(UpstreamEvent::AuthorizationFailed);
                let route = &proxy.snapshot.gate.routes.get(self.plan.route).name;
                if proxy.warnings.borrow_mut().is_due() {
                    tracing::warn!("route {route}: the authorization server decided nothing: {error}");
                }
                if rule.on_failure == OnFailure::Allow && error.is_failure() {
                    return Ok(CopiedHeaders::new(rule.copy.clone(), &Fields::new()));
                }
                Err(Rejection::AuthorizationFailed(error))
            }
        }
    }

    /// The key of the decision, if it may be kept. The request is matched again, since its plan has no room for what few
    /// requests need.
    fn cache_key(&self, rule: &AuthorizationRule, head: &RequestHead) -> Option<CacheKey> {
        let caching = rule.cache.as_ref()?;
        let (gate, client) = (&self.proxy.snapshot.gate, self.client.identity());
        let location = gate.locate(client, head);
        let matched = gate.match_route(head, &location).ok()?;
        let subject = gate.subject(client, head, &matched, &location);
        // Values that differ have no key of their own: the server may decide by either of them.
        let KeyLookup::Key(key) = caching.key.find(&subject, &gate.hasher) else { return None };
        Some((self.plan.route, key))
    }

    /// The request to the authorization server.
    fn question(
        &self,
        rule: &AuthorizationRule,
        head: &RequestHead,
    ) -> Result<Box<RequestHead>, ForwardError> {
        let snapshot = &self.proxy.snapshot;
        let mut question = Box::new(head.clone());
        let outbound = OutboundHead {
            client: self.client,
            client_ip: &snapshot.gate.client_ip,
            plan: self.plan,
            id: self.id,
            rewrite: &Rewrite::default(),
            pattern: &snapshot.gate.routes.get(self.plan.route).path,
            edits: &HeaderEdits::default(),
            consumers: snapshot.consumer_forwarding.as_ref(),
            is_traced: self.proxy.tracer.is_some(),
            trace: self.trace.as_deref(),
            protected: &snapshot.protected_headers,
            soft: None,
        };
        outbound.prepare(&mut question)?;
        let RequestHead { method, uri, fields, .. } = &mut *question;
        fields.retain(|field| rule.sends(field.name));
        let [by_method, by_uri] = &DESCRIBING;
        fields.set(by_method, method.as_str().as_bytes());
        fields.set(by_uri, uri.to_string().as_bytes());
        (*method, *uri) = (Method::GET, rule.target.clone());
        Ok(question)
    }

    /// How the question is admitted, if the authorization server has `overload`: as the request itself if its upstream has that
    /// too, or else with the class that its head decides, and turns by address.
    fn admission(&self, head: &RequestHead) -> AdmissionRequest {
        let gate = &self.proxy.snapshot.gate;
        let own = self.plan.admission.unwrap_or_else(|| {
            let class = gate.class(&ClassInput {
                route: Some(gate.routes.get(self.plan.route)),
                peer: self.client.identity().address,
                head,
                consumer: self.plan.consumer.as_deref(),
            });
            let key = admission_rule::hash(gate.client_ip.counted(self.plan.client));
            AdmissionRequest { key, class: class.0, route: AdmissionRequest::NO_ROUTE }
        });
        AdmissionRequest { route: AdmissionRequest::NO_ROUTE, ..own }
    }

    async fn ask(
        &mut self,
        rule: &AuthorizationRule,
        question: Box<RequestHead>,
        admission: AdmissionRequest,
    ) -> Result<Decision, AuthorizationError> {
        let options = ForwardOptions {
            client: self.proxy.snapshot.gate.client_ip.counted(self.plan.client),
            host: &HostRule::Upstream,
            policy: &rule.policy,
            is_reclaimable: false,
            polls_upload: false,
            hash_key: None,
            admission: Some(&admission),
        };
        let log = AttemptLog { trace: self.trace.as_deref_mut(), ..AttemptLog::default() };
        let request = UpstreamRequest { head: question, body: RequestBody::empty(), interim: None };
        let permit = self.proxy.limiter.permit_authorization();
        let response =
            self.proxy.upstreams[rule.upstream].forward::<true>(permit, request, options, log).await;
        let (head, body) = response.map_err(AuthorizationError::NoResponse)?;
        // Read also where it is not used, so that the connection can be used again.
        let body = read(body).await;
        if head.status.is_success() {
            let is_cacheable = !forbids_caching(&head.fields);
            let copied = CopiedHeaders::new(rule.copy.clone(), &head.fields);
            return Ok(Decision::Allowed { copied, is_cacheable });
        }
        refusal(head, body).map(|refusal| Decision::Refused(Box::new(refusal)))
    }
}

/// Reads a body; fails if it is too long, or ends early or too late.
async fn read(mut body: Box<ResponseBody>) -> Result<Bytes, &'static str> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| "and its body did not end in time")?;
        if let Some(data) = frame.data_ref() {
            if read.len() + data.len() > MAX_BODY {
                return Err("with a body of more than 64 KiB");
            }
            read.extend_from_slice(data);
        }
    }
    Ok(read.freeze())
}

/// The response for the client, if this one refuses the request.
fn refusal(mut head: ResponseHead, body: Result<Bytes, &'static str>) -> Result<Refusal, AuthorizationError> {
    let status = head.status;
    let unusable = |why| AuthorizationError::Unusable(status, why);
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {}
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => {
            if !head.fields.contains(LOCATION) {
                return Err(unusable("without a Location"));
            }
        }
        _ => return Err(AuthorizationError::Status(status)),
    }
    if !normalize_length(&mut head.fields, head.version) {
        return Err(unusable("of an ambiguous length"));
    }
    if head.version == Version::HTTP_2 && !http2::names_are_valid(&head.fields) {
        return Err(unusable("with a header name that HTTP/1.1 does not allow"));
    }
    remove_hop_by_hop(&mut head.fields);
    head.fields.remove(CONTENT_LENGTH);
    Ok(Refusal { head, body: body.map_err(unusable)? })
}

/// Whether a response must not be used for later requests.
fn forbids_caching(fields: &Fields) -> bool {
    let is_forbidden = |directive: &[u8]| {
        [&b"no-store"[..], b"no-cache"].iter().any(|name| directive.eq_ignore_ascii_case(name))
    };
    fields.elements(CACHE_CONTROL).any(is_forbidden)
}
