//! Texts with variables, and the key parts that variables are.

/// A part of a text with variables.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TextPiece {
    Literal(String),
    /// The name of a variable, without `$`.
    Variable(String),
}

/// The counterpart in tidegate of a variable of nginx.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TemplatePart {
    /// A key part.
    Key(String),
    /// A variable with one value for all requests of a server.
    OfServer,
}

/// The pieces of a text.
pub(super) fn pieces(text: &str) -> Vec<TextPiece> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        let (before, after) = rest.split_at(start);
        let after = &after[1..];
        let (name, tail) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(parts) => parts,
            None => after.split_at(after.find(|c| !is_name(c)).unwrap_or(after.len())),
        };
        if !before.is_empty() {
            pieces.push(TextPiece::Literal(before.to_owned()));
        }
        pieces.push(TextPiece::Variable(name.to_owned()));
        rest = tail;
    }
    if !rest.is_empty() {
        pieces.push(TextPiece::Literal(rest.to_owned()));
    }
    pieces
}

/// Whether a text has no variables.
pub(super) fn is_constant(text: &str) -> bool {
    !text.contains('$')
}

/// The only variable of a text that has nothing else.
pub(super) fn only_variable(text: &str) -> Option<String> {
    match &mut pieces(text)[..] {
        [TextPiece::Variable(name)] => Some(std::mem::take(name)),
        _ => None,
    }
}

/// The target of a redirect, if its variables have counterparts.
pub(crate) fn redirect_location(text: &str) -> Option<String> {
    let piece = |piece: TextPiece| match piece {
        TextPiece::Literal(text) => (!text.contains(['{', '}', ' '])).then_some(text),
        TextPiece::Variable(name) => {
            let placeholder = match &*name {
                "scheme" => "{scheme}",
                "host" => "{host}",
                "http_host" => "{host}:{port}",
                "request_uri" => "{path_and_query}",
                "uri" | "document_uri" => "{path}",
                "args" | "query_string" => "{query}",
                _ => return None,
            };
            Some(placeholder.to_owned())
        }
    };
    let location: String = pieces(text).into_iter().map(piece).collect::<Option<_>>()?;
    let is_path = location.starts_with('/') && !location.starts_with("//") || location.starts_with("{path");
    let rest = ["http://", "https://", "{scheme}://"].iter().find_map(|start| location.strip_prefix(start));
    // A host that ends with another placeholder would be selected by the client.
    let is_url = rest.is_some_and(|rest| {
        let end = ["/", "?", "{path"].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
        end > 0 && !rest[..end].replace("{host}", "").replace(":{port}", "").contains('{')
    });
    (is_path || is_url).then_some(location)
}

/// The key part of a variable.
pub(super) fn part(variable: &str) -> Result<TemplatePart, String> {
    let prefixed = |prefix: &str| variable.strip_prefix(prefix).filter(|name| !name.is_empty());
    let key = match variable {
        "binary_remote_addr" | "remote_addr" => "client_ip".to_owned(),
        "host" | "http_host" => "host".to_owned(),
        "uri" | "document_uri" => "path".to_owned(),
        "request_method" => "method".to_owned(),
        "ssl_client_s_dn" => "tls:subject".to_owned(),
        "server_name" => return Ok(TemplatePart::OfServer),
        "request_uri" | "args" | "query_string" => {
            return Err(format!(
                "keys have no counterpart of `${variable}`; `path` is the path without its query"
            ));
        }
        _ if variable.contains("geoip") => {
            return Err(format!("`${variable}`: add `[geo]`, and use the key part `country` or `asn`"));
        }
        _ => {
            if let Some(name) = prefixed("http_") {
                format!("header:{}", name.replace('_', "-"))
            } else if let Some(name) = prefixed("cookie_") {
                format!("cookie:{name}")
            } else if let Some(name) = prefixed("arg_") {
                format!("query:{name}")
            } else if let Some(claim) = prefixed("jwt_claim_") {
                return Err(format!("`${variable}`: add `[jwt]`, and use the key part `jwt:{claim}`"));
            } else {
                return Err(format!("keys have no counterpart of `${variable}`"));
            }
        }
    };
    Ok(TemplatePart::Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_variables() {
        let literal = |text: &str| TextPiece::Literal(text.to_owned());
        let variable = |name: &str| TextPiece::Variable(name.to_owned());
        assert_eq!(pieces("$a-${b}c"), [variable("a"), literal("-"), variable("b"), literal("c")]);
        assert_eq!(pieces("plain"), [literal("plain")]);
        assert_eq!(only_variable("$http_x"), Some("http_x".to_owned()));
        assert_eq!(only_variable("$a$b"), None);
    }

    #[test]
    fn variables_are_key_parts() {
        let key = |text: &str| Ok(TemplatePart::Key(text.to_owned()));
        assert_eq!(part("binary_remote_addr"), key("client_ip"));
        assert_eq!(part("http_x_api_key"), key("header:x-api-key"));
        assert_eq!(part("arg_token"), key("query:token"));
        assert_eq!(part("server_name"), Ok(TemplatePart::OfServer));
        assert!(part("request_uri").is_err() && part("connection").is_err());
    }
}
