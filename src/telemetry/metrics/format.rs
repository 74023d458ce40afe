//! The text formats of metrics, and which of them a client accepts.

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

/// A media type with the version of its format.
#[derive(Clone, Copy)]
struct MediaType {
    name: (&'static str, &'static str),
    version: &'static str,
}

/// How exactly a media range of `Accept` names a type; the most exact one decides (RFC 9110 §12.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
struct Preference {
    exactness: u8,
    quality: f32,
}

impl MetricsFormat {
    /// The format that the values of `Accept` prefer. Without a preference, and if they accept neither, it is that of
    /// Prometheus, which every scraper can read.
    #[must_use]
    pub fn accepted(accept: &[&str]) -> Self {
        let quality = |format: Self| {
            let ranges = accept.iter().flat_map(|value| value.split(','));
            let matching = ranges.filter_map(|range| format.media_type().preference(range));
            matching.fold(Preference::default(), |best, next| if next >= best { next } else { best }).quality
        };
        if quality(Self::OpenMetrics) > quality(Self::Prometheus) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    fn media_type(self) -> MediaType {
        match self {
            Self::Prometheus => MediaType { name: ("text", "plain"), version: "0.0.4" },
            Self::OpenMetrics => MediaType { name: ("application", "openmetrics-text"), version: "1.0.0" },
        }
    }
}

impl MediaType {
    /// How a media range prefers this type; none if the range does not include it.
    fn preference(self, range: &str) -> Option<Preference> {
        let mut parts = range.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let (mut exactness, mut quality) = match (kind, subtype) {
            ("*", "*") => (1, 1.0),
            (_, "*") if kind.eq_ignore_ascii_case(self.name.0) => (2, 1.0),
            _ if kind.eq_ignore_ascii_case(self.name.0) && subtype.eq_ignore_ascii_case(self.name.1) => {
                (3, 1.0)
            }
            _ => return None,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim_matches('"');
            match name.to_ascii_lowercase().as_str() {
                "q" => quality = value.parse().ok().filter(|quality| (0.0..=1.0).contains(quality))?,
                "version" if value == self.version => exactness = 4,
                "version" => return None,
                // Such as `charset`, or `escaping`: all names are plain ASCII.
                _ => {}
            }
        }
        Some(Preference { exactness, quality })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9110 §12.5.1.
    #[test]
    fn the_preferred_format_is_selected() {
        use MetricsFormat::{OpenMetrics, Prometheus};
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                            application/openmetrics-text;version=0.0.1;q=0.4,\
                            text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, format) in [
            (&[][..], Prometheus),
            (&[""], Prometheus),
            (&["*/*"], Prometheus),
            (&["text/html, */*;q=0.8"], Prometheus),
            (&["application/json"], Prometheus),
            (&["text/plain"], Prometheus),
            (&[prometheus_2], OpenMetrics),
            (&[prometheus_3], OpenMetrics),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8"], OpenMetrics),
            (&["application/openmetrics-text;version=0.0.1"], Prometheus),
            (&["application/openmetrics-text;version=2.0.0, text/plain;q=0.1"], Prometheus),
            (&["application/openmetrics-text;q=0.4", "text/plain;version=0.0.4;q=0.5"], Prometheus),
            (&["application/openmetrics-text;q=0.5", "text/plain;version=0.0.4;q=0.4"], OpenMetrics),
            (&["application/openmetrics-text, text/plain"], Prometheus),
            (&["application/*, text/plain;q=0.9"], OpenMetrics),
            // The more exact range decides, whatever its place and its weight.
            (&["text/plain;q=0.1, */*"], OpenMetrics),
            (&["*/*, text/plain;version=0.0.4;q=0.1"], OpenMetrics),
            (&["application/openmetrics-text;q=0, */*"], Prometheus),
            (&["application/openmetrics-text;q=2, text/plain;q=x"], Prometheus),
        ] {
            assert_eq!(MetricsFormat::accepted(accept), format, "{accept:?}");
        }
    }
}
