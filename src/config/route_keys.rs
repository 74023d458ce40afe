//! The keys of `[[routes]]`, and of the tables in it.

use http::StatusCode;

use super::authorize::AuthorizeKeys;
use super::cors::CorsKeys;
use super::deny_status::DenyStatusKind;
use super::geo::{Asn, AsnNotKeys, CountryNotKeys};
use super::headers::{EditsKeys, ResponseEditsKeys};
use super::jwt::{RequireKeys, RequireWords};
use super::keys::kinds::{self, Kinded, words};
use super::keys::{DeclaredKeys, ValueKind, keys};
use super::priorities::ClassWords;
use super::route_actions::{DENY_STATUS, RewriteKeys};

// Whether encoded slashes are kept.
words!(SlashWords: bool = [("refuse", false), ("keep", true)]);
words!(SchemeWords: &'static str = [("http", "http"), ("https", "https")]);
words!(PublicWords: () = [("public", ())]);
// Whether the route is for authorization requests.
words!(RespondWords: bool = [("limits", false), ("decide", true)]);

/// A condition on the values of a header, a query parameter or a cookie.
pub enum ValueConditionKind {}

impl Kinded for ValueConditionKind {
    const KIND: ValueKind = ValueKind::Either(&[
        kinds::Boolean::KIND,
        kinds::Text::KIND,
        kinds::List::<kinds::Text>::KIND,
        ValueKind::Table(NotKeys::keys),
    ]);
}

keys! {
    /// The keys of a route.
    RouteKeys {
        /// For the log, `explain` and the key part `route`; must be unique
        name: Text, or "its number";
        /// The `name` of a listener
        listener: Text, or "any";
        /// `"http"` or `"https"`: the scheme of the connection, or the one that a trusted proxy names
        scheme: Choice<SchemeWords>, or "any";
        /// `"api.example.com"`, or `"*.example.com"` for one or more labels before it
        host: Text, or "any";
        /// An exact path; `{name}` matches one segment, `*` any text within a segment, `**` any text, and `*` at the end the rest
        /// of the path; see [patterns of paths](#patterns-of-paths)
        path: Text, required "/*";
        /// `GET` also matches HEAD
        methods: List<Text>, or "any";
        /// Conditions on headers by their names, such as `{ user-agent = "*bot*", x-beta = true }`; see
        /// [conditions](#conditions-on-headers-query-and-cookies)
        headers: NamedTable<ValueConditionKind>;
        /// The same for query parameters
        query: NamedTable<ValueConditionKind>;
        /// The same for cookies
        cookies: NamedTable<ValueConditionKind>;
        /// Addresses and networks of the client, such as `["10.0.0.0/8", "2001:db8::/32"]`, by the same address as
        /// the key part `client_ip`
        client_ip: Either<List<Text>, KeyTable<ClientIpNotKeys>>, or "any";
        /// Countries of the client by their ISO 3166 codes, such as `["DE", "FR"]`, from the database of
        /// [`[geo]`](geo.md)
        country: Either<List<Text>, KeyTable<CountryNotKeys>>, or "any";
        /// Autonomous systems of the client by their numbers, such as `[64496]`
        asn: Either<List<Asn>, KeyTable<AsnNotKeys>>, or "any";
        /// Names of limits, at most 1,000 together with the default ones
        limits: List<Text> = [];
        /// Whether `default_limits` apply here as well
        inherit_limits: Boolean = true;
        /// `"keep"` accepts paths with `%2F`. `check` rejects that where it would bypass a limit, and warns where
        /// it may bypass a route that denies with `respond`
        encoded_slash: Choice<SlashWords> = "refuse";
        /// The size of a request body, such as `"10MiB"`; see below
        max_body: Size<0, { 1 << 50 }>;
        /// The tiers of the consumers that may use the route, such as `["pro"]`, or `"public"` where no credential
        /// is needed
        consumers: Either<Choice<PublicWords>, List<Text>>, or "as `[consumers]` says";
        /// `"token"` for a valid token of `[jwt]`, or a claim with one of some values, such as
        /// `{ claim = "scope", values = ["orders:read"] }`; see [required tokens](jwt.md#required-tokens)
        require: Either<Choice<RequireWords>, KeyTable<RequireKeys>>;
        /// An authorization server that has to allow the requests before they are forwarded, such as
        /// `{ upstream = "auth", path = "/verify", copy = ["x-user"] }`; see [external authorization](../authorize.md)
        authorize: KeyTable<AuthorizeKeys>;
        /// Replaces `[cors]` for this route; `"off"` leaves CORS to the upstream
        cors: Either<Choice<OffWords>, KeyTable<CorsKeys>>, or "as `[cors]` says";
        /// The name of an upstream, or a URL
        upstream: Text;
        /// How much its requests matter to an upstream with [`overload`](upstreams.md#overload) and to limits with
        /// [`reserved_share`](limits.md#reserved-slots): `"critical"`, `"high"`, `"normal"` or `"low"`
        priority: Choice<ClassWords> = "normal";
        /// A header in which trusted proxies name another priority, such as `"header:x-priority"`. Without a known value the one
        /// above counts
        priority_from: Text, or "no header";
        /// The same key of the upstream, for this route alone; see [times of a route](#times-of-a-route)
        response_timeout: Duration<MILLISECOND, DAY>, or "that of the upstream";
        /// The same key of the upstream, for this route alone
        stall_timeout: Duration<MILLISECOND, DAY>, or "that of the upstream";
        /// The same key of the upstream, for this route alone; `"off"` for none
        total_timeout: DurationOrOff<MILLISECOND, DAY>, or "that of the upstream";
        /// The same key of the upstream, for this route alone
        retries: Integer<0, 5, u32>, or "those of the upstream";
        /// A response of tidegate itself, such as `{ body = "ok" }`; limits apply as well. `"limits"` responds with
        /// the limits of the client and charges nothing; see [own limits](#own-limits). `"decide"` is for
        /// authorization requests of trusted proxies; see [forward auth](../forward-auth.md)
        respond: Either<Choice<RespondWords>, KeyTable<RespondKeys>>;
        /// The status of denials by the limits and by `block` of this route, whatever the limits say; `"close"` closes
        /// the connection without a response; see [the status of a denial](limits.md#the-status-of-a-denial).
        #[doc = DENY_STATUS]
        deny_status: DenyStatusKind, or "that of the denial";
        /// `true` refuses the requests with 403 and a problem+json body, in place of `upstream` or `respond`;
        /// limits apply as well
        block: Boolean = false;
        /// The protocols to which clients may upgrade, such as `["websocket", "tcp", "SPDY/3.1"]`; `[]` for none; see
        /// [upgrades](#upgrades)
        upgrades: List<Text>, or "`[\"websocket\"]`";
        /// Changes to the request on its way upstream, such as `{ strip_prefix = "/v1", host = "upstream" }`
        rewrite: KeyTable<RewriteKeys>;
        /// Changes to the headers of the request: `remove` is applied first, then `set`
        request_headers: KeyTable<EditsKeys>;
        /// Changes to the headers of the response, in the same order
        response_headers: KeyTable<ResponseEditsKeys>;
    }
    mistaken IN_ROUTE
}

keys! {
    /// The keys of `client_ip` as a table.
    ClientIpNotKeys {
        /// Addresses and networks that the client is not in
        not: List<Text>, required ["10.0.0.0/8"];
    }
}

keys! {
    /// The keys of a condition that is a table.
    NotKeys {
        /// A pattern, or several, that no value may match; true also for a request without the name
        not: Either<Text, List<Text>>, required "value";
    }
}

keys! {
    /// The keys of `respond`.
    RespondKeys {
        /// The status of the response
        status: Integer<200, 599, StatusCode> = 200;
        /// The body of the response
        body: Text = "";
        /// Where the client is sent, with status 308 unless another one is given: a path or a URL, with parts of the request
        /// in `{scheme}`, `{host}`, `{port}`, `{path}`, `{query}`, `{path_and_query}` and parameters of the path; see
        /// [redirects](#redirects)
        redirect: Text;
    }
}
