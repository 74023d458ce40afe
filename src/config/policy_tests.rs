//! `[[tests]]`: policy tests, in the configuration file or in a file of their own. A proxy does not run them.

mod request;
mod spec;

use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use self::request::{RequestKeys, text};
use self::spec::Place;
pub use self::spec::{Expectation, Outcome, PolicyTest, TestRequest, TestStep};
use super::item::Item;
use super::keys::kinds::words;
use super::keys::{DeclaredKeys as _, keys};
use super::loaded::{Config, Loaded};
use super::reader::{self, BrokenText, Reader};
use super::report::{Problem, Report};
use super::secrets::Variables;
use super::sources::Sources;
use super::table::{AnyTable, Name, Reported, Table, entries};
use crate::suggest::nearest;
use crate::time::Timestamp;

/// The most requests of a step.
const MAX_REPEAT: u64 = 1_000_000;
/// Where the clock of a test begins: 2000-01-01 in UTC.
const START: Timestamp = Timestamp(946_684_800_000_000);
/// The largest number of units that `remaining` can have.
const MAX_UNITS: u64 = 1 << 53;

words!(OutcomeWords: Outcome = [
    ("forwarded", Outcome::Forwarded),
    ("responded", Outcome::Responded),
    ("denied", Outcome::Denied),
    ("rejected", Outcome::Rejected)
]);

keys! {
    /// The keys of a file of tests.
    TestsFileKeys {
        /// The tests
        tests: List<KeyTable<TestKeys>>, or "";
    }
}

keys! {
    /// The keys of a test.
    TestKeys {
        /// What the test shows; no other test of the file has this name
        name: Text, required "the sixth sign-in within a minute is denied";
        /// The time at which the clock of the test begins, for limits with calendar windows and for consumers that expire
        time: Time, or "2000-01-01 in UTC";
        /// The request that is sent; see below
        request: KeyTable<RequestKeys>, or "that of each step";
        /// How many times it is sent
        repeat: Integer<1, MAX_REPEAT> = 1;
        /// The time over which these requests are spread evenly; `"0s"` sends all of them at once
        within: Duration<ZERO, YEAR> = "0s";
        /// What is expected of the last request; see below
        expect: KeyTable<ExpectKeys>, or "that of each step";
        /// Several steps, which share counts and clock, in place of `repeat`, `within` and `expect`
        steps: List<KeyTable<StepKeys>>, or "one step";
    }
}

keys! {
    /// The keys of a step.
    StepKeys {
        /// How long after the last request of the step before it the first request is sent
        after: Duration<ZERO, YEAR> = "0s";
        /// The request that is sent
        request: KeyTable<RequestKeys>, or "that of the test";
        /// How many times it is sent
        repeat: Integer<1, MAX_REPEAT> = 1;
        /// The time over which these requests are spread evenly
        within: Duration<ZERO, YEAR> = "0s";
        /// What is expected of the last request
        expect: KeyTable<ExpectKeys>, required { status = 429 };
    }
}

keys! {
    /// The keys of `expect`.
    ExpectKeys [own table] {
        /// `"forwarded"` to an upstream, `"responded"` by the route itself, such as a redirect, `"denied"` by a limit, or
        /// `"rejected"` for another reason, such as an unknown consumer
        outcome: Choice<OutcomeWords>;
        /// The name of the route, or its number if it has none; `""`: none matches
        route: Text => |item| route(item, config);
        /// The limits that count the request, and no others, in any order
        limits: List<Text> => |item| limits(item, config);
        /// The keys by which limits count it, by the name of the limit, in the form of [`tidegate
        /// keys`](../operations.md#who-is-denied)
        keys: NamedTable<Text> => |item| by_limit(item, config, |named| key_name(named, config));
        /// The tiers that apply, by the name of the limit; `""`: none applies
        tiers: NamedTable<Text> => |item| by_limit(item, config, |(_, item)| text(item));
        /// The name of the consumer; `""`: none is known
        consumer: Text => text;
        /// The status of a response of the proxy itself; a request that is forwarded has none
        status: Integer<100, 599, u16>;
        /// The first limit that denies the request
        limit: Text => |item| limit(item, config);
        /// The value of `Retry-After`, without jitter
        retry_after: Duration<ZERO, YEAR>;
        /// How long the request is delayed by limits of the algorithm `leaky_bucket`
        delay: Duration<ZERO, YEAR>;
        /// How many of the requests of `repeat` no limit denies
        allowed: Integer<0, MAX_REPEAT>;
        /// The units that remain, by the name of the limit
        remaining: NamedTable<Integer<0, MAX_UNITS>> => |item| by_limit(item, config, units);
    }
    reads Expectation(table, config: Option<&Config>)
}

