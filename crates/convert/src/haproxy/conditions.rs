//! ACLs and conditions: `if A !B || { path_beg /api }`.

use std::collections::HashMap;

use super::criteria::{Criterion, Term, Unconverted, criterion};
use super::sections::{Section, SectionLine};

/// The most alternatives of a negated condition.
const MOST_ALTERNATIVES: usize = 64;

/// Tests that must all hold.
pub(super) type Conjunction = Vec<Term>;

/// The named ACLs of a section.
pub(super) struct Acls<'s>(HashMap<&'s str, Vec<&'s [String]>>);

impl<'s> Acls<'s> {
    pub fn of(section: &'s Section) -> Self {
        let mut acls: HashMap<&str, Vec<&[String]>> = HashMap::new();
        for line in section.find(&["acl"]).filter(|line| line.words.len() > 2) {
            acls.entry(line.word(1)).or_default().push(&line.words[2..]);
        }
        Self(acls)
    }

    /// The condition at the end of a line: alternatives, of which one must hold. A line without one has one without tests.
    pub fn condition(&self, line: &SectionLine) -> Result<Vec<Conjunction>, String> {
        let alternatives = self.alternatives(line);
        convertible(&alternatives).map(|()| alternatives)
    }

    /// The condition at the end of a line, with the tests that can't be converted.
    pub fn alternatives(&self, line: &SectionLine) -> Vec<Conjunction> {
        let start = line.words.iter().position(|word| word == "if" || word == "unless");
        let Some(start) = start else { return vec![Vec::new()] };
        let mut alternatives: Vec<Conjunction> = vec![Vec::new()];
        let mut words = line.words[start + 1..].iter().map(String::as_str);
        let mut is_negated = false;
        while let Some(word) = words.next() {
            let word = match word {
                "||" | "or" => {
                    alternatives.push(Vec::new());
                    continue;
                }
                "!" => {
                    is_negated = !is_negated;
                    continue;
                }
                _ => word,
            };
            let name = word.strip_prefix('!').unwrap_or(word);
            is_negated ^= name.len() < word.len();
            let found = if name == "{" {
                let inner: Vec<String> =
                    words.by_ref().take_while(|word| *word != "}").map(str::to_owned).collect();
                criterion(&inner)
            } else {
                self.named(name)
            };
            let found = match found {
                None if is_negated => Some(Criterion::other(format!("`{word}` never holds"))),
                found => found,
            };
            if let Some(last) = alternatives.last_mut() {
                last.extend(found.map(|criterion| Term { is_negated, criterion }));
            }
            is_negated = false;
        }
        if line.words[start] == "unless" { negated(&alternatives) } else { alternatives }
    }

    /// A named ACL; `None` if it always holds.
    fn named(&self, name: &str) -> Option<Criterion> {
        let Some(lines) = self.0.get(name) else {
            return match name {
                "TRUE" | "HTTP" => None,
                // A route for GET also matches HEAD, as this ACL does.
                "METH_CONNECT" | "METH_DELETE" | "METH_GET" | "METH_HEAD" | "METH_OPTIONS" | "METH_POST"
                | "METH_PUT" | "METH_TRACE" => {
                    Some(Criterion::Method(vec![name.trim_start_matches("METH_").to_owned()]))
                }
                _ => Some(Criterion::other(format!("there is no ACL `{name}` in this section"))),
            };
        };
        let mut found: Vec<Criterion> = Vec::new();
        for words in lines {
            found.push(criterion(words)?);
        }
        let is_counter = found.iter().all(Criterion::is_counter);
        let failed = |reason: String| Criterion::Other(Unconverted { reason, is_counter });
        let differ = || failed(format!("the lines of the ACL `{name}` compare different things"));
        let joined = found.into_iter().reduce(|a, b| match (a, b) {
            (Criterion::Path(a), Criterion::Path(b)) => Criterion::Path([a, b].concat()),
            (Criterion::Host(a), Criterion::Host(b)) => Criterion::Host([a, b].concat()),
            (Criterion::Source(a), Criterion::Source(b)) => Criterion::Source([a, b].concat()),
            (Criterion::Other(it), _) | (_, Criterion::Other(it)) => failed(it.reason),
            _ => differ(),
        });
        Some(joined.unwrap_or_else(differ))
    }
}

/// Fails with the reason if a test can't be converted.
pub(super) fn convertible(alternatives: &[Conjunction]) -> Result<(), String> {
    let reason = alternatives.iter().flatten().find_map(|term| match &term.criterion {
        Criterion::Other(Unconverted { reason, .. }) => Some(reason.clone()),
        _ => None,
    });
    reason.map_or(Ok(()), Err)
}

/// The negation of alternatives: of each conjunction one test must not hold.
fn negated(alternatives: &[Conjunction]) -> Vec<Conjunction> {
    let mut all: Vec<Conjunction> = vec![Vec::new()];
    for alternative in alternatives {
        if all.len() * alternative.len() > MOST_ALTERNATIVES {
            let criterion = Criterion::other("the condition of `unless` is too long");
            return vec![vec![Term { is_negated: false, criterion }]];
        }
        let with = |conjunction: &Conjunction, term: &Term| {
            let opposite = Term { is_negated: !term.is_negated, criterion: term.criterion.clone() };
            conjunction.iter().cloned().chain([opposite]).collect()
        };
        all = all.iter().flat_map(|it| alternative.iter().map(move |term| with(it, term))).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::criteria::StickCounter;
    use super::*;
    use crate::source::SourceFile;

    fn parsed(text: &str) -> Result<Vec<Conjunction>, String> {
        let text = format!("frontend f\n  acl api path_beg /api/ /v1\n  acl api path /v2\n  {text}\n");
        let file = SourceFile { name: "f", text: &text, directory: Path::new("") };
        let section = super::super::sections::sections(0, &file).unwrap().remove(0);
        Acls::of(&section).condition(section.lines.last().unwrap())
    }

    #[test]
    fn conditions_are_alternatives_of_tests() {
        let paths = ["/api/*", "/v1*", "/v2"].map(str::to_owned).to_vec();
        let api = |is_negated| Term { is_negated, criterion: Criterion::Path(paths.clone()) };
        let counter = StickCounter { name: "http_req_rate".to_owned(), slot: Some(0), table: None };
        let rate = Term { is_negated: false, criterion: Criterion::Counter(counter, 9) };
        let deny = "http-request deny";
        assert_eq!(parsed(deny), Ok(vec![vec![]]));
        assert_eq!(parsed(&format!("{deny} if api")), Ok(vec![vec![api(false)]]));
        assert_eq!(parsed(&format!("{deny} unless api")), Ok(vec![vec![api(true)]]));
        let both = format!("{deny} if !api {{ sc_http_req_rate(0) ge 10 }} || api");
        assert_eq!(parsed(&both), Ok(vec![vec![api(true), rate], vec![api(false)]]));
        let first = Term { is_negated: true, criterion: Criterion::Method(vec!["POST".to_owned()]) };
        assert_eq!(parsed(&format!("{deny} unless METH_POST api")), Ok(vec![vec![first], vec![api(true)]]));
        for wrong in ["if nothing", "if { path_reg ^/a }", "if { src -f list }", "if { ssl_fc }"] {
            assert!(parsed(&format!("{deny} {wrong}")).is_err(), "{wrong}");
        }
    }
}
