//! `tidegate explain`.

mod descriptor;
mod explained;
mod forwarding;
mod limits;
mod report;
mod routing;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use clap::{ArgAction, Args};
use http::header::HeaderName;
use http::{HeaderValue, Method, Uri};

pub(super) use self::explained::{CountedRequest, Explained, ResponseInfo};
use self::report::Arrival;
use super::completions;
use super::file::FileArgs;
use super::output::{CommandResult, Failure, print, print_json};
use crate::config::Loaded;
use crate::gate::{ClientIdentity, Descriptor, RecordedParts};
use crate::http1::{RequestHead, names};
use crate::server::ListenerSpec;

const EXAMPLES: &str = "\
Examples:
  tidegate explain GET /v1/users
  tidegate explain POST https://api.example.com/v1/sessions -H 'X-Api-Key: k-4711' --from 203.0.113.9
  tidegate explain POST /login -d 'username=eve'
  tidegate explain GET /orders --consumer acme
  tidegate explain --json GET /orders | jq -r '.limits[].name'
  tidegate explain --descriptor edge generic_key=checkout,remote_address=203.0.113.9

Exit status: 0 if the request is explained, whatever its response is; 1 if the output fails; 2 for an invalid configuration, an \
invalid request or wrong usage.";

/// The request to explain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    file: FileArgs,
    /// The method, such as GET.
    #[arg(required_unless_present = "descriptor")]
    method: Option<String>,
    /// The URL, or its path alone; a host in it becomes the Host header.
    #[arg(required_unless_present = "descriptor")]
    url: Option<String>,
    /// Explain a descriptor of the rate-limit service instead of a request: its domain, and its entries with commas between
    /// them.
    #[arg(
        long,
        action = ArgAction::Set,
        num_args = 2,
        value_names = ["DOMAIN", "KEY=VALUE,…"],
        conflicts_with_all = ["method", "url", "headers", "data", "from", "tls_subject", "tls_san", "consumer"]
    )]
    descriptor: Option<Vec<String>>,
    /// A header of the request; may be repeated.
    #[arg(short = 'H', long = "header", value_name = "'NAME: VALUE'")]
    headers: Vec<String>,
    /// The body of the request, or @FILE for that of a file without its line ends; a form, unless a header names another
    /// Content-Type. Several are joined with &, as curl does.
    #[arg(short, long, value_name = "TEXT")]
    data: Vec<String>,
    /// The address of the peer that sends the request.
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    from: IpAddr,
    /// The subject of the client's certificate, such as CN=worker,O=Example.
    #[arg(long, value_name = "NAME")]
    tls_subject: Option<String>,
    /// The subject alternative name of the client's certificate, such as worker.example.org.
    #[arg(long, value_name = "NAME")]
    tls_san: Option<String>,
    /// The name of the listener that receives the request.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Explain it as a request of this consumer of the file, whatever credential it has.
    #[arg(long, value_name = "NAME", add = completions::consumers())]
    consumer: Option<String>,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
}

/// A request that is made up: by arguments, or by a test.
#[derive(Clone, Copy)]
pub(super) struct MadeUpRequest<'a> {
    pub method: &'a str,
    /// The URL, or its path alone.
    pub url: &'a str,
    /// Headers, each as `NAME: VALUE`.
    pub headers: &'a [String],
    pub body: Option<&'a [u8]>,
    /// The peer that sends it.
    pub from: IpAddr,
    pub tls_subject: Option<&'a str>,
    pub tls_san: Option<&'a str>,
    /// The name of the listener that receives it.
    pub listener: Option<&'a str>,
    /// What is known of it beside its head.
    pub recorded: Option<&'a RecordedParts>,
}

/// Explains a request.
pub(super) fn explain(args: &ExplainArgs) -> CommandResult {
    let usage = |error: String| Failure::Usage.error(error);
    if let Some([domain, entries]) = args.descriptor.as_deref() {
        return explain_descriptor(args, domain, entries);
    }
    let body = read_body(&args.data).map_err(usage)?;
    let mut request = MadeUpRequest {
        method: args.method.as_deref().unwrap_or_default(),
        url: args.url.as_deref().unwrap_or_default(),
        headers: &args.headers,
        body: body.as_deref(),
        from: args.from,
        tls_subject: args.tls_subject.as_deref(),
        tls_san: args.tls_san.as_deref(),
        listener: args.listener.as_deref(),
        recorded: None,
    };
    let head = request.head().map_err(usage)?;
    let loaded = args.file.load()?;
    let recorded =
        args.consumer.as_ref().map(|name| with_consumer(&loaded, name)).transpose().map_err(usage)?;
    request.recorded = recorded.as_ref();
    let explained = request.explain(&loaded, &head).map_err(usage)?;
    if args.json { print_json(&explained) } else { print(&explained.rows.into_text()) }
}