/// The tests of a file.
#[derive(Debug)]
pub struct TestFile {
    /// Its tests.
    pub tests: Vec<PolicyTest>,
    /// Valid but suspicious tests.
    pub warnings: Report,
    variables: Variables,
}

impl TestFile {
    /// The text with `${NAME}` in place of the value of each variable that the file names.
    #[must_use]
    pub fn without_variables(&self, text: &str) -> String {
        self.variables.hide_in(text)
    }
}

/// Reads a file of tests for a configuration.
///
/// # Errors
/// All errors of the file.
pub fn load_tests(path: &Path, loaded: &Loaded) -> Result<TestFile, Report> {
    let (text, file) = (reader::read_for(path, "--tests FILE")?, path.display().to_string());
    let sources = Sources::new(&file, &text);
    let (root, errors) = DeTable::parse_recoverable(&sources.main.text);
    let reader = Reader::new(TestsFileKeys::KEYS, &reader::variable);
    let top = Table::<TestsFileKeys>::top(&reader, root.get_ref());
    let read = tests(top.tests().given(), Some(&loaded.config));
    top.close();
    let variables = Variables(reader.variables());
    let broken = [BrokenText { source: &sources.main, errors }];
    let (warnings, errors) = reader::reports(&sources, &broken, reader);
    match read {
        Some(mut tests) if errors.is_empty() => {
            for test in &mut tests {
                test.locate(&sources);
            }
            Ok(TestFile { tests, warnings, variables })
        }
        _ => Err(errors),
    }
}

/// Reads the tests of a file, for this configuration; none if it is invalid, and then names are not checked. `None` if one of
/// the tests is invalid.
pub(super) fn tests(item: Option<Item<'_>>, config: Option<&Config>) -> Option<Vec<PolicyTest>> {
    let Some(item) = item else { return Some(Vec::new()) };
    let mut names: Vec<Item<'_>> = Vec::new();
    let mut is_valid = true;
    let mut read = Vec::new();
    for (number, item) in (1..).zip(item.list("write [[tests]] with two brackets")?) {
        let test = test(number, item, config);
        is_valid &= test.is_some();
        read.extend(test);
        let Some(name) = item.value_of("name").filter(|name| name.is_string()) else { continue };
        if let Some(earlier) = names.iter().find(|earlier| earlier.text() == name.text()) {
            let problem =
                name.error("an earlier test has this name").related(earlier.span(), "the earlier one");
            name.reader.report(problem.help("reports tell tests apart by their names"));
            is_valid = false;
        }
        names.push(name);
    }
    is_valid.then_some(read)
}

fn test(number: usize, item: Item<'_>, config: Option<&Config>) -> Option<PolicyTest> {
    let label = format!("test {number}");
    let table = Table::<TestKeys>::of(item, &*label)?;
    let name = table.name().with(name);
    let start = table.time().read();
    let request = table.request().with(|item| request::request(item, &label, config));
    let steps = match table.steps().given() {
        Some(item) => steps(item, &table, &request, config),
        None => only_step(&table, request, config).map(|step| vec![step]),
    };
    let place = Place::new(&table.span());
    table.close();
    let start = start.ok()?.unwrap_or(START);
    Some(PolicyTest { name: name?, file: String::new(), start, steps: steps?, place })
}

