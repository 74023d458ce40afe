//! `[consumers]`, and the file of consumers.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;
use toml::de::DeTable;

use super::client_ip::header_name;
use super::item::{Item, TextItem};
use super::keys::kinds::words;
use super::keys::{DeclaredKeys as _, keys, mistaken};
use super::limits::NumbersKeys;
use super::priorities::{self, ClassWords, TierClass};
use super::reader::Reader;
use super::report::Problem;
use super::table::{Name, Table, entries, in_order};
use crate::consumers::{
    Consumer, CredentialHash, Directory, StoredConsumers, UnknownConsumer, is_consumer_name, is_tier_name,
};
use crate::gate::{ClientIp, ConsumerRules, CredentialSource};
use crate::proxy::ConsumerForwarding;
use crate::suggest::nearest;
use crate::time::Clock;

/// The longest file of consumers in bytes.
const MAX_FILE: usize = 256 << 20;

words!(UnknownWords: UnknownConsumer =
    [("reject", UnknownConsumer::Reject), ("anonymous", UnknownConsumer::Anonymous)]);

keys! {
    /// The keys of `[consumers]`.
    ConsumersKeys {
        /// The file of consumers, relative to the directory of the configuration file; needed unless `redis_cache`
        /// is set
        file: Text;
        /// How long consumers that are read from the Redis of `[store]` are cached, which is the longest time
        /// until a change there takes effect. Credentials in the file are not looked up. `"off"`: only the
        /// file has consumers
        redis_cache: DurationOrOff<SECOND, DAY> = "off";
        /// Where the credential of a request is: `header:NAME`, `bearer`, `cookie:NAME`, `query:NAME`, `jwt:CLAIM`,
        /// `tls:subject` or `tls:san`
        credential: Text = "header:x-api-key";
        /// A request without a known credential: `"reject"` responds with 401, `"anonymous"` serves it without a
        /// consumer
        unknown: Choice<UnknownWords> = "reject";
        /// The request header that tells the upstream the name of the consumer; clients can't set it
        name_header: Text = "x-consumer-name";
        /// The same for the tier
        tier_header: Text = "x-consumer-tier";
        /// The priority of requests by the tier of their consumer, such as `{ enterprise = "high", free = "low" }`, to upstreams with
        /// [`overload`](upstreams.md#overload) and limits with [`reserved_share`](limits.md#reserved-slots): `critical`, `high`, `normal` or `low`. The higher one of tier and route counts
        priorities: NamedTable<Choice<ClassWords>>;
        /// `false` removes the credential from requests to upstreams
        forward_credential: Boolean = true;
    }
    mistaken IN_CONSUMERS
}

keys! {
    /// The keys of one consumer, in the file of consumers.
    ConsumerKeys {
        /// The credentials that identify the consumer, as they are, or `sha256:` and the SHA-256 hash in
        /// hexadecimal digits
        credentials: List<Text>, required ["sha256:…"];
        /// The tier, for `tiers = { by = "consumer", … }` and the `consumers` of routes
        tier: Text;
        /// Whether its requests are rejected with 403
        blocked: Boolean = false;
        /// When its credentials expire: a time such as `2027-01-31T12:00:00Z`, or a date, which is its start
        /// in UTC
        expires: Time, or "never";
        /// Its own numbers by the name of the limit, such as `{ per-consumer = { rate = "100/s" } }`; the first
        /// part of the limit's key must be `consumer`
        limits: NamedTable<KeyTable<NumbersKeys>>;
    }
}

/// The text of the file of consumers.
pub(super) struct ConsumersFile {
    /// Its path, for messages.
    pub name: String,
    pub text: String,
}

/// `[consumers]`, as far as it could be read.
#[derive(Default)]
pub(super) struct ReadConsumers<'a> {
    /// None if there is no `[consumers]`, or if it has a mistake.
    settings: Option<Settings>,
    is_there: bool,
    has_mistakes: bool,
    directory: Directory,
    tiers: HashSet<Box<str>>,
    own_numbers: HashMap<&'a str, Vec<OwnNumbers<'a>>>,
}

struct Settings {
    source: CredentialSource,
    unknown: UnknownConsumer,
    has_file: bool,
    /// How long consumers from Redis are cached, if they are used, and the span of the key that says so.
    redis: Option<(Duration, Range<usize>)>,
    forwarding: ConsumerForwarding,
    priorities: Vec<TierClass>,
}

/// The numbers that a consumer has for a limit.
pub(super) struct OwnNumbers<'a> {
    pub consumer: &'a str,
    /// The name of the limit, as the file has it.
    pub limit: Name<'a>,
    pub item: Item<'a>,
}

