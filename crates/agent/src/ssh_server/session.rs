//! One command or shell of someone who logged in, from the request to the exit status. Entered by `visitor` only. Runs
//! under a guard: when the visitor leaves, or the door closes, everything started here ends.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::atomic::Ordering;
use std::time::Duration;

use russh::server::{Handle, Msg};
use russh::{Channel, ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWriteExt, copy};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use corro_launch::environment::inherited;
use corro_launch::exit::Exit;
use corro_launch::process::{Input, Process, ProcessSpec, Stopper};
use corro_model::node::{JOB_VARIABLE, RANK_VARIABLE, SECRETS_VARIABLE};

use super::House;
use super::terminal::{Frame, Screen, Size, Terminal};
use crate::shell;
use crate::task::exec_target::{Visit, Wanted};
use crate::task_errors;

/// For a program whose visitor has left.
const GRACE: Duration = Duration::from_secs(1);
/// A program that leaves its input unread for this long holds up its visitor's whole connection.
const READ_WITHIN: Duration = Duration::from_secs(600);
/// OpenSSH's number for "it was not the program that failed".
const NOT_STARTED: u32 = 255;
const STDERR: u32 = 1;
const MAX_VARIABLES: usize = 64;

/// What a visitor asked for before the command.
#[derive(Default)]
struct Wishes {
    terminal: Option<(String, Size)>,
    variables: BTreeMap<String, String>,
    /// Beside the processes of a job, instead of at home.
    beside: Option<Wanted>,
}

impl Wishes {
    fn set(&mut self, name: String, value: String) {
        match name.as_str() {
            JOB_VARIABLE => self.beside.get_or_insert_default().job = value,
            RANK_VARIABLE => self.beside.get_or_insert_default().rank = value.parse().ok(),
            SECRETS_VARIABLE => self.beside.get_or_insert_default().with_secrets = value == "1",
            _ if may_set(&name) && self.variables.len() < MAX_VARIABLES => _ = self.variables.insert(name, value),
            _ => {}
        }
    }
}

/// A visitor's own language is welcome, and the wish to stand beside a job; anything else stays with the visitor.
pub fn may_set(name: &str) -> bool {
    name == "LANG" || name.starts_with("LC_") || [JOB_VARIABLE, RANK_VARIABLE, SECRETS_VARIABLE].contains(&name)
}

pub async fn serve(house: &House, channel: Channel<Msg>, handle: Handle) {
    let id = channel.id();
    let (mut requests, answers) = channel.split();
    let mut wishes = Wishes::default();
    let command = loop {
        match requests.wait().await {
            Some(ChannelMsg::RequestPty { term, col_width, row_height, pix_width, pix_height, .. }) => {
                let size = Size { columns: col_width, rows: row_height, width: pix_width, height: pix_height };
                wishes.terminal = Some((term, size));
            }
            Some(ChannelMsg::SetEnv { variable_name, variable_value, .. }) => wishes.set(variable_name, variable_value),
            Some(ChannelMsg::Exec { command, .. }) => break Some(String::from_utf8_lossy(&command).into_owned()),
            Some(ChannelMsg::RequestShell { .. }) => break None,
            Some(ChannelMsg::Close) | None => return,
            Some(_) => {}
        }
    };
    let end = match start(house, wishes, command).await {
        Ok(running) => running.attend(&mut requests, &answers).await,
        Err(why) => {
            let text = format!("corro: cannot start a session on node {}: {why}\r\n", house.context.node);
            let _ = handle.extended_data(id, STDERR, text.into_bytes()).await;
            Some(Exit::Code(NOT_STARTED as i32))
        }
    };
    if let Some(exit) = end {
        tell(&handle, id, exit).await;
    }
    // An error means that the visitor has left.
    let _ = handle.eof(id).await;
    let _ = handle.close(id).await;
}

struct Running {
    process: Process,
    keyboard: Option<pipe::Sender>,
    screen: Option<Screen>,
    frame: Option<Frame>,
    /// Beside a job, whose place may be cleared.
    visit: Option<Visit>,
}

async fn start(house: &House, wishes: Wishes, command: Option<String>) -> Result<Running, String> {
    let number = house.n_sessions.fetch_add(1, Ordering::Relaxed);
    let argv = |path: Option<&str>| match &command {
        Some(line) => shell::command(line, path),
        None => shell::login(path),
    };
    let tag = format!("{}{number}", house.tag);
    let (mut spec, beside) = match wishes.beside {
        Some(wanted) => {
            let place = house.context.places.of(&wanted)?;
            (place.process(&wanted, argv, tag)?, Some((place, wanted)))
        }
        None => {
            let env = environment(house);
            let argv = argv(env.get("PATH").map(String::as_str));
            let confinement = house.context.confine_cluster_process(&house.home)?;
            (ProcessSpec { argv, env, cwd: house.home.clone(), tag, confinement }, None)
        }
    };
    let env = &mut spec.env;
    env.extend(wishes.variables);
    let terminal = match wishes.terminal {
        Some((name, size)) => {
            env.insert("TERM".to_owned(), name);
            Some(Terminal::open(size).map_err(|error| task_errors::chain(&error))?)
        }
        None => None,
    };
    env.retain(|name, value| !name.contains('\0') && !value.contains('\0'));
    let (input, ours) = match terminal {
        Some(Terminal { keyboard, screen, frame, programs }) => {
            (Input::Terminal(programs), Some((keyboard, screen, frame)))
        }
        None => (Input::Pipe, None),
    };
    let (spec, visit) = match beside {
        Some((place, wanted)) => (place.wrapped(spec, &wanted), Some(place.enter())),
        None => (spec, None),
    };
    let process = house.context.config.guard.spawn_with(spec, input).await;
    let mut process = process.map_err(|error| task_errors::chain(&error))?;
    Ok(match ours {
        Some((keyboard, screen, frame)) => {
            Running { process, keyboard: Some(keyboard), screen: Some(screen), frame: Some(frame), visit }
        }
        None => Running { keyboard: process.stdin.take(), process, screen: None, frame: None, visit },
    })
}