fn name(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "a name is not empty, and has no control characters";
    let is_valid = |text: &str| !text.trim().is_empty() && !text.contains(char::is_control);
    text.parsed("a name for a test", help, |text| is_valid(text).then(|| text.to_owned()))
}

/// The request of a test, if it has a valid one.
type OwnRequest = Result<Option<TestRequest>, Reported>;

/// The only step of a test without `steps`.
fn only_step(table: &Table<'_, TestKeys>, request: OwnRequest, config: Option<&Config>) -> Option<TestStep> {
    let label = table.label();
    let (repeat, within) = (table.repeat().read(), table.within().read());
    let expect = table.expect().with(|item| expectation(item, label, config));
    let lacks = |what: &str, example: &str| {
        let problem = Problem::error(table.span(), format!("{label} does not say what is {what}"));
        table.reader.report(problem.help(format!("such as {example}; or write `steps`")).derived());
    };
    if matches!(request, Ok(None)) {
        lacks("sent", "request = { path = \"/login\" }");
    }
    if matches!(expect, Ok(None)) {
        lacks("expected", "expect = { status = 429 }");
    }
    let (expect, place) = expect.ok()??;
    let step = TestStep {
        after: Duration::ZERO,
        request: request.ok()??,
        repeat: repeat?,
        within: within?,
        expect,
        place,
    };
    check_allowed(table, step)
}

/// The steps of a test; `request` is that of steps without one.
fn steps(
    item: Item<'_>,
    test: &Table<'_, TestKeys>,
    request: &OwnRequest,
    config: Option<&Config>,
) -> Option<Vec<TestStep>> {
    let of_steps = [test.repeat().given(), test.within().given(), test.expect().given()];
    if let Some(misplaced) = of_steps.into_iter().flatten().next() {
        let title = format!("{} has steps, and `{}` is a key of each of them", test.label(), misplaced.name);
        return misplaced.reject(misplaced.error(title).help("move it into a step"));
    }
    let items =
        item.list("such as steps = [{ expect = { outcome = \"forwarded\" } }, …], or write [[tests.steps]]")?;
    if items.is_empty() {
        return item.reject(item.error(format!("{} has no steps", test.label())));
    }
    let read: Vec<_> = (1..)
        .zip(items)
        .map(|(number, item)| step(item, &format!("step {number} of {}", test.label()), request, config))
        .collect();
    read.into_iter().collect()
}

fn step(item: Item<'_>, label: &str, of_test: &OwnRequest, config: Option<&Config>) -> Option<TestStep> {
    let table = Table::<StepKeys>::of(item, label)?;
    let (after, repeat, within) = (table.after().read(), table.repeat().read(), table.within().read());
    let own = table.request().with(|item| request::request(item, label, config));
    let expect = table.expect().with(|item| expectation(item, label, config));
    if let (Ok(None), Ok(None)) = (&own, of_test) {
        let problem = Problem::error(table.span(), format!("{label} does not say what is sent"));
        let help = "give it or the whole test a request, such as request = { path = \"/login\" }";
        table.reader.report(problem.help(help).derived());
    }
    let request = own.ok()?.or_else(|| of_test.as_ref().ok()?.clone());
    let read = (|| {
        let (expect, place) = expect?;
        Some(TestStep { after: after?, request: request?, repeat: repeat?, within: within?, expect, place })
    })();
    let checked = read.and_then(|step| check_allowed(&table, step));
    table.close();
    checked
}

/// Rejects a step that expects more requests to be allowed than it sends.
fn check_allowed(table: &AnyTable<'_>, step: TestStep) -> Option<TestStep> {
    if step.expect.allowed.is_none_or(|allowed| allowed <= step.repeat) {
        return Some(step);
    }
    let title =
        format!("{} expects more allowed requests than the {} that it sends", table.label(), step.repeat);
    table.reader.report(Problem::error(table.span(), title).help("set `repeat`, or a lower `allowed`"));
    None
}