/// Reads the text of the file that `[consumers]` names; notes a problem if it can't be read.
pub(super) fn file(item: Option<Item<'_>>, directory: &Path) -> Option<ConsumersFile> {
    let table = Table::<ConsumersKeys>::of_or(item?, "[consumers]", mistaken::CONSUMERS)?;
    let text = table.file().given()?.string_like("the name of a file", "")?;
    let (path, bytes) = text.read_file(directory);
    let name = path.display().to_string();
    let bytes = match bytes {
        Ok(bytes) if bytes.len() <= MAX_FILE => bytes,
        Ok(bytes) => {
            let title = format!("{name} has {} bytes: too many for a file of consumers", bytes.len());
            return text.reject(text.error(title).help(format!("at most {MAX_FILE} are read")));
        }
        Err(error) => return text.reject(text.unreadable(&path, &error)),
    };
    match String::from_utf8(bytes) {
        Ok(text) => Some(ConsumersFile { name, text }),
        Err(error) => {
            let title = format!("{name} is not valid UTF-8 at byte {}", error.utf8_error().valid_up_to());
            text.reject(text.error(title).help("TOML is written in UTF-8: save the file in that encoding"))
        }
    }
}

impl ConsumersFile {
    /// Why the file seems to be incomplete, if it does: a program may be writing it, or a disk may be full.
    pub fn incomplete(&self, entries: &DeTable<'_>) -> Option<String> {
        let Self { name, text } = self;
        if entries.is_empty() {
            Some(format!("{name} has no consumers"))
        } else if !text.ends_with('\n') {
            Some(format!("{name} does not end with a line break: it may have been cut"))
        } else {
            None
        }
    }
}

impl<'a> ReadConsumers<'a> {
    /// Reads `[consumers]`, and the consumers of its file.
    pub fn read(item: Option<Item<'_>>, file: Option<(&'a Reader<'a>, &'a DeTable<'a>)>) -> Self {
        let Some(item) = item else { return Self::default() };
        let mut read = Self { is_there: true, settings: settings(item), ..Self::default() };
        match file {
            Some((reader, entries)) => {
                for (name, item) in in_order(reader, entries) {
                    read.has_mistakes |= read.add(&name, item).is_none();
                }
            }
            None => read.has_mistakes = read.settings.as_ref().is_none_or(|settings| settings.has_file),
        }
        read
    }

    /// Whether the file has a `[consumers]`.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// The header that holds the credential of a request, if one does.
    pub fn credential_header(&self) -> Option<&HeaderName> {
        self.settings.as_ref()?.source.header()
    }

    /// Whether a consumer has this tier; true if that is not known, because of a mistake or since consumers are in Redis.
    pub fn have_tier(&self, tier: &str) -> bool {
        self.has_mistakes || self.redis().is_some() || self.tiers.contains(tier)
    }

    /// The span of the key that says that consumers are in Redis, if they are.
    pub fn redis(&self) -> Option<Range<usize>> {
        self.settings.as_ref()?.redis.as_ref().map(|(_, span)| span.clone())
    }

    /// The warning about a tier that no consumer has.
    pub fn tier_of_nobody(&self, place: Range<usize>, tier: &str) -> Problem {
        let problem = Problem::warning(place, format!("no consumer has the tier `{tier}`"));
        match nearest(tier, self.tiers.iter().map(|tier| &**tier)) {
            Some(near) => problem.help(format!("did you mean `{near}`?")),
            None => problem,
        }
    }

    /// The tiers that have a priority.
    pub fn priorities(&self) -> &[TierClass] {
        self.settings.as_ref().map_or(&[], |settings| &settings.priorities)
    }

    /// The numbers that consumers have for a limit.
    pub fn own_numbers(&self, limit: &str) -> &[OwnNumbers<'a>] {
        self.own_numbers.get(limit).map_or(&[], Vec::as_slice)
    }

