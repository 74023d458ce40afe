//! Reading what the plan of a request needs beyond its head, once the limits that the head decides do not deny it.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::LocalBoxFuture;

use super::authorization::CopiedHeaders;
use super::client::ClientConnection;
use super::client_body::ClientBody;
use super::outbound::limit_body;
use super::own_limits::is_about_limits;
use super::rejection::Rejection;
use super::snapshot::Proxy;
use crate::consumers::ConsumerError;
use crate::gate::{
    BodyFields, MAX_READ_BODY, NoField, RequestError, RequestPlan, RequestUsage, RouteId, UsageRules,
};
use crate::http1::RequestHead;
use crate::http1::names::CONTENT_LENGTH;
use crate::limiter::Admission;
use crate::time::Stopwatch;
use crate::upstream::{ForwardError, ReadBody};
use crate::usage::with_stream_usage;

/// What was read of a request beside its head.
#[derive(Debug)]
pub(super) struct ReadParts {
    /// The fields of its body that limits name; none if there is no such limit.
    pub fields: Option<BodyFields>,
    /// Why its consumer is not known, if it still is not.
    unread: ConsumerError,
    /// The headers that an authorization server sets in it.
    copied: Option<CopiedHeaders>,
    /// The length of its body, where that was changed.
    new_length: Option<u64>,
}

impl ReadParts {
    /// Nothing was read.
    pub const NONE: Self =
        Self { fields: None, unread: ConsumerError::NotFetched, copied: None, new_length: None };

    /// The same with the headers that an authorization server sets.
    pub fn with_headers(self, copied: Option<CopiedHeaders>) -> Self {
        Self { copied, ..self }
    }

    /// Sets the headers of an authorization server in the request, and the length of a body that was changed.
    pub fn set_headers(&self, head: &mut RequestHead) {
        if let Some(length) = self.new_length.filter(|_| head.fields.contains(CONTENT_LENGTH)) {
            head.fields.set(CONTENT_LENGTH, length.to_string().as_bytes());
        }
        if let Some(copied) = &self.copied {
            copied.apply(&mut head.fields);
        }
    }
}

/// Why a request is rejected before all that its plan needs is read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The limits that its head decides deny it. That was begun then.
    Denied(Box<Admission>, Stopwatch),
    /// Its body ends early, arrives too slowly, or is larger than the route allows.
    Rejected(Rejection),
}

/// Reads what the plan of a request lacks: its consumer from Redis, and the fields of its body that the limits of its route
/// count by. If it would have to wait for that, the limits that its head decides are checked first. The future is boxed because
/// few requests wait for it, and it would enlarge the future of all.
///
/// # Errors
/// Why the request is rejected.
pub(super) fn read_missing<'f>(
    proxy: &'f Proxy,
    client: &'f ClientConnection,
    (head, body): (&'f RequestHead, &'f mut ClientBody),
    plan: &'f RequestPlan<'_>,
) -> LocalBoxFuture<'f, Result<ReadParts, Unread>> {
    Box::pin(async move {
        let early = EarlyCheck { proxy, plan, stopwatch: Stopwatch::start() };
        early.by_process()?;
        let (mut unread, is_unread) =
            (ConsumerError::Unavailable, plan.identity.error == Some(ConsumerError::NotFetched));
        if is_unread {
            early.in_redis().await?;
            unread = proxy.snapshot.gate.fetch_consumer(client.identity(), head, &proxy.limiter).await;
        }
        let reads_body = |id: &RouteId| {
            let route = proxy.snapshot.gate.routes.get(*id);
            !route.body_fields().is_empty() || route.usage_rules().is_some()
        };
        let Some(route) = plan.matched.route.filter(reads_body) else {
            return Ok(ReadParts { unread, ..ReadParts::NONE });
        };
        let mut reading = pin!(read_body(proxy, client, (head, body), route));
        let read = match poll_arrived(reading.as_mut()).await {
            Poll::Ready(read) => read,
            Poll::Pending => {
                if !is_unread {
                    early.in_redis().await?;
                }
                reading.await
            }
        };
        let (fields, new_length) = read.map_err(Unread::Rejected)?;
        Ok(ReadParts { fields: Some(fields), unread, new_length, ..ReadParts::NONE })
    })
}

/// Checks the limits that the head of a request decides, as far as this process knows that they deny it.
///
/// # Errors
/// Why the request is rejected.
pub(super) fn check_in_process(proxy: &Proxy, plan: &RequestPlan<'_>) -> Result<(), Unread> {
    EarlyCheck { proxy, plan, stopwatch: Stopwatch::start() }.by_process()
}

