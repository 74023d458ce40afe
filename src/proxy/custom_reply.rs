//! The operator's own responses, in place of problem+json.

use http::{HeaderValue, StatusCode};

use super::template::Template;

/// The operator's own response of one kind.
#[derive(Clone, Debug)]
pub struct CustomReply {
    /// The status code, if it is another one.
    pub status: Option<StatusCode>,
    /// The Content-Type of the body.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Template,
}

/// The operator's own responses, by the kind of response that they replace.
#[derive(Clone, Debug, Default)]
pub struct CustomReplies {
    /// 429.
    pub denied: Option<CustomReply>,
    /// 401.
    pub unauthorized: Option<CustomReply>,
    /// 403.
    pub forbidden: Option<CustomReply>,
    /// 404.
    pub not_found: Option<CustomReply>,
    /// 400, and other statuses of requests that are not accepted as they are: 405, 408, 431 and 501.
    pub bad_request: Option<CustomReply>,
    /// 413.
    pub payload_too_large: Option<CustomReply>,
    /// 503.
    pub unavailable: Option<CustomReply>,
    /// 502 and 508.
    pub bad_gateway: Option<CustomReply>,
    /// 504.
    pub timeout: Option<CustomReply>,
}

impl CustomReplies {
    /// The response in place of one with this status.
    #[must_use]
    pub fn of(&self, status: StatusCode) -> Option<&CustomReply> {
        let custom = match status {
            StatusCode::TOO_MANY_REQUESTS => &self.denied,
            StatusCode::UNAUTHORIZED => &self.unauthorized,
            StatusCode::FORBIDDEN => &self.forbidden,
            StatusCode::NOT_FOUND => &self.not_found,
            StatusCode::PAYLOAD_TOO_LARGE => &self.payload_too_large,
            StatusCode::SERVICE_UNAVAILABLE => &self.unavailable,
            StatusCode::BAD_GATEWAY | StatusCode::LOOP_DETECTED => &self.bad_gateway,
            StatusCode::GATEWAY_TIMEOUT => &self.timeout,
            _ => &self.bad_request,
        };
        custom.as_ref()
    }
}