    /// The numbers that consumers have for limits.
    pub fn all_own_numbers(&self) -> impl Iterator<Item = &OwnNumbers<'a>> {
        self.own_numbers.values().flatten()
    }

    /// How consumers are identified, and what upstreams learn about them; `client_ip` then removes these headers where
    /// clients send them. None if there is a mistake.
    pub fn into_rules(
        self,
        client_ip: &mut ClientIp,
    ) -> Option<(Option<Box<ConsumerRules>>, Option<ConsumerForwarding>)> {
        if !self.is_there {
            return Some((None, None));
        }
        let settings = self.settings.filter(|_| !self.has_mistakes)?;
        let Settings { source, unknown, forwarding, redis, priorities, .. } = settings;
        let stored = redis.map(|(lifetime, _)| Arc::new(StoredConsumers::new(lifetime)));
        client_ip.remove_headers.extend([forwarding.name_header.as_str(), forwarding.tier_header.as_str()]);
        let rules = ConsumerRules {
            source,
            unknown,
            directory: self.directory,
            stored,
            clock: Clock::System,
            priorities: priorities.into_iter().map(|of_tier| (of_tier.tier, of_tier.class)).collect(),
        };
        Some((Some(Box::new(rules)), Some(forwarding)))
    }

    fn add(&mut self, name: &Name<'a>, item: Item<'a>) -> Option<()> {
        let table = Table::<ConsumerKeys>::of(item, format!("consumer `{}`", name.text))?;
        let is_named = check_name(name, item);
        let credentials = table.credentials().with(credentials);
        let tier = table.tier().with(tier);
        let blocked = table.blocked().read();
        let expires = table.expires().read();
        let own = table.limits().with(entries);
        table.close();
        let (is_blocked, expires) = (blocked?, expires.ok()?);
        let tier = tier.ok()?;
        if let Some(tier) = &tier
            && !self.tiers.contains(tier)
        {
            self.tiers.insert(tier.clone());
        }
        let consumer = Arc::new(Consumer { tier, is_blocked, expires, ..Consumer::new(name.text) });
        for (hash, item) in credentials? {
            if let Err(duplicate) = self.directory.add(&consumer, hash) {
                let title = format!("consumer `{}` has this credential already", duplicate.consumer);
                return item.reject(item.error(title).help("a credential identifies one consumer"));
            }
        }
        for (limit, item) in own.ok()?.unwrap_or_default() {
            let own = OwnNumbers { consumer: name.text, limit: limit.clone(), item };
            self.own_numbers.entry(limit.text).or_default().push(own);
        }
        is_named.then_some(())
    }
}

fn settings(item: Item<'_>) -> Option<Settings> {
    let table = Table::<ConsumersKeys>::of_or(item, "[consumers]", mistaken::CONSUMERS)?;
    let (source, unknown) = (table.credential().with(source), table.unknown().read());
    let header = |item| header_name(item, "such as \"x-consumer-name\"");
    let (name_header, tier_header) = (table.name_header().with(header), table.tier_header().with(header));
    let forwards_credential = table.forward_credential().read();
    let priorities = table.priorities().with(priorities::of_tiers);
    let has_file = table.file().given().is_some();
    let (lifetime, redis_span) = (table.redis_cache().read(), table.redis_cache().item().span());
    let has_unknown = table.entries().iter().any(|(name, _)| ConsumersKeys::KEYS.get(name.text).is_none());
    table.close();
    if !has_file && has_unknown {
        return None;
    }
    if !has_file && matches!(lifetime, Some(None)) {
        let problem = item.error("[consumers] does not say where the consumers are");
        let help = "name a file: file = \"consumers.toml\", or write redis_cache = \"10s\" if another program adds them to Redis";
        return item.reject(problem.help(help));
    }
    let redis = lifetime?.map(|lifetime| (lifetime, redis_span));
    let source = source?;
    let hidden = (!forwards_credential?).then(|| source.clone());
    let forwarding = ConsumerForwarding { name_header: name_header?, tier_header: tier_header?, hidden };
    let priorities = priorities.ok()?.unwrap_or_default();
    Some(Settings { source, unknown: unknown?, has_file, redis, forwarding, priorities })
}

fn source(item: Item<'_>) -> Option<CredentialSource> {
    let text = item.string()?;
    let help = format!("the sources are {}", CredentialSource::FORMS.join(", "));
    text.parsed("a source of credentials", &help, CredentialSource::parse)
}

fn check_name(name: &Name<'_>, item: Item<'_>) -> bool {
    let is_valid = is_consumer_name(name.text);
    if !is_valid {
        let problem =
            Problem::error(name.span.clone(), format!("`{}` can't be the name of a consumer", name.text));
        let help = "a name has 1 to 128 characters, without control characters, and spaces only inside";
        item.reader.report(problem.help(help));
    }
    is_valid
}

fn credentials(item: Item<'_>) -> Option<Vec<(CredentialHash, Item<'_>)>> {
    item.list_of("put them in brackets: [\"k-4711\"]", |item| Some((credential(&item.string()?)?, item)))
}

/// A credential as it is, or its hash.
fn credential(text: &TextItem<'_>) -> Option<CredentialHash> {
    let value = &*text.value;
    if let Some(digits) = value.strip_prefix("sha256:") {
        let help = "print one with: printf %s CREDENTIAL | sha256sum";
        return CredentialHash::parse(digits).ok().or_else(|| {
            text.reject(text.item.error("`sha256:` must be followed by 64 hexadecimal digits").help(help))
        });
    }
    if value.is_empty() || value.trim() != value {
        let problem = text.item.error("a credential is not empty, and does not start or end with a space");
        return text.reject(problem.help("no request could have it"));
    }
    Some(CredentialHash::of(value.as_bytes()))
}

fn tier(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string()?;
    let help = "a name has 1 to 64 characters from A-Z, a-z, 0-9, _, - and .";
    text.parsed("the name of a tier", help, |name| is_tier_name(name).then(|| name.into()))
}
