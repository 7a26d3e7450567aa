//! `corro events`: prints changes on the server, as JSON lines or as a table. Reconnects after restarts of the server and reports events that were
//! missed.

use std::io::{self, Write};

use clap::Args;
use corro_model::events::{Event, EventKind};

use crate::error::CliError;
use crate::output::escape_controls;
use crate::session::{GlobalArgs, Session};
use crate::stdio::filtered_stdout;

#[derive(Args, Debug)]
#[command(after_help = "Without --follow, the command prints the recent events of the server and exits.\n\
An event of kind 'missed' means that the server dropped some events before it could send them.\n\nExamples:\n  corro events --follow\n  corro events --follow -o table\n  corro events --follow | jq -c 'select(.kind == \"job\")'")]
pub struct EventsArgs {
    /// Print only events after the event with this id
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Keep printing new events until Ctrl-C
    #[arg(long, short = 'f')]
    follow: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: EventsArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    // Default: new events with --follow, else all that the server still has.
    let after = args.after.as_deref().or((!args.follow).then_some("0"));
    let mut events = session.client()?.events(after, args.follow);
    let is_table = session.prints_table();
    let mut is_first = true;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        let mut text = String::new();
        match is_table {
            true if event.kind == EventKind::Start => {}
            true => {
                if std::mem::take(&mut is_first) {
                    text += &format!("{:<25}{:<12}{:<10}{:<13}{}\n", "TIME", "KIND", "CHANGE", "STATE", "RESOURCE");
                }
                text += &table_row(&event);
            }
            false => text = serde_json::to_string(&event).map_err(|error| CliError::from_error(&error))? + "\n",
        }
        let mut out = filtered_stdout();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader closed the pipe.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(CliError::new(format!("cannot write the events: {error}"))),
        }
    }
}

fn table_row(event: &Event) -> String {
    let name = |value: serde_json::Result<serde_json::Value>| match value {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    };
    let kind = name(serde_json::to_value(event.kind));
    let change = name(serde_json::to_value(event.change));
    let state = event.state.as_deref().unwrap_or_default();
    let resource = escape_controls(&event.resource);
    format!("{:<25}{kind:<12}{change:<10}{state:<13}{resource}\n", event.time.to_string())
}
