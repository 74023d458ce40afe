//! Writes metrics in their text formats, and chooses the one that a client accepts.

use std::io::{self, Write};
use std::time::Duration;

use crate::telemetry::histogram::Exemplar;
use crate::time::Micros;

/// The labels of a series: names and values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// Metrics as text, written to `W`.
pub(super) struct Exposition<W> {
    out: W,
    format: MetricsFormat,
    /// The metric that is being written.
    name: &'static str,
}

impl<W: Write> Exposition<W> {
    pub fn new(out: W, format: MetricsFormat) -> Self {
        Self { out, format, name: "" }
    }

    /// Starts a metric. The name of a counter ends with `_total`, and that of a metric in seconds with `_seconds`.
    pub fn start(&mut self, kind: MetricKind, name: &'static str, help: &str) -> io::Result<()> {
        self.name = name;
        // In OpenMetrics the metric of the series `x_total` is `x`.
        let metric = match self.format {
            MetricsFormat::Prometheus => name,
            MetricsFormat::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        write!(self.out, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n")?;
        if self.format == MetricsFormat::OpenMetrics && metric.ends_with("_seconds") {
            writeln!(self.out, "# UNIT {metric} seconds")?;
        }
        Ok(())
    }

    /// Writes a series of the metric.
    pub fn series(&mut self, labels: Labels<'_>, value: u64) -> io::Result<()> {
        self.name_and_labels("", labels, None)?;
        self.integer(value)
    }

    /// Writes the series of a metric without labels that is a number of seconds.
    pub fn seconds(&mut self, labels: Labels<'_>, value: f64) -> io::Result<()> {
        self.name_and_labels("", labels, None)?;
        writeln!(self.out, "{value}")
    }

    /// Writes the series of a histogram: the count of each bucket, with the label of its upper bound, and the sum.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (Option<&'static str>, u64)>,
        sum: f64,
    ) -> io::Result<()> {
        self.histogram_with_exemplars(labels, buckets.map(|(bound, count)| (bound, count, None)), sum)
    }

    /// Writes the series of a histogram, with an exemplar of some buckets if the format has exemplars.
    pub fn histogram_with_exemplars(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (Option<&'static str>, u64, Option<Exemplar>)>,
        sum: f64,
    ) -> io::Result<()> {
        let mut count = 0;
        for (bound, observations, exemplar) in buckets {
            count += observations;
            self.name_and_labels("_bucket", labels, Some(bound.unwrap_or("+Inf")))?;
            match exemplar.filter(|_| self.format == MetricsFormat::OpenMetrics) {
                None => self.integer(count)?,
                Some(Exemplar { trace, took, at }) => {
                    let (took, at) = (Duration::from(took).as_secs_f64(), Micros(at.0).as_secs_f64());
                    writeln!(self.out, "{count} # {{trace_id=\"{trace}\"}} {took} {at}")?;
                }
            }
        }
        self.name_and_labels("_sum", labels, None)?;
        writeln!(self.out, "{sum}")?;
        self.name_and_labels("_count", labels, None)?;
        self.integer(count)
    }

    /// Ends the text.
    pub fn finish(mut self) -> io::Result<()> {
        if self.format == MetricsFormat::OpenMetrics {
            self.out.write_all(b"# EOF\n")?;
        }
        self.out.flush()
    }

    fn name_and_labels(&mut self, suffix: &str, labels: Labels<'_>, le: Option<&str>) -> io::Result<()> {
        self.out.write_all(self.name.as_bytes())?;
        self.out.write_all(suffix.as_bytes())?;
        let mut separator: &[u8] = b"{";
        let all = labels.iter().copied().chain(le.map(|bound| ("le", bound)));
        for (name, value) in all {
            self.out.write_all(separator)?;
            self.out.write_all(name.as_bytes())?;
            self.out.write_all(b"=\"")?;
            self.escaped(value)?;
            self.out.write_all(b"\"")?;
            separator = b",";
        }
        let end: &[u8] = if separator == b"," { b"} " } else { b" " };
        self.out.write_all(end)
    }

    fn escaped(&mut self, mut value: &str) -> io::Result<()> {
        while let Some(at) = value.find(['\\', '"', '\n']) {
            let (before, rest) = value.split_at(at);
            self.out.write_all(before.as_bytes())?;
            self.out.write_all(match rest.as_bytes()[0] {
                b'\n' => b"\\n",
                b'"' => b"\\\"",
                _ => b"\\\\",
            })?;
            value = &rest[1..];
        }
        self.out.write_all(value.as_bytes())
    }

    fn integer(&mut self, value: u64) -> io::Result<()> {
        self.out.write_all(itoa::Buffer::new().format(value).as_bytes())?;
        self.out.write_all(b"\n")
    }
}

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

    fn text(format: MetricsFormat) -> String {
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text, format);
        out.start(MetricKind::Counter, "a_total", "Counts.").unwrap();
        out.series(&[("x", "say \"a\\b\"\nc"), ("y", "")], 7).unwrap();
        out.start(MetricKind::Histogram, "b_seconds", "Times.").unwrap();
        out.histogram(&[("x", "1")], [(Some("0.5"), 1), (None, 2)].into_iter(), 2.25).unwrap();
        out.start(MetricKind::Gauge, "c_timestamp_seconds", "A time.").unwrap();
        out.seconds(&[], 1_790_000_000.5).unwrap();
        out.finish().unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn both_formats_have_the_same_series() {
        let series = r#"a_total{x="say \"a\\b\"\nc",y=""} 7
b_seconds_bucket{x="1",le="0.5"} 1
b_seconds_bucket{x="1",le="+Inf"} 3
b_seconds_sum{x="1"} 2.25
b_seconds_count{x="1"} 3
c_timestamp_seconds 1790000000.5"#;
        for format in [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics] {
            let text = text(format);
            let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(lines.join("\n"), series);
        }
    }

    #[test]
    fn the_formats_describe_metrics_in_their_own_ways() {
        let comments = |format| {
            text(format).lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            comments(MetricsFormat::Prometheus),
            [
                "# HELP a_total Counts.",
                "# TYPE a_total counter",
                "# HELP b_seconds Times.",
                "# TYPE b_seconds histogram",
                "# HELP c_timestamp_seconds A time.",
                "# TYPE c_timestamp_seconds gauge",
            ]
        );
        assert_eq!(
            comments(MetricsFormat::OpenMetrics),
            [
                "# HELP a Counts.",
                "# TYPE a counter",
                "# HELP b_seconds Times.",
                "# TYPE b_seconds histogram",
                "# UNIT b_seconds seconds",
                "# HELP c_timestamp_seconds A time.",
                "# TYPE c_timestamp_seconds gauge",
                "# UNIT c_timestamp_seconds seconds",
                "# EOF",
            ]
        );
    }

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
