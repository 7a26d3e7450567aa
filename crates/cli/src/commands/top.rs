//! `corro top`: clusters with their nodes, the queue with its reasons, and what runs, as a page of the terminal that is drawn
//! anew when something changes. Fed by the stream of events, which says when to look, and by snapshots. Keeps nothing.

mod keys;
mod view;

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
use view::{Look, Picture, draw};

/// After news, others are waited for a moment: they come together.
const GATHER: Duration = Duration::from_millis(150);
/// Ages grow without news.
const REDRAW: Duration = Duration::from_secs(1);
/// Also without news the server is asked: reasons for waiting change by time alone.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Jobs that have ended and are still shown.
const RECENT: &str = "10";

#[derive(Args, Debug)]
#[command(
    after_help = "Keys: up and down choose a job, Enter says why it is as it is, Esc goes back, q ends.\nWithout colours when NO_COLOR is set; once, when the output is not a terminal."
)]
pub struct TopArgs {
    /// Show it once and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    global: GlobalArgs,
}

pub async fn run(args: TopArgs) -> Result<(), CliError> {
    let session = Session::open(&args.global)?;
    let client = session.client()?;
    let mut picture = look(client).await?;
    if args.global.is_output_chosen() {
        let Picture { clusters, nodes, active, recent, .. } = &picture;
        return session.print_value(&json!({"clusters": clusters, "nodes": nodes, "jobs": active, "recent": recent}));
    }
    if args.once || !is_interactive() {
        let look = Look { width: usize::MAX, height: usize::MAX, colour: false, selected: None, detail: None };
        draw(&picture, &look, now()).iter().for_each(print);
        return Ok(());
    }
    let Some(screen) = Screen::open() else {
        return Err(CliError::new("the terminal cannot be used").hint("use 'corro top --once'"));
    };
    let ended = live(client, &mut picture).await;
    drop(screen);
    ended
}

/// Draws, waits for keys and news, and draws again, until somebody has seen enough.
async fn live(client: &Client, picture: &mut Picture) -> Result<(), CliError> {
    let news = Arc::new(Notify::new());
    let listening = tokio::spawn(listen(client.clone(), news.clone()));
    let mut typed = stdin_channel();
    let listen_for = |kind: SignalKind| signal(kind).map_err(|error| CliError::from_error(&error));
    let mut resized = listen_for(SignalKind::window_change())?;
    // Also then the terminal is to be as it was.
    let mut terminated = listen_for(SignalKind::terminate())?;
    let (mut selected, mut detail) = (0, None);
    let mut next_look = Instant::now() + LOOK_AGAIN;
    let ended = loop {
        selected = usize::min(selected, picture.choices().saturating_sub(1));
        show(picture, selected, detail.as_deref());
        tokio::select! {
            keys = typed.recv() => {
                let Some(keys) = keys else { break Ok(()) };
                match keys::read(&keys) {
                    Some(Key::Quit) => break Ok(()),
                    Some(Key::Up) => selected = selected.saturating_sub(1),
                    Some(Key::Down) => selected += 1,
                    Some(Key::Back) => detail = None,
                    Some(Key::Enter) => detail = why(client, picture, selected).await,
                    Some(Key::Refresh) => next_look = Instant::now(),
                    None => {}
                }
            }
            () = news.notified() => next_look = next_look.min(Instant::now() + GATHER),
            _ = resized.recv() => {}
            _ = terminated.recv() => break Err(CliError::silent(143)),
            () = sleep_until(next_look) => {
                match look(client).await {
                    Ok(new) => *picture = new,
                    // It may come back; until then the page says since when it is old.
                    Err(error) if error.is_transient() => {}
                    Err(error) => break Err(error.into()),
                }
                next_look = Instant::now() + LOOK_AGAIN;
            }
            () = tokio::time::sleep(REDRAW) => {}
        }
    };
    listening.abort();
    ended
}

/// Rings when something has changed. A server that is away for long is asked again by whoever draws.
async fn listen(client: Client, news: Arc<Notify>) {
    loop {
        let mut events = client.events(None, true);
        while let Ok(Some(_)) = events.next().await {
            news.notify_one();
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn look(client: &Client) -> Result<Picture, ClientError> {
    let clusters = client.list::<ClustersListAll, _>(&[], &[]).await?;
    let nodes = client.list::<NodesList, _>(&[], &[]).await?;
    let jobs = |state: &'static str, most: &'static str| {
        let query = [("state", state), ("maxresults", most)];
        async move { client.call::<JobsListAll>(&[], &query, &NoBody {}).await }
    };
    let active = jobs("queued,running,terminating", "200").await?;
    let recent = jobs("succeeded,failed", RECENT).await?;
    let server = client.server().to_owned();
    let counts = active.counts;
    Ok(Picture { server, at: now(), clusters, nodes, active: active.value, recent: recent.value, counts })
}

/// Why the chosen job is as it is.
async fn why(client: &Client, picture: &Picture, selected: usize) -> Option<Vec<String>> {
    let job = picture.job(selected)?;
    let values = [
        ("group", job.resource_group.as_str()),
        ("workspace", job.workspace.as_str()),
        ("experiment", job.experiment.as_str()),
        ("job", job.name.as_str()),
    ];
    let place = format!("-g {} -w {} -e {}", job.resource_group, job.workspace, job.experiment);
    let mut lines = vec![format!("{}/{}/{}", job.workspace, job.experiment, job.name), String::new()];
    match client.get::<JobsWhy>(&values).await {
        Ok(told) => lines.extend(told.lines().iter().map(ToString::to_string)),
        Err(error) => lines.push(error.to_string()),
    }
    lines.push(String::new());
    lines.push(format!("Its output: corro batchai job file stream -j {} {place} -f stdout.txt", job.name));
    Some(lines.iter().map(|line| escape_controls(line).to_string()).collect())
}

fn show(picture: &Picture, selected: usize, detail: Option<&[String]>) {
    let (width, height) = size();
    let colour = env("NO_COLOR").is_none();
    let look = Look { width: width as usize, height: height as usize, colour, selected: Some(selected), detail };
    let lines = draw(picture, &look, now()).join("\x1b[K\r\n");
    // From the top, over what was there; nothing flickers.
    let _ = write!(io::stdout(), "\x1b[H{lines}\x1b[K\x1b[J").and_then(|()| io::stdout().flush());
}

fn now() -> Timestamp {
    Timestamp::from(SystemTime::now())
}

/// A screen of our own, with the keys as they are typed; the terminal is as it was when this is dropped.
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
