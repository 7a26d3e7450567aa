//! What long-running commands write about their work: on standard error, one line each. `CORRO_LOG` chooses how much
//! (`warn` unless set; `info` tells every step of nodes and jobs, and every request that is not for a file), and `--log-format` or
//! `CORRO_LOG_FORMAT` in which form: words for people, or one JSON object in each line.

use std::fmt::{self, Write};

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How long-running commands write their log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct LogArgs {
    /// How the log on standard error is written: text, or json with one object in each line [default: CORRO_LOG_FORMAT, or text]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    log_format: Option<LogFormat>,
}

impl LogArgs {
    /// The words that make another process of ours write alike.
    pub fn words(self) -> Vec<&'static str> {
        match self.log_format {
            None => Vec::new(),
            Some(LogFormat::Text) => vec!["--log-format", "text"],
            Some(LogFormat::Json) => vec!["--log-format", "json"],
        }
    }

    pub fn init(self) {
        let chosen = || std::env::var("CORRO_LOG_FORMAT").ok();
        let format = self.log_format.or_else(|| LogFormat::from_str(&chosen()?, true).ok()).unwrap_or_default();
        init_as(format);
    }
}

pub fn init() {
    LogArgs::default().init();
}

fn init_as(format: LogFormat) {
    let filter = EnvFilter::try_from_env("CORRO_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second call in one process changes nothing.
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.event_format(JsonLines).try_init(),
    };
}

/// What `--verbose` and `--debug` tell of client commands: each request and its answer, and with `--debug` what was in them.
pub fn tell_requests(in_full: bool) {
    let filter = EnvFilter::new(if in_full { "corro_client=trace" } else { "corro_client=debug" });
    let talk = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let _ = talk.without_time().with_target(false).with_level(false).try_init();
}

/// One JSON object in each line: `time`, `level`, `target`, `message`, and the event's own fields beside them.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let now = corro_model::Timestamp::from(std::time::SystemTime::now());
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        writeln!(writer, "{}", line(now, event.metadata().level().as_str(), event.metadata().target(), fields.0))
    }
}

fn line(now: corro_model::Timestamp, level: &str, target: &str, fields: Map<String, Value>) -> Value {
    let mut line = Map::new();
    line.insert("time".to_owned(), now.to_string().into());
    line.insert("level".to_owned(), level.to_lowercase().into());
    line.insert("target".to_owned(), target.into());
    for (name, value) in fields {
        // A field cannot take the place of what every line has.
        let name = if line.contains_key(&name) { format!("{name}_") } else { name };
        line.insert(name, value);
    }
    Value::Object(line)
}

struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string fails only when the value does.
        let _ = write!(text, "{value:?}");
        self.put(field, text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    /// With everything that caused it.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        self.put(field, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_one_object_with_the_fields_beside_the_message() {
        let Value::Object(fields) = json!({"message": "a \"node\"\nis lost", "node": "tvm-1", "time": 7}) else {
            return;
        };
        let now = corro_model::Timestamp::parse("2018-06-07T21:16:21Z").expect("a time");
        let text = line(now, "WARN", "corro_server", fields).to_string();
        assert!(!text.contains('\n'));
        let read: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            read,
            json!({"time": "2018-06-07T21:16:21Z", "level": "warn", "target": "corro_server", "message": "a \"node\"\nis lost", "node": "tvm-1", "time_": 7})
        );
    }
}