/// As after a login on any machine, and where the cluster's volumes are. Variables of jobs are not seen here.
fn environment(house: &House) -> BTreeMap<String, String> {
    let mut env = inherited(std::env::vars_os());
    let home = house.home.to_string_lossy().into_owned();
    let user = &house.login.user;
    let mounts = house.context.directories.mount_root().to_string_lossy().into_owned();
    for (name, value) in
        [("HOME", &home), ("PWD", &home), ("USER", user), ("LOGNAME", user), ("AZ_BATCHAI_MOUNT_ROOT", &mounts)]
    {
        env.insert(name.to_owned(), value.clone());
    }
    env.insert("SHELL".to_owned(), "/bin/bash".to_owned());
    env
}

impl Running {
    /// Until the program has ended and all it wrote is sent; `None` when the visitor left first.
    async fn attend(mut self, requests: &mut ChannelReadHalf, answers: &ChannelWriteHalf<Msg>) -> Option<Exit> {
        let (stdout, stderr) = (self.process.stdout.take(), self.process.stderr.take());
        let stopper = self.process.stopper();
        let output = async {
            tokio::join!(
                send(self.screen, answers, None),
                send(stdout, answers, None),
                send(stderr, answers, Some(STDERR))
            )
        };
        let ended = async { tokio::join!(self.process.wait(), output).0 };
        let (exit, cleared) = tokio::select! {
            exit = ended => return Some(exit.unwrap_or(Exit::Code(NOT_STARTED as i32))),
            () = listen(requests, self.keyboard, self.frame, &stopper) => (None, false),
            () = over(&mut self.visit) => (Some(Exit::Signal(Signal::TERM.as_raw())), true),
        };
        // The terminal is closed by now, which programs hear as a hang-up.
        stopper.terminate(GRACE).await;
        stopper.ended().await;
        if cleared {
            // An error means that the visitor has left.
            let _ = answers.make_writer_ext(Some(STDERR)).write_all(b"corro: the job has ended here\r\n").await;
        }
        exit
    }
}

/// Never, at home.
async fn over(visit: &mut Option<Visit>) {
    match visit {
        Some(visit) => visit.over().await,
        None => std::future::pending().await,
    }
}

async fn send(from: Option<impl AsyncRead + Unpin>, answers: &ChannelWriteHalf<Msg>, kind: Option<u32>) {
    let Some(mut from) = from else { return };
    let mut to = answers.make_writer_ext(kind);
    if copy(&mut from, &mut to).await.is_err() {
        // Nobody listens any more; the program must not wait for that.
        let _ = copy(&mut from, &mut tokio::io::sink()).await;
    }
}

/// Passes on what the visitor types and sends; returns when the visitor has left.
async fn listen(
    requests: &mut ChannelReadHalf,
    mut keyboard: Option<pipe::Sender>,
    frame: Option<Frame>,
    stopper: &Stopper,
) {
    while let Some(request) = requests.wait().await {
        match request {
            ChannelMsg::Data { data } => {
                if let Some(to) = &mut keyboard {
                    match timeout(READ_WITHIN, to.write_all(&data)).await {
                        Ok(Ok(())) => {}
                        // It does not read any more, but may still have something to say.
                        Ok(Err(_)) => keyboard = None,
                        Err(_) => return,
                    }
                }
            }
            // A terminal has no end of input: that is what Ctrl-D is for.
            ChannelMsg::Eof if frame.is_none() => keyboard = None,
            ChannelMsg::WindowChange { col_width, row_height, pix_width, pix_height } => {
                let size = Size { columns: col_width, rows: row_height, width: pix_width, height: pix_height };
                frame.iter().for_each(|frame| frame.resize(size));
            }
            ChannelMsg::Signal { signal } => {
                if let Some(signal) = number_of(&signal) {
                    stopper.signal(signal);
                }
            }
            ChannelMsg::Close => return,
            _ => {}
        }
    }
}

async fn tell(handle: &Handle, id: ChannelId, exit: Exit) {
    // An error means that the visitor has left.
    let _ = match exit {
        Exit::Code(code) => handle.exit_status_request(id, code as u32).await,
        Exit::Signal(signal) => match name_of(signal) {
            Some(name) => handle.exit_signal_request(id, name, false, exit.to_string(), String::new()).await,
            None => handle.exit_status_request(id, exit.shell_code() as u32).await,
        },
    };
}

/// The signals that SSH has names for.
const SIGNALS: [(Sig, Signal); 12] = [
    (Sig::ABRT, Signal::ABORT),
    (Sig::ALRM, Signal::ALARM),
    (Sig::FPE, Signal::FPE),
    (Sig::HUP, Signal::HUP),
    (Sig::ILL, Signal::ILL),
    (Sig::INT, Signal::INT),
    (Sig::KILL, Signal::KILL),
    (Sig::PIPE, Signal::PIPE),
    (Sig::QUIT, Signal::QUIT),
    (Sig::SEGV, Signal::SEGV),
    (Sig::TERM, Signal::TERM),
    (Sig::USR1, Signal::USR1),
];

fn number_of(asked: &Sig) -> Option<Signal> {
    SIGNALS.iter().find(|(name, _)| discriminant(name) == discriminant(asked)).map(|(_, signal)| *signal)
}

fn name_of(number: i32) -> Option<Sig> {
    SIGNALS.iter().find(|(_, signal)| signal.as_raw() == number).map(|(name, _)| name.clone())
}