/// Polls a future that reads a body twice: over HTTP/1.1 the connection, in the same task, provides what has arrived after the
/// first time.
async fn poll_arrived<F: Future + Unpin>(mut reading: F) -> Poll<F::Output> {
    let mut is_first = true;
    poll_fn(|cx| match std::pin::Pin::new(&mut reading).poll(cx) {
        Poll::Pending if std::mem::take(&mut is_first) => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        polled => Poll::Ready(polled),
    })
    .await
}

/// The check of the limits that the head of a request decides.
struct EarlyCheck<'f> {
    proxy: &'f Proxy,
    /// The partial plan, with their charges.
    plan: &'f RequestPlan<'f>,
    stopwatch: Stopwatch,
}

impl EarlyCheck<'_> {
    /// Checks them without I/O: all of them if they are counted in this process.
    fn by_process(&self) -> Result<(), Unread> {
        let Self { proxy, plan, .. } = self;
        if self.is_free() {
            return Ok(());
        }
        self.result(proxy.limiter.known_denial(&proxy.snapshot.gate.limits, &plan.charges))
    }

    /// Checks those that are counted in Redis.
    async fn in_redis(&self) -> Result<(), Unread> {
        let Self { proxy, plan, .. } = self;
        if self.is_free() {
            return Ok(());
        }
        self.result(proxy.limiter.denial_in_redis(&proxy.snapshot.gate.limits, &plan.charges).await)
    }

    /// Whether the request may not be charged at all.
    fn is_free(&self) -> bool {
        self.plan.charges.is_empty() || is_about_limits(&self.proxy.snapshot, self.plan)
    }

    fn result(&self, denied: Option<Admission>) -> Result<(), Unread> {
        denied.map_or(Ok(()), |admission| Err(Unread::Denied(Box::new(admission), self.stopwatch)))
    }
}

/// Plans a request again, once what its plan has lacked is read. Not inlined, because few requests need it.
#[inline(never)]
pub(super) fn replan<'h>(
    proxy: &Proxy,
    client: &ClientConnection,
    head: &'h RequestHead,
    read: &'h ReadParts,
) -> Result<RequestPlan<'h>, RequestError> {
    proxy.snapshot.gate.plan_read(client.identity(), head, read.fields.as_ref(), read.unread)
}

/// Reads the body of a request, if it can have a field that the limits of the route name, or if a cost is estimated by it. It is
/// forwarded unchanged, except for a stream that is made to report its usage: then its new length is returned, too.
async fn read_body(
    proxy: &Proxy,
    client: &ClientConnection,
    (head, body): (&RequestHead, &mut ClientBody),
    id: RouteId,
) -> Result<(BodyFields, Option<u64>), Rejection> {
    let route = proxy.snapshot.gate.routes.get(id);
    let (fields, rules) = (route.body_fields(), route.usage_rules());
    let find = |body| BodyFields::find(fields, head, body);
    let read_for_usage = rules.filter(|_| UsageRules::can_read(head));
    if let (Err(why), None) = (BodyFields::check_head(fields, head), read_for_usage) {
        return Ok((find(Err(why)).with_usage(rules.map(|rules| rules.unread(head))), None));
    }
    let Some(unread) = body.take(client, false) else {
        return Ok((find(Err(NoField::NoBody)).with_usage(rules.map(|_| RequestUsage::default())), None));
    };
    let unread = limit_body(&proxy.snapshot, id, unread);
    let (most, budget) = match read_for_usage {
        Some(rules) => (rules.read_body, client.read_budget()),
        None => (MAX_READ_BODY as u64, client.buffer_budget()),
    };
    let mut new_length = None;
    let read = unread.read(most, budget).await.map_err(ForwardError::from_body_error)?;
    let (read, found, usage) = match read {
        ReadBody::Whole(mut read, bytes) => {
            let is_short = bytes.len() <= MAX_READ_BODY;
            let found = find(if is_short { Ok(&bytes) } else { Err(NoField::TooLong) });
            let usage = rules.map(|rules| {
                let mut usage = rules.read(head, &bytes);
                if rules.adds_stream_usage(head, &usage) {
                    new_length = read.rewrite(with_stream_usage);
                    usage.set_stream_usage(new_length.is_some());
                }
                usage
            });
            (read, found, usage)
        }
        ReadBody::TooLong(read) => {
            (read, find(Err(NoField::TooLong)), rules.map(|rules| rules.too_long(head)))
        }
        ReadBody::NoMemory(read) => {
            (read, find(Err(NoField::NoMemory)), rules.map(|rules| rules.unread(head)))
        }
    };
    *body = ClientBody::Read(Box::new(read));
    Ok((found.with_usage(usage), new_length))
}
