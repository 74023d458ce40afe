//! Time zones by their IANA names.

use super::item::Item;
use crate::limit::{Calendar, CalendarUnit};
use crate::suggest::nearest;

/// Reads the name of a time zone.
pub(super) fn zone(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string_like("the name of a time zone", "such as \"Europe/Berlin\" or \"UTC\"")?;
    if let Ok(calendar) = Calendar::new(CalendarUnit::Day, &text.value) {
        return Some(calendar.zone().into());
    }
    let problem = text.error(format!("{} is not the name of a time zone", text.quoted()));
    text.reject(match nearest_zone(&text.value, &Calendar::zones()) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help("write a name of the IANA database, such as \"Europe/Berlin\" or \"UTC\""),
    })
}

/// The zone that was probably meant; often only its city is given.
fn nearest_zone<'z>(text: &str, zones: &'z [String]) -> Option<&'z str> {
    let city = |zone: &'z String| zone.rsplit('/').next().unwrap_or(zone);
    let names = || zones.iter().map(String::as_str);
    nearest(text, names()).or_else(|| {
        let meant = nearest(&text.replace(' ', "_"), zones.iter().map(city))?;
        names().find(|zone| zone.rsplit('/').next() == Some(meant))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_zones_are_suggested() {
        let zones = Calendar::zones();
        for (text, near) in [
            ("Europe/Berln", Some("Europe/Berlin")),
            ("Berlin", Some("Europe/Berlin")),
            ("new york", Some("America/New_York")),
            ("", None),
            ("Mars/Olympus Mons", None),
        ] {
            assert_eq!(nearest_zone(text, &zones), near, "{text}");
        }
    }
}