/// What is expected, and its place.
fn expectation(item: Item<'_>, owner: &str, config: Option<&Config>) -> Option<(Expectation, Place)> {
    let table = Table::<ExpectKeys>::of_or(
        item,
        format!("what {owner} expects"),
        "such as expect = { status = 429 }",
    )?;
    let read = ExpectKeys::read(&table, config);
    let status = table.status().given();
    table.close();
    let expect = read?;
    if expect.is_empty() {
        let help = "such as expect = { status = 429 }";
        return item.reject(item.error(format!("{owner} expects nothing")).help(help));
    }
    if let (Some(Outcome::Forwarded), Some(status)) = (expect.outcome, status) {
        let problem = status.error("a request that is forwarded has no status of the proxy itself");
        let help = "leave it out; `upstream_status` of the request is the status of the upstream's response";
        return item.reject(problem.help(help));
    }
    Some((expect, Place::new(&item.span())))
}

fn units((_, item): (&str, Item<'_>)) -> Option<u64> {
    item.integer(&(0..=MAX_UNITS))
}

/// The name of a limit of the configuration, if that is valid.
fn limit(item: Item<'_>, config: Option<&Config>) -> Option<String> {
    let text = item.string()?;
    if let Some(problem) = unknown_limit(&text.value, text.unknown("limit"), config) {
        return text.reject(problem);
    }
    Some(text.value)
}

/// The problem of a name that no limit has, with help; none if a limit has it, or the configuration is invalid.
fn unknown_limit(name: &str, problem: Problem, config: Option<&Config>) -> Option<Problem> {
    let names =
        || config.iter().flat_map(|config| config.snapshot.gate.limits()).map(|(_, policy)| &*policy.name);
    if config.is_none() || names().any(|known| known == name) {
        return None;
    }
    Some(match nearest(name, names()) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(format!("define it: [limits.{name}]")),
    })
}

fn limits(item: Item<'_>, config: Option<&Config>) -> Option<Vec<String>> {
    item.list_of("put the names in brackets: [\"per-key\"]", |item| limit(item, config))
}

/// Values by the name of a limit; `read` gets the name with the value.
fn by_limit<'a, T>(
    item: Item<'a>,
    config: Option<&Config>,
    read: impl Fn((&str, Item<'a>)) -> Option<T>,
) -> Option<Vec<(String, T)>> {
    let value = |(name, item): (Name<'a>, Item<'a>)| {
        let problem = Problem::error(name.span.clone(), format!("unknown limit `{}`", name.text)).derived();
        let value = read((name.text, item));
        match unknown_limit(name.text, problem, config) {
            Some(problem) => item.reject(problem),
            None => Some((name.text.to_owned(), value?)),
        }
    };
    let read: Vec<_> = entries(item)?.into_iter().map(value).collect();
    read.into_iter().collect()
}

/// How a key is shown that has the client's address in place of a part that the request lacks.
const BY_CLIENT: &str = "client ";

/// The name of a key that the limit can have.
fn key_name((limit, item): (&str, Item<'_>), config: Option<&Config>) -> Option<String> {
    let text = item.string()?;
    let gate = config.map(|config| &config.snapshot.gate);
    let keys = gate.and_then(|gate| Some(gate.keys(gate.limit_named(limit)?)));
    match keys.map(|keys| keys.named(&text.value)) {
        Some(Err(error)) if !text.value.starts_with(BY_CLIENT) => text.reject(text.error(error.to_string())),
        _ => Some(text.value),
    }
}

/// The name of a route of the configuration, if that is valid; empty for no route.
fn route(item: Item<'_>, config: Option<&Config>) -> Option<String> {
    let text = item.string()?;
    let routes = config.map(|config| config.snapshot.gate.routes.routes());
    let names = || routes.iter().copied().flatten().map(|route| &*route.name);
    if text.value.is_empty() || routes.is_none() || names().any(|name| name == text.value) {
        return Some(text.value);
    }
    let problem = text.unknown("route");
    text.reject(match nearest(&text.value, names()) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help("name it: name = \"…\" in [[routes]]; a route without a name has its number"),
    })
}
