//! Prometheus text format 0.0.4 and OpenMetrics 1.0. Pure.

use std::fmt::Write;

pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
pub const OPEN_METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Metric family: all samples of one name.
#[derive(Debug)]
pub struct Family {
    /// Without the `_total` suffix of counters.
    pub name: &'static str,
    pub help: &'static str,
    pub kind: Kind,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    /// Suffix after the family's name: `_total`, `_bucket`, `_sum` or `_count`.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

impl Family {
    pub fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    pub fn with(mut self, labels: &[(&'static str, &str)], value: f64) -> Self {
        self.add(labels, value);
        self
    }

    pub fn add(&mut self, labels: &[(&'static str, &str)], value: f64) {
        let suffix = if self.kind == Kind::Counter { "_total" } else { "" };
        self.samples.push(Sample { suffix, labels: own_labels(labels), value });
    }

    /// Adds a histogram. `counts` are not cumulative and have one more element than `bounds`.
    pub fn add_histogram(&mut self, labels: &[(&'static str, &str)], bounds: &[f64], counts: &[u64], sum: f64) {
        let mut so_far = 0;
        for (idx, count) in counts.iter().enumerate() {
            so_far += count;
            let bound = bounds.get(idx).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let mut labels = own_labels(labels);
            labels.push(("le", bound));
            self.samples.push(Sample { suffix: "_bucket", labels, value: so_far as f64 });
        }
        self.samples.push(Sample { suffix: "_sum", labels: own_labels(labels), value: sum });
        self.samples.push(Sample { suffix: "_count", labels: own_labels(labels), value: so_far as f64 });
    }
}

fn own_labels(labels: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

pub fn render(families: &[Family], open_metrics: bool) -> String {
    let mut text = String::with_capacity(16 * 1024);
    for Family { name, help, kind, samples } in families {
        let (word, ending) = match kind {
            Kind::Counter if open_metrics => ("counter", ""),
            Kind::Counter => ("counter", "_total"),
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "# HELP {name}{ending} {}", escape(help, false));
        let _ = writeln!(text, "# TYPE {name}{ending} {word}");
        for Sample { suffix, labels, value } in samples {
            let _ = write!(text, "{name}{suffix}");
            for (idx, (label, value)) in labels.iter().enumerate() {
                let before = if idx == 0 { '{' } else { ',' };
                let _ = write!(text, "{before}{label}=\"{}\"", escape(value, true));
            }
            let end = if labels.is_empty() { "" } else { "}" };
            let _ = writeln!(text, "{end} {value}");
        }
    }
    if open_metrics {
        text.push_str("# EOF\n");
    }
    text
}

fn escape(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families() -> Vec<Family> {
        let mut spent = Family::new("corro_seconds", Kind::Histogram, "How long it took.");
        spent.add_histogram(&[("route", "files")], &[0.1, 1.0], &[2, 1, 4], 9.5);
        vec![
            Family::new("corro_jobs", Kind::Gauge, "Jobs by state.").with(&[("state", "queued")], 3.0),
            Family::new("corro_odd", Kind::Counter, "A \\ and\na line.").with(&[("name", "a\"b\\c\nd")], 1.5),
            spent,
        ]
    }

    #[test]
    fn rendered_text_has_prometheus_and_openmetrics_format() {
        let expected = r##"# HELP corro_jobs Jobs by state.
# TYPE corro_jobs gauge
corro_jobs{state="queued"} 3
# HELP corro_odd_total A \\ and\na line.
# TYPE corro_odd_total counter
corro_odd_total{name="a\"b\\c\nd"} 1.5
# HELP corro_seconds How long it took.
# TYPE corro_seconds histogram
corro_seconds_bucket{route="files",le="0.1"} 2
corro_seconds_bucket{route="files",le="1"} 3
corro_seconds_bucket{route="files",le="+Inf"} 7
corro_seconds_sum{route="files"} 9.5
corro_seconds_count{route="files"} 7
"##;
        assert_eq!(render(&families(), false), expected);
        let open = expected.replace("# HELP corro_odd_total", "# HELP corro_odd");
        let open = open.replace("# TYPE corro_odd_total", "# TYPE corro_odd") + "# EOF\n";
        assert_eq!(render(&families(), true), open);
    }
}
