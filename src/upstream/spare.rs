//! Requests that may have to be sent again.

use std::rc::Rc;

use http::Request;

use super::body::RequestBody;
use super::record::Record;

/// A copy of a request, in case it has to be sent again.
pub(super) struct Spare {
    request: Request<RequestBody>,
    /// Its body, while that is on its way.
    body: Option<Rc<Record>>,
}

impl Spare {
    /// None if the request has too large a body.
    pub fn of(request: &mut Request<RequestBody>) -> Option<Self> {
        let body = if request.body().is_incoming() { Some(request.body_mut().record()?) } else { None };
        let mut twin = Request::new(request.body().twin());
        *twin.method_mut() = request.method().clone();
        *twin.uri_mut() = request.uri().clone();
        *twin.headers_mut() = request.headers().clone();
        Some(Self { request: twin, body })
    }

    /// The request, if all of its body has come.
    pub fn whole(mut self) -> Option<Request<RequestBody>> {
        if let Some(record) = self.body {
            *self.request.body_mut() = RequestBody::again(record.whole()?);
        }
        Some(self.request)
    }
}
