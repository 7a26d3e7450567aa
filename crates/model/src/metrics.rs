//! Training metrics of a job: the response of `GET …/jobs/NAME/metrics`. The server extracts them from a job's output
//! with `corro-metrics`; pages and `corro job plot` draw them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Directory beside a job's `stdouterr` in which nodes record curves. Not included in lists of logs. Each node writes
/// one file, with a JSON [`Series`] per line.
pub const CURVES: &str = "curves";

/// The curves of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobMetrics {
    /// Sorted by name, then the average before the ranks.
    pub series: Vec<Series>,
    /// Value of `after` in the next request, which then returns only new points.
    pub next: String,
    /// These are all points, not only new ones: discard earlier points.
    pub whole: bool,
    /// The logs are not read to their end yet: request again at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The job has ended and its output is read completely: no points will follow.
    pub ended: bool,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    pub name: String,
    /// Rank that reported it; null for the average of all ranks, or when the rank is unknown.
    pub rank: Option<u32>,
    /// Unit of the values: `%`, `ms`, `steps/s`; absent for plain numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    pub axis: Axis,
    pub source: Source,
    /// Sorted by step.
    pub points: Vec<Point>,
    /// Number of points before downsampling, which keeps the ends, minima and maxima.
    pub count: u64,
}

/// Meaning of a point's step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Axis {
    /// Batches, over all epochs.
    #[default]
    Step,
    Epoch,
    /// Samples seen, over all epochs.
    Sample,
    /// Unknown; the points are numbered.
    Count,
}

impl Axis {
    pub fn as_str(self) -> &'static str {
        match self {
            Axis::Step => "step",
            Axis::Epoch => "epoch",
            Axis::Sample => "sample",
            Axis::Count => "count",
        }
    }
}

/// Source of a curve, the least exact first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Log lines for people.
    Log,
    /// TensorBoard's event files.
    Events,
    /// `metrics.jsonl` in an output directory.
    File,
    /// `{"corro": …}` lines.
    Lines,
    /// Computed from other curves.
    Derived,
}

/// A point, on the wire `[step, time, value]`: time in milliseconds since 1970 or null when unknown, value null when it
/// is not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub step: f64,
    pub time: Option<i64>,
    pub value: f64,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Non-finite numbers are serialized as null.
        (self.step, self.time, self.value).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Point, D::Error> {
        let (step, time, value) = <(f64, Option<i64>, Option<f64>)>::deserialize(deserializer)?;
        Ok(Point { step, time, value: value.unwrap_or(f64::NAN) })
    }
}

impl JobMetrics {
    /// CSV with one row per point.
    pub fn csv(&self) -> String {
        let mut text = String::from("name,rank,unit,axis,step,time,value\n");
        for series in &self.series {
            let rank = series.rank.map_or_else(String::new, |rank| rank.to_string());
            let (name, unit) = (quoted(&series.name), quoted(series.unit.as_deref().unwrap_or_default()));
            for Point { step, time, value } in &series.points {
                let time = time.map_or_else(String::new, |time| time.to_string());
                let axis = series.axis.as_str();
                text.push_str(&format!("{name},{rank},{unit},{axis},{step},{time},{value}\n"));
            }
        }
        text
    }
}

/// A value of a metric with four significant digits, for people.
pub fn format_value(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..6.0).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.*}", (3.0 - magnitude).max(0.0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A quoted CSV field. A leading formula character is escaped, since the text comes from a job's output.
fn quoted(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metrics() -> JobMetrics {
        let points =
            vec![Point { step: 1.0, time: Some(1_500), value: 2.5 }, Point { step: 2.0, time: None, value: f64::NAN }];
        let (unit, axis, source) = (None, Axis::Step, Source::Log);
        let series = vec![Series { name: "=a,b".into(), rank: Some(0), unit, axis, source, points, count: 2 }];
        JobMetrics { series, next: "1-2".into(), whole: true, more: false, ended: false }
    }

    #[test]
    fn values_have_four_digits() {
        let check = |value: f64, expected: &str| assert_eq!(format_value(value), expected);
        check(0.0, "0");
        check(0.5, "0.5");
        check(0.123456, "0.1235");
        check(12.0, "12");
        check(98.765432, "98.77");
        check(123456.7, "123457");
        check(-0.00012341, "-0.0001234");
        check(1.5e-7, "1.500e-7");
        check(f64::NAN, "NaN");
    }

    #[test]
    fn pages_find_these_words() {
        let expected = json!({
            "series": [{"name": "=a,b", "rank": 0, "axis": "step", "source": "log",
                "points": [[1.0, 1500, 2.5], [2.0, null, null]], "count": 2}],
            "next": "1-2", "whole": true, "ended": false});
        assert_eq!(serde_json::to_value(metrics()).expect("plain data"), expected);
        let back: JobMetrics = serde_json::from_value(expected).expect("the same words");
        assert!(back.series[0].points[1].value.is_nan());
    }

    #[test]
    fn a_table_has_a_line_for_each_point_and_no_formula() {
        let expected = "name,rank,unit,axis,step,time,value\n\"'=a,b\",0,,step,1,1500,2.5\n\"'=a,b\",0,,step,2,,NaN\n";
        assert_eq!(metrics().csv(), expected);
    }
}
