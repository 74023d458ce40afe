//! The edges of calendar windows that a proxy sends to Redis: the script uses the window that contains the time of its decision,
//! which may differ from the time of the proxy.

use std::fmt::Write as _;

use proptest::prelude::*;
use tidegate::limit::{Calendar, CalendarUnit};
use tidegate::store::redis::TAKE;
use tidegate::time::Timestamp;

use super::kit::{Numbers, START, for_all};
use super::models::calendar::{days_in_berlin, weeks_in_berlin};
use crate::support::RedisServer;

const DAY: u64 = 86_400_000_000;

#[allow(clippy::cast_precision_loss)]
fn double(number: i64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:03}").unwrap();
        text
    })
}

/// Runs the script for one unit with the numbers of `sent`, at `now`. Returns whether it is allowed, and `reset_after`, which
/// is the rest of the window.
fn take(server: &RedisServer, numbers: &Numbers, sent: u64, now: u64, key: &str) -> (i64, u64) {
    let quota = numbers.quota();
    let list = quota.numbers(Timestamp(sent));
    let mut policy = vec![quota.letter(), 0, u8::try_from(list.len()).unwrap()];
    policy.extend(list.iter().flat_map(|number| double(*number)));
    let mut request = vec![1, 0, 1, 0, 1, 0, 1, 0, 0];
    request.extend(double(1));
    // Arguments of a command line can't hold a zero byte, so a script writes them.
    let call = format!(
        "local KEYS, ARGV = KEYS, {{ '{now}', '3600000', '{}', '{}' }}\n\
         local reply = (function()\n{}\nend)()\n\
         local allowed, _, reset = struct.unpack('<bdd', reply)\n\
         return string.format('%.0f %.0f', allowed, reset)",
        escaped(&request),
        escaped(&policy),
        TAKE.source
    );
    let reply = server.cli(&["eval", &call, "1", key]);
    let (allowed, reset) = reply.split_once(' ').unwrap();
    (allowed.parse().unwrap(), reset.parse().unwrap())
}

#[test]
fn the_window_contains_the_time_of_the_decision() {
    let server = RedisServer::start();
    // Over both changes of Berlin's clock.
    let sent = 0..420_u64 * DAY;
    let number = std::cell::Cell::new(0);
    for_all(60, &(sent, -99..199_i64, any::<bool>()), |(sent, percent, weeks)| {
        number.set(number.get() + 1);
        let (unit, edges, length) = if weeks {
            (CalendarUnit::Week, weeks_in_berlin as super::rules::Edges, 7 * DAY)
        } else {
            (CalendarUnit::Day, days_in_berlin as super::rules::Edges, DAY)
        };
        let sent = START + sent;
        // From just after the begin of the window before to just before the end of the one after next.
        let (begin, end) = edges(sent);
        let now = begin.saturating_add_signed(percent * i64::try_from(length).unwrap() / 100);
        let first = edges(begin - 1).0;
        let last = edges(end).1;
        prop_assume!((first..last).contains(&now));
        let numbers = Numbers::Calendar(3, unit, "Europe/Berlin");
        let key = format!("edges:{}", number.get());
        let reply = take(&server, &numbers, sent, now, &key);
        prop_assert_eq!(reply, (1, edges(now).1 - now), "sent at {}, decided at {}", sent, now);
        Ok(())
    });
}

/// The calendar agrees with the plain rules, wherever the year.
#[test]
fn a_calendar_follows_its_rules() {
    let berlin = |unit| Calendar::new(unit, "Europe/Berlin").unwrap();
    let (days, weeks) = (berlin(CalendarUnit::Day), berlin(CalendarUnit::Week));
    let utc = Calendar::new(CalendarUnit::Month, "UTC").unwrap();
    for_all(2_000, &(0..70 * 365 * DAY), |after| {
        // The rules are those of the years since 1996.
        let at = 830_000_000_000_000 + after;
        let window = |calendar: &Calendar| {
            let (start, end) = calendar.window(Timestamp(at));
            (start.0, end.0)
        };
        prop_assert_eq!(window(&days), days_in_berlin(at));
        prop_assert_eq!(window(&weeks), weeks_in_berlin(at));
        prop_assert_eq!(window(&utc), super::models::calendar::months_in_utc(at));
        Ok(())
    });
}
