//! Writes metrics in their text formats.

use std::io::{self, Write};
use std::time::Duration;

use super::format::MetricsFormat;
use crate::telemetry::exemplars::Exemplar;
use crate::time::Micros;

/// The labels of a series: names and values.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub fn start(&mut self, kind: Kind, name: &'static str, help: &str) -> io::Result<()> {
        self.name = name;
        // In OpenMetrics the metric of the series `x_total` is `x`.
        let metric = match self.format {
            MetricsFormat::Prometheus => name,
            MetricsFormat::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
        };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: MetricsFormat) -> String {
        let mut text = Vec::new();
        let mut out = Exposition::new(&mut text, format);
        out.start(Kind::Counter, "a_total", "Counts.").unwrap();
        out.series(&[("x", "say \"a\\b\"\nc"), ("y", "")], 7).unwrap();
        out.start(Kind::Histogram, "b_seconds", "Times.").unwrap();
        out.histogram(&[("x", "1")], [(Some("0.5"), 1), (None, 2)].into_iter(), 2.25).unwrap();
        out.start(Kind::Gauge, "c_timestamp_seconds", "A time.").unwrap();
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
}