impl MadeUpRequest<'_> {
    /// The head, as a client would send it.
    pub fn head(&self) -> Result<RequestHead, String> {
        let mut head = request_head(self.method, self.url, self.headers)?;
        if let Some(body) = self.body {
            describe_body(&mut head, body);
        }
        Ok(head)
    }

    /// The client.
    pub fn client<'l>(&'l self, loaded: &'l Loaded) -> Result<ClientIdentity<'l>, String> {
        let listener = listener(&loaded.config.listeners, self.listener)?;
        let by_listener = || listener.is_some_and(|spec| spec.tls.is_some());
        let is_https = scheme_of(self.url).map_or_else(by_listener, |scheme| scheme == "https");
        Ok(ClientIdentity {
            address: self.from,
            tls_subject: self.tls_subject,
            tls_san: self.tls_san,
            scheme: Some(if is_https { "https" } else { "http" }),
            listener: listener.and_then(|spec| spec.name.as_deref()),
        })
    }

    /// Explains it.
    pub fn explain(&self, loaded: &Loaded, head: &RequestHead) -> Result<Explained, String> {
        let client = self.client(loaded)?;
        let arrival = Arrival { client, head, body: self.body, recorded: self.recorded };
        let mut explained = report::explain(loaded, arrival);
        let listener = listener(&loaded.config.listeners, self.listener)?;
        if let Some(redirect) = listener.and_then(|spec| spec.redirect.as_deref())
            && loaded.config.snapshot.gate.locate(client, head).scheme(&head.fields) != Some("https")
        {
            let location = redirect.location.fill("http", head, None).unwrap_or_default();
            let text =
                format!("the listener responds with {} to {location}, before any route", redirect.status);
            explained.rows.row("listener", text);
            explained.response = ResponseInfo::new("redirect", redirect.status);
            explained.counted = None;
        }
        Ok(explained)
    }
}

/// The listener with this name; without a name the only one, if there is only one.
fn listener<'s>(
    listeners: &'s [ListenerSpec],
    name: Option<&str>,
) -> Result<Option<&'s ListenerSpec>, String> {
    let Some(name) = name else {
        return Ok(if let [only] = listeners { Some(only) } else { None });
    };
    let found = listeners.iter().find(|spec| spec.name.as_deref() == Some(name));
    found.map(Some).ok_or_else(|| format!("no listener of the file has the name `{name}`"))
}

/// The scheme of a URL; none for a path.
fn scheme_of(url: &str) -> Option<&'static str> {
    let begins = |start: &str| url.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start));
    if begins("https://") { Some("https") } else { begins("http://").then_some("http") }
}

/// Explains a descriptor of the rate-limit service.
fn explain_descriptor(args: &ExplainArgs, domain: &str, entries: &str) -> CommandResult {
    let descriptor = Descriptor::parse(entries).map_err(|error| Failure::Usage.error(error))?;
    let loaded = args.file.load()?;
    let explained = descriptor::explain(&loaded, domain, &descriptor);
    if args.json { print_json(&explained) } else { print(&explained.rows.into_text()) }
}

/// The parts of a request of this consumer of the file.
fn with_consumer(loaded: &Loaded, name: &str) -> Result<RecordedParts, String> {
    let rules = loaded.config.snapshot.gate.consumers.as_ref();
    let rules = rules.ok_or_else(|| "the file has no [consumers]".to_owned())?;
    Ok(RecordedParts { consumer: Some(rules.named(name)?.clone()), ..RecordedParts::default() })
}

/// The Host of a request without one.
const DEFAULT_HOST: &str = "localhost";

