//! The keys `ahead` and `ahead_share` of a limit: whether units are granted ahead of requests, and whether freed slots
//! are kept.

use std::num::NonZeroU64;

use super::limit_keys::LimitKeys;
use crate::config::item::Item;
use crate::config::report::Problem;
use crate::config::table::Table;
use crate::limit::{Ahead, Algorithm, Policy, Quota, Slots};
use crate::store::StoreSpec;
use crate::time::{Micros, format_duration};

const FORM: &str = "the values are \"off\", \"auto\", and how long a grant lasts, such as \"2s\"";

/// `ahead` and `ahead_share` as the file has them.
pub(super) struct ReadAhead<'a> {
    span: Span,
    share: NonZeroU64,
    /// The value of `ahead`, if the file has one.
    item: Option<Item<'a>>,
    counting: Counting,
}

/// Where limits are counted, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Counting {
    /// In this process: nothing is granted ahead.
    InProcess,
    /// In Redis, by its clock.
    InRedis,
    /// In Redis, by the clocks of the proxies.
    ByClientClock,
}

impl Counting {
    /// How a store counts.
    pub fn of(spec: &StoreSpec) -> Self {
        match spec {
            StoreSpec::Memory => Self::InProcess,
            StoreSpec::Redis(redis) if redis.first().client_clock => Self::ByClientClock,
            StoreSpec::Redis(_) => Self::InRedis,
        }
    }
}

/// How long a grant lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Span {
    /// Units are not granted.
    Off,
    /// By the numbers of the quota.
    Auto,
    Written(Micros),
}

impl<'a> ReadAhead<'a> {
    /// Reads both keys.
    pub fn read(
        table: &Table<'a, LimitKeys>,
        algorithm: Option<Algorithm>,
        counting: Counting,
    ) -> Option<Self> {
        let item = table.ahead().given();
        let (span, share) = (span(table, table.ahead().item()), table.ahead_share().read());
        let read = Self { span: span?, share: share?, item, counting };
        if let Some(share) = table.ahead_share().given() {
            read.warn_of_share(share, algorithm);
        }
        read.check_algorithm(algorithm?)
    }

    /// The value of `ahead`, unless it is `"off"`.
    pub fn item(&self) -> Option<Item<'a>> {
        self.item.filter(|_| self.span != Span::Off)
    }

    /// Rejects a span that the limit itself can't have; tiers and overrides get a shorter one instead.
    pub fn fits(&self, quota: Option<&Quota>, ban: Option<Item<'_>>) -> bool {
        let (Span::Written(span), Some(item)) = (self.span, self.item) else { return true };
        let shown = |span: Micros| format_duration(span.into());
        let problem = match (quota.and_then(Ahead::longest_span), ban) {
            (_, Some(ban)) if span > Ahead::MAX_SPAN_WITH_BAN => {
                let longest = shown(Ahead::MAX_SPAN_WITH_BAN);
                let title = format!(
                    "with `ban`, `ahead` can be at most {longest}: for so long a proxy may allow requests of a key that another one has banned"
                );
                item.error(title)
                    .related(ban.span(), "the ban")
                    .help(format!("write \"{longest}\" or \"auto\""))
            }
            (Some(longest), _) if span > longest => {
                let longest = shown(longest);
                let title = format!(
                    "{} is longer than half of the time in which the limit refills completely",
                    shown(span)
                );
                item.error(title).help(format!("write at most \"{longest}\", or \"auto\""))
            }
            _ => return true,
        };
        item.reader.report(problem);
        false
    }

    /// The policy with these settings.
    pub fn apply(&self, mut policy: Policy) -> Policy {
        if self.counting == Counting::InProcess {
            return policy;
        }
        if let Quota::Concurrency(_) = policy.quota {
            policy.keeps_slots = self.span != Span::Off;
            return policy;
        }
        let longest = Ahead::longest_span(&policy.quota);
        let span = match self.span {
            Span::Off => None,
            Span::Auto => Ahead::automatic_span(&policy.quota),
            Span::Written(span) => longest.map(|longest| span.min(longest)),
        };
        let Some(span) = span else { return policy };
        let span = if policy.ban.is_some() { span.min(Ahead::MAX_SPAN_WITH_BAN) } else { span };
        policy.with_ahead(Ahead { span, share: self.share })
    }

    fn warn_of_share(&self, share: Item<'_>, algorithm: Option<Algorithm>) {
        let (title, help) = if self.item().is_none() {
            ("`ahead_share` has no effect: this limit grants no units ahead", "add ahead = \"auto\"")
        } else if algorithm == Some(Algorithm::Concurrency) {
            (
                "`ahead_share` has no effect: a concurrency limit keeps freed slots, and grants none",
                "leave it out",
            )
        } else {
            return;
        };
        share.reader.report(Problem::warning(share.span(), title).help(help));
    }

    fn check_algorithm(self, algorithm: Algorithm) -> Option<Self> {
        let Some(item) = self.item() else { return Some(self) };
        let problem = match (algorithm, self.span) {
            (Algorithm::LeakyBucket, _) => item
                .error("`ahead` does not work with this algorithm: a unit is a position in the queue, which can't be granted before its request arrives")
                .help("leave it out, or use another algorithm, such as \"token_bucket\""),
            (Algorithm::Concurrency, Span::Written(_)) => {
                let kept = format_duration(Slots::KEPT_FOR.into());
                item.error(format!("`ahead` of a concurrency limit has no span: a freed slot is kept for {kept}"))
                    .help("write ahead = \"auto\"")
            }
            (Algorithm::Concurrency, _) => return Some(self),
            // A clock that is ahead by a second ends the grants of others before they do.
            _ if self.counting == Counting::ByClientClock => item
                .error("`ahead` needs the clock of Redis, but `[store]` has clock = \"client\"")
                .help("remove `clock` from `[store]`, or leave `ahead` out"),
            _ => return Some(self),
        };
        item.reject(problem)
    }
}

fn span<'a>(table: &Table<'a, LimitKeys>, item: Item<'a>) -> Option<Span> {
    let text = item.string_like("\"off\", \"auto\" or a duration", FORM)?;
    match &*text.value {
        "off" => Some(Span::Off),
        "auto" => Some(Span::Auto),
        other if other.trim_start().starts_with(|first: char| first.is_ascii_digit()) => {
            table.ahead().second(item).map(|span| Span::Written(span.into()))
        }
        _ => {
            let problem = text.error(format!("{} is not a value of `ahead`", text.quoted()));
            text.reject(problem.help(FORM))
        }
    }
}
