//! Conversion of events to records of the Chrome trace format, one line of JSON each. Pure. Begin and end records stay balanced for every
//! tensor even if events were dropped, because viewers need that.

use std::collections::HashMap;
use std::fmt::Write;

use crate::dtype::Dtype;

/// Event of one tensor.
#[derive(Debug)]
pub struct Event {
    /// Microseconds since the start of the timeline.
    pub micros: u64,
    /// Tensor name.
    pub name: String,
    pub kind: EventKind,
}

/// Kind of an event; strings are operation or activity names.
#[derive(Debug)]
pub enum EventKind {
    NegotiateStart(&'static str),
    RankReady(usize),
    NegotiateEnd,
    OperationStart(&'static str),
    ActivityStart(&'static str),
    ActivityEnd,
    OperationEnd(Dtype, Vec<usize>),
    /// Name and duration in microseconds, ending at the event's time.
    Span(&'static str, u64),
    Cycle,
}

/// Converts events. Records are appended to `out`, each preceded by a comma and a line break, because they follow [`file_header`].
#[derive(Debug, Default)]
pub struct Trace {
    tensors: HashMap<String, TensorTrack>,
    pub out: String,
}

/// Track of a tensor, a process in the trace format, and its open spans.
#[derive(Debug)]
struct TensorTrack {
    pid: usize,
    open: Vec<Level>,
}

/// Nesting level of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Negotiation,
    Operation,
    Activity,
}

/// Records at the beginning of every file.
pub fn file_header(now_micros: u64) -> String {
    format!(
        "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {{\"start_time_since_epoch_in_micros\": {now_micros}}}}},\n\
         {{\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": 0, \"args\": {{\"sort_index\": 0}}}}"
    )
}

impl Trace {
    /// Appends the records of an event.
    pub fn add(&mut self, event: Event) {
        let (ts, out) = (event.micros, &mut self.out);
        if let EventKind::Cycle = event.kind {
            push(out, format_args!("\"name\": \"CYCLE_START\", \"ph\": \"i\", \"ts\": {ts}, \"pid\": 0, \"s\": \"g\""));
            return;
        }
        let n_known = self.tensors.len();
        let tensor = self.tensors.entry(event.name).or_insert_with_key(|name| {
            let (pid, name) = (n_known + 1, escaped(name));
            push(out, format_args!("\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"name\": \"{name}\"}}"));
            push(out, format_args!("\"name\": \"process_sort_index\", \"ph\": \"M\", \"pid\": {pid}, \"args\": {{\"sort_index\": {pid}}}"));
            TensorTrack { pid, open: Vec::new() }
        });
        match event.kind {
            EventKind::NegotiateStart(kind) => {
                tensor.close_above(None, ts, out);
                tensor.begin(Level::Negotiation, format_args!("NEGOTIATE_{kind}"), ts, out);
            }
            EventKind::RankReady(rank) if tensor.top() == Some(Level::Negotiation) => {
                let pid = tensor.pid;
                push(
                    out,
                    format_args!("\"name\": \"{rank}\", \"ph\": \"X\", \"ts\": {ts}, \"dur\": 0, \"pid\": {pid}"),
                );
            }
            EventKind::NegotiateEnd if tensor.top() == Some(Level::Negotiation) => tensor.end(ts, "", out),
            EventKind::OperationStart(kind) => {
                tensor.close_above(None, ts, out);
                tensor.begin(Level::Operation, format_args!("{kind}"), ts, out);
            }
            EventKind::ActivityStart(activity) if tensor.open.contains(&Level::Operation) => {
                tensor.close_above(Some(Level::Operation), ts, out);
                tensor.begin(Level::Activity, format_args!("{activity}"), ts, out);
            }
            EventKind::ActivityEnd if tensor.top() == Some(Level::Activity) => tensor.end(ts, "", out),
            EventKind::OperationEnd(dtype, shape) if tensor.open.contains(&Level::Operation) => {
                tensor.close_above(Some(Level::Operation), ts, out);
                let (dtype, shape) = (dtype.name(), list(&shape));
                tensor.end(ts, &format!(", \"args\": {{\"dtype\": \"{dtype}\", \"shape\": \"{shape}\"}}"), out);
            }
            EventKind::Span(kind, micros) => {
                tensor.begin(Level::Operation, format_args!("{kind}"), ts.saturating_sub(micros), out);
                tensor.end(ts, "", out);
            }
            // The matching begin event was dropped.
            EventKind::RankReady(_)
            | EventKind::NegotiateEnd
            | EventKind::ActivityStart(_)
            | EventKind::ActivityEnd
            | EventKind::OperationEnd(..) => {}
            EventKind::Cycle => unreachable!("handled above"),
        }
    }

    /// Appends a record with the number of dropped events.
    pub fn add_dropped(&mut self, n_dropped: u64, micros: u64) {
        push(
            &mut self.out,
            format_args!(
                "\"name\": \"EVENTS_DROPPED\", \"ph\": \"i\", \"ts\": {micros}, \"pid\": 0, \"s\": \"g\", \"args\": {{\"count\": {n_dropped}}}"
            ),
        );
    }
}

impl TensorTrack {
    fn top(&self) -> Option<Level> {
        self.open.last().copied()
    }

    fn begin(&mut self, level: Level, name: std::fmt::Arguments<'_>, ts: u64, out: &mut String) {
        self.open.push(level);
        let pid = self.pid;
        push(out, format_args!("\"name\": \"{name}\", \"ph\": \"B\", \"ts\": {ts}, \"pid\": {pid}"));
    }

    fn end(&mut self, ts: u64, args: &str, out: &mut String) {
        self.open.pop();
        let pid = self.pid;
        push(out, format_args!("\"ph\": \"E\", \"ts\": {ts}, \"pid\": {pid}{args}"));
    }

    /// Ends the open spans above `level`, or all, whose end events were dropped.
    fn close_above(&mut self, level: Option<Level>, ts: u64, out: &mut String) {
        while self.top().is_some() && self.top() != level {
            self.end(ts, "", out);
        }
    }
}

fn push(out: &mut String, fields: std::fmt::Arguments<'_>) {
    write!(out, ",\n{{{fields}}}").expect("writing to a string cannot fail");
}

/// Shape in Horovod's notation.
fn list(shape: &[usize]) -> String {
    let dimensions: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("[{}]", dimensions.join(", "))
}

/// JSON-escapes a user's tensor name.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            control if u32::from(control) < 0x20 => {
                write!(escaped, "\\u{:04x}", u32::from(control)).expect("writing to a string cannot fail");
            }
            other => escaped.push(other),
        }
    }
    escaped
}
