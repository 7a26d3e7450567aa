//! Parses lines that are JSON objects: explicit `{"corro": {…}}` objects, `metrics.jsonl`, and structured logs.

use serde_json::{Map, Value as Json};

use crate::{ParsedLine, Value, metric_names};

/// Kind of file that a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// A log, which may contain anything: only known metric names are accepted.
    Log,
    /// A metrics file: every number is a metric.
    File,
}

/// Parses a JSON object with metrics; `None` for any other line.
pub fn parse(line: &str, provenance: Provenance) -> Option<ParsedLine> {
    let line = line.trim();
    if !(line.starts_with('{') && line.ends_with('}')) {
        return None;
    }
    let object: Map<String, Json> = serde_json::from_str(line).ok()?;
    match object.get("corro") {
        Some(Json::Object(ours)) => parse_object(ours, true, Provenance::File),
        _ => parse_object(&object, false, provenance),
    }
}

fn parse_object(object: &Map<String, Json>, explicit: bool, provenance: Provenance) -> Option<ParsedLine> {
    let mut parsed = ParsedLine { explicit, ..ParsedLine::default() };
    let mut others = Vec::new();
    collect(object, "", &mut parsed, &mut others);
    let has_position = parsed.step.is_some() || parsed.epoch.is_some();
    let wanted = |name: &str| match provenance {
        Provenance::File => explicit || !metric_names::is_excluded(name),
        Provenance::Log => !metric_names::is_excluded(name) && (has_position || metric_names::is_quality_metric(name)),
    };
    parsed.values = others.into_iter().filter(|value| wanted(&value.name)).collect();
    (!parsed.values.is_empty()).then_some(parsed)
}

fn collect(object: &Map<String, Json>, above: &str, parsed: &mut ParsedLine, others: &mut Vec<Value>) {
    for (key, value) in object {
        let number = match value {
            Json::Number(number) => number.as_f64(),
            // Programs write null for NaN, for example the loss of a diverged training.
            Json::Null if metric_names::is_metric(key) => Some(f64::NAN),
            Json::Object(inner) if above.is_empty() => {
                collect(inner, &format!("{key}/"), parsed, others);
                continue;
            }
            _ => continue,
        };
        let Some(number) = number else { continue };
        match key.as_str() {
            key if metric_names::is_step(key) && parsed.step.is_none() => parsed.step = Some(number),
            key if metric_names::is_epoch(key) && parsed.epoch.is_none() => parsed.epoch = Some(number),
            "rank" => parsed.rank = (0.0..=1e6).contains(&number).then_some(number as u32),
            "time" | "timestamp" | "ts" | "wall_time" | "_timestamp" => parsed.time = millis(number),
            _ => others.push(Value::new(&format!("{above}{key}"), number)),
        }
    }
}

/// Milliseconds since 1970, from seconds or milliseconds, distinguished by magnitude.
fn millis(number: f64) -> Option<i64> {
    match number {
        seconds if (1e8..1e11).contains(&seconds) => Some((seconds * 1000.0) as i64),
        millis if (1e11..1e14).contains(&millis) => Some(millis as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(line: &str, provenance: Provenance) -> String {
        let Some(parsed) = parse(line, provenance) else { return String::new() };
        let values: Vec<String> = parsed.values.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
        let position = [parsed.epoch, parsed.step].map(|x| x.map_or_else(|| "-".to_owned(), |x| x.to_string()));
        format!("{} {} {}", position[0], position[1], values.join(" "))
    }

    #[test]
    fn corro_objects_are_taken_verbatim() {
        let line = r#"{"corro": {"step": 10, "rank": 3, "time": 1700000000.5, "loss": 0.5, "size": 7, "name": "x"}}"#;
        let parsed = parse(line, Provenance::Log).expect("metrics");
        assert_eq!((parsed.rank, parsed.step, parsed.time), (Some(3), Some(10.0), Some(1_700_000_000_500)));
        assert!(parsed.explicit && parsed.values == [Value::new("loss", 0.5), Value::new("size", 7.0)]);
    }

    #[test]
    fn a_metrics_file_is_read_whole_and_a_log_with_filters() {
        let ours = r#"{"epoch":1,"epochs":3,"loss":1.5,"acc":null,"seconds":2.0,"images_per_second":1000.0,"rate":0.0004,"ranks":4,"time":9}"#;
        assert_eq!(render(ours, Provenance::File), "1 - acc=NaN images_per_second=1000 loss=1.5 rate=0.0004 seconds=2");
        assert_eq!(render(r#"{"level":"info","port":8080,"took":3}"#, Provenance::Log), "");
        assert_eq!(render(r#"{"level":30,"loss":0.5,"took":3}"#, Provenance::Log), "- - loss=0.5");
        assert_eq!(render(r#"{"step":2,"metrics":{"loss":0.5}}"#, Provenance::Log), "- 2 metrics/loss=0.5");
        assert_eq!(render(r#"{"loss": [1, 2]}"#, Provenance::File), "");
        assert_eq!(render("{", Provenance::File), "");
    }
}