/// Builds a head as a client would send it: the target in origin form, and its host in the Host header.
fn request_head(method: &str, url: &str, headers: &[String]) -> Result<RequestHead, String> {
    let method =
        Method::from_bytes(method.as_bytes()).map_err(|_| format!("`{method}` is not a valid method"))?;
    let (host, target) = split_url(url)?;
    let target: Uri = target.parse().map_err(|error| format!("`{url}` is not a valid URL: {error}"))?;
    let mut head = RequestHead::new(method, target);
    for header in headers {
        let (name, value) = parse_header(header)?;
        head.fields.push(&name, value.as_bytes());
    }
    if !head.fields.contains(names::HOST) {
        let host = HeaderValue::from_str(host.unwrap_or(DEFAULT_HOST));
        let host = host.map_err(|_| format!("the host of `{url}` is not valid"))?;
        head.fields.push(names::HOST, host.as_bytes());
    }
    Ok(head)
}

/// The body that arguments make, as with curl; none without arguments.
fn read_body(data: &[String]) -> Result<Option<Vec<u8>>, String> {
    let parts: Vec<Vec<u8>> = data.iter().map(|text| part_of_body(text)).collect::<Result<_, _>>()?;
    Ok((!parts.is_empty()).then(|| parts.join(&b'&')))
}

fn part_of_body(text: &str) -> Result<Vec<u8>, String> {
    let Some(file) = text.strip_prefix('@') else { return Ok(text.into()) };
    let mut bytes = fs::read(file).map_err(|error| format!("can't read {file}: {error}"))?;
    bytes.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
    Ok(bytes)
}

/// Adds the headers that describe a body, where the head does not have them.
fn describe_body(head: &mut RequestHead, body: &[u8]) {
    head.fields.set_default(names::CONTENT_TYPE, b"application/x-www-form-urlencoded");
    head.fields.set_default(names::CONTENT_LENGTH, body.len().to_string().as_bytes());
}

/// Splits a URL into its host, if it has one, and the rest.
fn split_url(url: &str) -> Result<(Option<&str>, &str), String> {
    if url.starts_with('/') || url == "*" {
        return Ok((None, url));
    }
    let Some(scheme) = scheme_of(url) else {
        return Err(format!(
            "`{url}` is neither a URL that starts with http:// nor a path that starts with /"
        ));
    };
    let rest = &url[scheme.len() + "://".len()..];
    let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    match (host, target) {
        ("", _) => Err(format!("`{url}` has no host")),
        (host, "") => Ok((Some(host), "/")),
        (host, target) => Ok((Some(host), target)),
    }
}

fn parse_header(header: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("`{header}` is not a header; write it as 'NAME: VALUE'");
    let (name, value) = header.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_and_target(url: &str, headers: &[&str]) -> Result<(String, String), String> {
        let headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
        let head = request_head("GET", url, &headers)?;
        Ok((head.fields.get_str(names::HOST).unwrap().to_owned(), head.uri.to_string()))
    }

    #[test]
    fn the_host_is_that_of_the_header_the_url_or_the_default() {
        let ok = |host: &str, target: &str| Ok((host.to_owned(), target.to_owned()));
        assert_eq!(host_and_target("http://a.example:81/b?c=d", &[]), ok("a.example:81", "/b?c=d"));
        assert_eq!(host_and_target("HTTPS://u:p@a.example", &[]), ok("a.example", "/"));
        assert_eq!(host_and_target("http://127.0.0.1/b", &["Host: a.example"]), ok("a.example", "/b"));
        assert_eq!(host_and_target("/b", &[]), ok("localhost", "/b"));
        assert_eq!(host_and_target("*", &["host:a"]), ok("a", "*"));
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (url, headers) in [
            ("ftp://a", vec![]),
            ("a.example/b", vec![]),
            ("http://", vec![]),
            ("/a b", vec![]),
            ("/", vec!["no colon"]),
            ("/", vec!["a b: c"]),
            ("/", vec!["a: \u{1}"]),
        ] {
            assert!(host_and_target(url, &headers).is_err(), "{url}");
        }
        assert!(request_head("G T", "/", &[]).is_err());
        assert!(read_body(&["@/nonexistent".to_owned()]).is_err());
    }

    #[test]
    fn a_body_is_joined_from_its_parts() {
        let body =
            |data: &[&str]| read_body(&data.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        assert_eq!(body(&[]), None);
        assert_eq!(body(&["a=1", "b=2"]).unwrap(), b"a=1&b=2");
        let mut head = request_head("POST", "/", &["content-type: application/json".to_owned()]).unwrap();
        describe_body(&mut head, b"{}");
        assert_eq!(head.fields.get_str(names::CONTENT_TYPE), Some("application/json"));
        assert_eq!(head.fields.get_str(names::CONTENT_LENGTH), Some("2"));
    }
}
