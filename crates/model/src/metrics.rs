//! What a training tells of itself, as it travels: `GET …/jobs/NAME/metrics`. The server finds it in what a job writes
//! (`corro-metrics` reads), pages and `corro job plot` draw it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where nodes write down what they hear of a job's curves: a directory beside its `stdouterr`, which no list of logs shows. A
/// file for each node, of lines with a [`Series`] each.
pub const CURVES: &str = "curves";

/// The curves of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobMetrics {
    /// By name, then the average before the ranks.
    pub series: Vec<Series>,
    /// Give it back as `after` to get only what is new.
    pub next: String,
    /// These are all points, not only the new ones: forget what you had.
    pub whole: bool,
    /// The logs are not read to their end yet: ask again at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The job has ended and everything is read: there will be no more.
    pub ended: bool,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    pub name: String,
    /// Which rank said it; null for the average of all, or when it is not known who.
    pub rank: Option<u32>,
    /// Of the values: `%`, `ms`, `steps/s`; absent for plain numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    pub axis: Axis,
    pub source: Source,
    /// In the order of their steps.
    pub points: Vec<Point>,
    /// How many there were before some were left out; of those, ends, minima and maxima are kept.
    pub count: u64,
}

/// What a point's step counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Axis {
    /// Batches, over all epochs.
    #[default]
    Step,
    Epoch,
    /// Samples seen, over all epochs.
    Sample,
    /// Nobody said; the points are numbered.
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

/// Where a curve was found, the least exact first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Lines that were meant for people.
    Log,
    /// TensorBoard's event files.
    Events,
    /// `metrics.jsonl` in an output directory.
    File,
    /// `{"corro": …}` lines.
    Lines,
    /// Worked out from others.
    Derived,
}

/// On the wire `[step, time, value]`: time in milliseconds since 1970 or null when nobody knows, value null when it is
/// no number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub step: f64,
    pub time: Option<i64>,
    pub value: f64,
}

impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // What is no number is written as null.
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
    /// One line for each point, for tables.
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

/// A field of a table. What a spreadsheet would take for a formula is none: it came from a job's output.
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
