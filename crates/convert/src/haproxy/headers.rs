//! Changes of headers.

use super::rules::SectionRules;
use super::sections::SectionLine;
use crate::route::is_literal;

/// Headers of requests that tidegate sets itself, or that can't be removed.
const KEPT_HEADERS: [&str; 5] =
    ["host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];

/// Adds the change of a header that a rule makes.
pub(super) fn change_header(line: &SectionLine, rules: &mut SectionRules) {
    let (name, value) = (line.word(2).to_ascii_lowercase(), line.word(3));
    // tidegate sets these itself.
    let condition = line.words.iter().skip_while(|word| *word != "if").skip(1).map(String::as_str);
    let condition = condition.filter(|word| !matches!(*word, "{" | "}")).collect::<Vec<_>>().concat();
    let is_own = match &*name {
        "x-forwarded-for" => matches!(value, "%[src]" | "%ci"),
        "x-forwarded-host" => value.contains("hdr(") && value.to_ascii_lowercase().contains("(host"),
        "x-forwarded-proto" => {
            value.contains("ssl_fc")
                || matches!((value, &*condition), ("https", "ssl_fc") | ("http", "!ssl_fc"))
        }
        _ => false,
    };
    if is_own && (has_condition(line) || value.contains('%')) {
        return;
    }
    if line.word(1) == "del-header" && line.word(3) == "-m" && line.word(4) != "str" {
        let open = if line.word(0) == "http-request" { "ACCESS IS OPEN by headers of clients: " } else { "" };
        return rules
            .notes
            .push(line.finding(format!("{open}tidegate removes headers by their whole names")));
    }
    let value = match value {
        "%[src]" | "%ci" if line.word(0) == "http-request" => "{client_ip}",
        other => other,
    };
    if has_condition(line) || value.contains('%') {
        return lose_header(
            line,
            "headers of a route have constant values, and no conditions of their own",
            name,
            rules,
        );
    }
    match (line.word(0), line.word(1)) {
        ("http-request", "set-header") if value != "{client_ip}" && !is_literal(value) => {
            lose_header(line, "a text in braces would be a placeholder", name, rules);
        }
        ("http-request", "set-header") => rules.set_headers.push((name, value.to_owned())),
        ("http-request", "del-header") => rules.remove_headers.push(name),
        ("http-response", "set-header") => rules.set_response_headers.push((name, value.to_owned())),
        ("http-response", "del-header") => rules.remove_response_headers.push(name),
        _ => {}
    }
}

/// Whether a rule applies to some requests only.
fn has_condition(line: &SectionLine) -> bool {
    line.words.iter().any(|word| word == "if" || word == "unless")
}

/// Names the change of a header that is not converted. The header of a client must not pass in place of one that a server trusts,
/// so it is removed from requests.
fn lose_header(line: &SectionLine, reason: &str, name: String, rules: &mut SectionRules) {
    let is_removable = line.word(0) == "http-request" && !KEPT_HEADERS.contains(&&*name);
    if !is_removable {
        return rules.notes.push(line.finding(reason));
    }
    let reason = format!("{reason}; the header `{name}` of clients is removed from all requests");
    rules.notes.push(line.finding(reason));
    if !rules.remove_headers.contains(&name) {
        rules.remove_headers.push(name);
    }
}

#[cfg(test)]
mod tests {
    use crate::haproxy::rules::tests::converted;

    #[test]
    fn headers_that_are_not_set_are_removed() {
        for rule in [
            "http-request set-header X-User %[ssl_c_s_dn]",
            "http-request set-header X-User no if { path_beg /x }",
            "http-request del-header X-User unless { src 10.0.0.0/8 }",
            "http-request set-header X-User {host}",
        ] {
            let toml = converted(&format!(" {rule}\n"));
            assert!(toml.contains("request_headers = { remove = [\"x-user\"] }"), "{toml}");
            assert!(toml.contains("`x-user` of clients is removed"), "{toml}");
        }
        let toml = converted(
            " http-request set-header Host %[req.hdr(x)]\n http-response set-header X-User %[src]\n",
        );
        assert!(!toml.contains("remove") && toml.matches("NOT CONVERTED").count() == 2, "{toml}");
    }
}
