//! `corro top`: a full-screen view of clusters, nodes, queue and jobs. The event stream triggers a refresh; the data comes from snapshots.

mod keys;
mod page;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use corro_client::{Client, ClientError};
use corro_model::Timestamp;
use corro_model::ops::{ClustersListAll, JobsListAll, JobsWhy, NoBody, NodesList};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::CliError;
use crate::output::escape_controls;
use crate::session::{GlobalArgs, Session, env};
use crate::stdio::print;
use crate::terminal::{RawMode, is_interactive, size, stdin_channel};
use keys::Key;
use page::{Snapshot, View, render};

/// Delay between an event and the refresh, so that a burst of events causes one refresh.
const EVENT_DEBOUNCE: Duration = Duration::from_millis(150);
/// Redraw interval, for the ages.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);
/// Refresh interval without events: reasons for waiting change with time.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);
/// Number of ended jobs that are shown.
const MAX_RECENT_JOBS: &str = "10";

#[derive(Args, Debug)]
#[command(
    after_help = "Keys: Up and Down select a job, Enter explains it, Esc goes back, q quits.\nSet NO_COLOR to turn off colours. If the output is not a terminal, it is printed once."
)]
pub struct TopArgs {
    /// Print once and exit
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: TopArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let mut snapshot = fetch_snapshot(client).await?;
    if args.global.is_output_chosen() {
        let Snapshot { clusters, nodes, active, recent, .. } = &snapshot;
        return session.print_value(&json!({"clusters": clusters, "nodes": nodes, "jobs": active, "recent": recent}));
    }
    if args.once || !is_interactive() {
        let view = View { width: usize::MAX, height: usize::MAX, colour: false, selected: None, detail: None };
        render(&snapshot, &view, now()).iter().for_each(print);
        return Ok(());
    }
    let Some(screen) = Screen::open() else {
        return Err(CliError::new("the terminal cannot be used").hint("use 'corro top --once'"));
    };
    let result = run_screen(client, &mut snapshot).await;
    drop(screen);
    result
}

/// Redraws on keys, events and timers until the user quits.
async fn run_screen(client: &Client, snapshot: &mut Snapshot) -> Result<(), CliError> {
    let news = Arc::new(Notify::new());
    let listening = tokio::spawn(listen_for_events(client.clone(), news.clone()));
    let mut typed = stdin_channel();
    let listen_for = |kind: SignalKind| signal(kind).map_err(|error| CliError::from_error(&error));
    let mut resized = listen_for(SignalKind::window_change())?;
    // Caught so that the terminal is restored.
    let mut terminated = listen_for(SignalKind::terminate())?;
    let (mut selected, mut detail) = (0, None);
    let mut next_refresh = Instant::now() + REFRESH_INTERVAL;
    let result = loop {
        selected = usize::min(selected, snapshot.n_jobs().saturating_sub(1));
        draw_screen(snapshot, selected, detail.as_deref());
        tokio::select! {
            keys = typed.recv() => {
                let Some(keys) = keys else { break Ok(()) };
                match keys::parse(&keys) {
                    Some(Key::Quit) => break Ok(()),
                    Some(Key::Up) => selected = selected.saturating_sub(1),
                    Some(Key::Down) => selected += 1,
                    Some(Key::Back) => detail = None,
                    Some(Key::Enter) => detail = explain(client, snapshot, selected).await,
                    Some(Key::Refresh) => next_refresh = Instant::now(),
                    None => {}
                }
            }
            () = news.notified() => next_refresh = next_refresh.min(Instant::now() + EVENT_DEBOUNCE),
            _ = resized.recv() => {}
            _ = terminated.recv() => break Err(CliError::silent(143)),
            () = sleep_until(next_refresh) => {
                match fetch_snapshot(client).await {
                    Ok(new) => *snapshot = new,
                    // The page shows the age of its data until the server answers again.
                    Err(error) if error.is_transient() => {}
                    Err(error) => break Err(error.into()),
                }
                next_refresh = Instant::now() + REFRESH_INTERVAL;
            }
            () = tokio::time::sleep(REDRAW_INTERVAL) => {}
        }
    };
    listening.abort();
    result
}

/// Notifies on every event. Reconnects after the end of the stream.
async fn listen_for_events(client: Client, news: Arc<Notify>) {
    loop {
        let mut events = client.events(None, true);
        while let Ok(Some(_)) = events.next().await {
            news.notify_one();
        }
        tokio::time::sleep(REFRESH_INTERVAL).await;
    }
}

async fn fetch_snapshot(client: &Client) -> Result<Snapshot, ClientError> {
    let clusters = client.list::<ClustersListAll, _>(&[], &[]).await?;
    let nodes = client.list::<NodesList, _>(&[], &[]).await?;
    let jobs = |state: &'static str, most: &'static str| {
        let query = [("state", state), ("maxresults", most)];
        async move { client.call::<JobsListAll>(&[], &query, &NoBody {}).await }
    };
    let active = jobs("queued,running,terminating", "200").await?;
    let recent = jobs("succeeded,failed", MAX_RECENT_JOBS).await?;
    let server = client.server().to_owned();
    let counts = active.counts;
    Ok(Snapshot { server, at: now(), clusters, nodes, active: active.value, recent: recent.value, counts })
}

/// Why the chosen job is as it is.
async fn explain(client: &Client, snapshot: &Snapshot, selected: usize) -> Option<Vec<String>> {
    let job = snapshot.job(selected)?;
    let values = [
        ("group", job.resource_group.as_str()),
        ("workspace", job.workspace.as_str()),
        ("experiment", job.experiment.as_str()),
        ("job", job.name.as_str()),
    ];
    let place = format!("-g {} -w {} -e {}", job.resource_group, job.workspace, job.experiment);
    let mut lines = vec![format!("{}/{}/{}", job.workspace, job.experiment, job.name), String::new()];
    match client.get::<JobsWhy>(&values).await {
        Ok(explanation) => lines.extend(explanation.lines().iter().map(ToString::to_string)),
        Err(error) => lines.push(error.to_string()),
    }
    lines.push(String::new());
    lines.push(format!("Its output: corro batchai job file stream -j {} {place} -f stdout.txt", job.name));
    Some(lines.iter().map(|line| escape_controls(line).to_string()).collect())
}

fn draw_screen(snapshot: &Snapshot, selected: usize, detail: Option<&[String]>) {
    let (width, height) = size();
    let colour = env("NO_COLOR").is_none();
    let view = View { width: width as usize, height: height as usize, colour, selected: Some(selected), detail };
    let lines = render(snapshot, &view, now()).join("\x1b[K\r\n");
    // Overwrite from the top left instead of clearing first, which would flicker.
    let _ = write!(io::stdout(), "\x1b[H{lines}\x1b[K\x1b[J").and_then(|()| io::stdout().flush());
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// Alternate screen and raw mode. Dropping it restores the terminal.
struct Screen(#[expect(dead_code, reason = "dropped with the screen")] RawMode);

impl Screen {
    fn open() -> Option<Screen> {
        let raw = RawMode::enter()?;
        let _ = write!(io::stdout(), "\x1b[?1049h\x1b[?25l").and_then(|()| io::stdout().flush());
        Some(Screen(raw))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = write!(io::stdout(), "\x1b[?25h\x1b[?1049l").and_then(|()| io::stdout().flush());
    }
}
