//! Lines that are JSON objects: `{"corro": {…}}`, which are written for us, `metrics.jsonl`, and what loggers write.

use serde_json::{Map, Value as Json};

use crate::{Reading, Value, words};

/// Whom a line was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A log, where anything may stand.
    Log,
    /// A file of figures: all of it is meant.
    File,
}

/// What the line says, if it is an object with figures.
pub fn read(line: &str, trust: Trust) -> Option<Reading> {
    let line = line.trim();
    if !(line.starts_with('{') && line.ends_with('}')) {
        return None;
    }
    let object: Map<String, Json> = serde_json::from_str(line).ok()?;
    match object.get("corro") {
        Some(Json::Object(ours)) => of_object(ours, true, Trust::File),
        _ => of_object(&object, false, trust),
    }
}

fn of_object(object: &Map<String, Json>, exact: bool, trust: Trust) -> Option<Reading> {
    let mut reading = Reading { exact, ..Reading::default() };
    let mut others = Vec::new();
    collect(object, "", &mut reading, &mut others);
    let placed = reading.step.is_some() || reading.epoch.is_some();
    let wanted = |name: &str| match trust {
        Trust::File => exact || !words::is_never(name),
        Trust::Log => !words::is_never(name) && (placed || words::is_result(name)),
    };
    reading.values = others.into_iter().filter(|value| wanted(&value.name)).collect();
    (!reading.values.is_empty()).then_some(reading)
}

fn collect(object: &Map<String, Json>, above: &str, reading: &mut Reading, others: &mut Vec<Value>) {
    for (key, value) in object {
        let number = match value {
            Json::Number(number) => number.as_f64(),
            // Programs write null for what is no number, as the loss of a training that has failed.
            Json::Null if words::is_figure(key) => Some(f64::NAN),
            Json::Object(inner) if above.is_empty() => {
                collect(inner, &format!("{key}/"), reading, others);
                continue;
            }
            _ => continue,
        };
        let Some(number) = number else { continue };
        match key.as_str() {
            key if words::is_step(key) && reading.step.is_none() => reading.step = Some(number),
            key if words::is_epoch(key) && reading.epoch.is_none() => reading.epoch = Some(number),
            "rank" => reading.rank = (0.0..=1e6).contains(&number).then_some(number as u32),
            "time" | "timestamp" | "ts" | "wall_time" | "_timestamp" => reading.time = millis(number),
            _ => others.push(Value::plain(&format!("{above}{key}"), number)),
        }
    }
}

/// Seconds or milliseconds since 1970, whichever it must be.
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

    fn told(line: &str, trust: Trust) -> String {
        let Some(reading) = read(line, trust) else { return String::new() };
        let values: Vec<String> = reading.values.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
        let place = [reading.epoch, reading.step].map(|x| x.map_or_else(|| "-".to_owned(), |x| x.to_string()));
        format!("{} {} {}", place[0], place[1], values.join(" "))
    }

    #[test]
    fn what_is_written_for_us_is_taken_as_it_is() {
        let line = r#"{"corro": {"step": 10, "rank": 3, "time": 1700000000.5, "loss": 0.5, "size": 7, "name": "x"}}"#;
        let reading = read(line, Trust::Log).expect("figures");
        assert_eq!((reading.rank, reading.step, reading.time), (Some(3), Some(10.0), Some(1_700_000_000_500)));
        assert!(reading.exact && reading.values == [Value::plain("loss", 0.5), Value::plain("size", 7.0)]);
    }

    #[test]
    fn a_file_of_figures_is_read_whole_and_a_log_with_care() {
        let ours = r#"{"epoch":1,"epochs":3,"loss":1.5,"acc":null,"seconds":2.0,"images_per_second":1000.0,"rate":0.0004,"ranks":4,"time":9}"#;
        assert_eq!(told(ours, Trust::File), "1 - acc=NaN images_per_second=1000 loss=1.5 rate=0.0004 seconds=2");
        assert_eq!(told(r#"{"level":"info","port":8080,"took":3}"#, Trust::Log), "");
        assert_eq!(told(r#"{"level":30,"loss":0.5,"took":3}"#, Trust::Log), "- - loss=0.5");
        assert_eq!(told(r#"{"step":2,"metrics":{"loss":0.5}}"#, Trust::Log), "- 2 metrics/loss=0.5");
        assert_eq!(told(r#"{"loss": [1, 2]}"#, Trust::File), "");
        assert_eq!(told("{", Trust::File), "");
    }
}
