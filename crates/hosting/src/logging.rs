//! Logging of long-running commands: one line per event on standard error, or in the log of a server in the background. `CORRO_LOG` sets the level (default `warn`; `info` logs every
//! step of nodes and jobs and every request that is not for a file). `--log-format` or `CORRO_LOG_FORMAT` sets the format: text, or
//! one JSON object per line.

use std::fmt::{self, Write};

use clap::ValueEnum;
use corro_base::error_chain;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::server_log::ServerLog;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct LogArgs {
    /// Format of the log on standard error: text, or json with one object per line [default: $CORRO_LOG_FORMAT, or text]
    #[arg(long, value_enum, value_name = "FORMAT", hide_possible_values = true)]
    log_format: Option<LogFormat>,
}

impl LogArgs {
    /// Arguments that give a child process the same format.
    pub fn to_args(self) -> Vec<&'static str> {
        match self.log_format {
            None => Vec::new(),
            Some(LogFormat::Text) => vec!["--log-format", "text"],
            Some(LogFormat::Json) => vec!["--log-format", "json"],
        }
    }

    /// Installs the log subscriber of this process. Later calls change nothing.
    pub fn init(self) {
        init_format(self.format(), std::io::stderr);
    }

    /// The same, with the log in a file.
    pub fn init_to(self, log: ServerLog) {
        init_format(self.format(), move || log.clone());
    }

    fn format(self) -> LogFormat {
        let configured = || std::env::var("CORRO_LOG_FORMAT").ok();
        self.log_format.or_else(|| LogFormat::from_str(&configured()?, true).ok()).unwrap_or_default()
    }
}

/// [`LogArgs::init`] for commands without `--log-format`.
pub fn init() {
    LogArgs::default().init();
}

fn init_format(format: LogFormat, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let filter = EnvFilter::try_from_env("CORRO_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    let _ = match format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.event_format(JsonLines).try_init(),
    };
}

/// Logs the HTTP requests and responses of client commands (`--verbose`), with their bodies if `with_bodies` (`--debug`).
pub fn init_http_log(with_bodies: bool) {
    let filter = EnvFilter::new(if with_bodies { "corro_client=trace" } else { "corro_client=debug" });
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let _ = subscriber.without_time().with_target(false).with_level(false).try_init();
}

/// Formats an event as one JSON object: `time`, `level`, `target`, `message` and the event's own fields.
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
        writeln!(writer, "{}", json_line(now, event.metadata().level().as_str(), event.metadata().target(), fields.0))
    }
}

fn json_line(now: corro_model::Timestamp, level: &str, target: &str, fields: Map<String, Value>) -> Value {
    let mut line = Map::new();
    line.insert("time".to_owned(), now.to_string().into());
    line.insert("level".to_owned(), level.to_lowercase().into());
    line.insert("target".to_owned(), target.into());
    for (name, value) in fields {
        // A field of the event must not replace a standard one.
        let name = if line.contains_key(&name) { format!("{name}_") } else { name };
        line.insert(name, value);
    }
    Value::Object(line)
}

/// Collects the fields of an event.
struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Writing to a string fails only if the value's Debug does.
        let _ = write!(text, "{value:?}");
        self.insert(field, text);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value);
    }

    /// Writes the error with its chain of sources.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.insert(field, error_chain::join(value));
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
        let text = json_line(now, "WARN", "corro_server", fields).to_string();
        assert!(!text.contains('\n'));
        let read: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            read,
            json!({"time": "2018-06-07T21:16:21Z", "level": "warn", "target": "corro_server", "message": "a \"node\"\nis lost", "node": "tvm-1", "time_": 7})
        );
    }
}
