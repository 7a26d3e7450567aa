//! One command or shell of an SSH session, from the request to the exit status. Runs under a guard: everything ends
//! when the client disconnects or the server stops.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::atomic::Ordering;
use std::time::Duration;

use corro_base::error_chain;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelId, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWriteExt, copy};
use tokio::net::unix::pipe;
use tokio::time::timeout;

use corro_launch::environment::inherited;
use corro_launch::exit::Exit;
use corro_launch::process::Process;
use corro_launch::process_spec::{Input, ProcessSpec};
use corro_launch::stopper::Stopper;
use corro_model::node::{JOB_VARIABLE, RANK_VARIABLE, SECRETS_VARIABLE};

use super::SshContext;
use super::terminal::{PtyOutput, PtyResizer, Terminal, TerminalSize};
use crate::shell;
use crate::task::exec_target::{ExecGuard, ExecRequest};

/// Grace of a program whose client has disconnected.
const DISCONNECT_GRACE: Duration = Duration::from_secs(1);
/// A program that leaves its input unread for this long blocks the client's whole connection, so the session is closed.
const STDIN_WRITE_TIMEOUT: Duration = Duration::from_secs(600);
/// Exit code of OpenSSH for its own failures.
const EXIT_NOT_STARTED: u32 = 255;
const STDERR: u32 = 1;
const MAX_VARIABLES: usize = 64;

/// Requests of the client before the command.
#[derive(Default)]
struct SessionOptions {
    terminal: Option<(String, TerminalSize)>,
    variables: BTreeMap<String, String>,
    /// Run in the environment of a job instead of the login's home.
    exec_request: Option<ExecRequest>,
}

impl SessionOptions {
    fn set(&mut self, name: String, value: String) {
        match name.as_str() {
            JOB_VARIABLE => self.exec_request.get_or_insert_default().job = value,
            RANK_VARIABLE => self.exec_request.get_or_insert_default().rank = value.parse().ok(),
            SECRETS_VARIABLE => self.exec_request.get_or_insert_default().with_secrets = value == "1",
            _ if is_accepted_variable(&name) && self.variables.len() < MAX_VARIABLES => {
                _ = self.variables.insert(name, value)
            }
            _ => {}
        }
    }
}

/// Locale variables and the request for a job's environment are accepted, other variables are not.
pub fn is_accepted_variable(name: &str) -> bool {
    name == "LANG" || name.starts_with("LC_") || [JOB_VARIABLE, RANK_VARIABLE, SECRETS_VARIABLE].contains(&name)
}

/// Serves a session channel: reads its requests, runs the command or shell, and sends the exit status.
pub async fn serve(context: &SshContext, channel: Channel<Msg>, handle: Handle) {
    let id = channel.id();
    let (mut requests, answers) = channel.split();
    let mut options = SessionOptions::default();
    let command = loop {
        match requests.wait().await {
            Some(ChannelMsg::RequestPty { term, col_width, row_height, pix_width, pix_height, .. }) => {
                let size = TerminalSize { columns: col_width, rows: row_height, width: pix_width, height: pix_height };
                options.terminal = Some((term, size));
            }
            Some(ChannelMsg::SetEnv { variable_name, variable_value, .. }) => {
                options.set(variable_name, variable_value)
            }
            Some(ChannelMsg::Exec { command, .. }) => break Some(String::from_utf8_lossy(&command).into_owned()),
            Some(ChannelMsg::RequestShell { .. }) => break None,
            Some(ChannelMsg::Close) | None => return,
            Some(_) => {}
        }
    };
    let end = match start(context, options, command).await {
        Ok(running) => running.run_to_end(&mut requests, &answers).await,
        Err(why) => {
            let text = format!("corro: cannot start a session on node {}: {why}\r\n", context.node.node);
            let _ = handle.extended_data(id, STDERR, text.into_bytes()).await;
            Some(Exit::Code(EXIT_NOT_STARTED as i32))
        }
    };
    if let Some(exit) = end {
        send_exit(&handle, id, exit).await;
    }
    // An error means that the client has disconnected.
    let _ = handle.eof(id).await;
    let _ = handle.close(id).await;
}

struct Running {
    process: Process,
    stdin: Option<pipe::Sender>,
    pty_output: Option<PtyOutput>,
    resizer: Option<PtyResizer>,
    /// Set for a session in a job's environment, which may be removed.
    exec_guard: Option<ExecGuard>,
}

async fn start(context: &SshContext, options: SessionOptions, command: Option<String>) -> Result<Running, String> {
    let number = context.n_sessions.fetch_add(1, Ordering::Relaxed);
    let argv = |path: Option<&str>| match &command {
        Some(line) => shell::command(line, path),
        None => shell::login(path),
    };
    let tag = format!("{}{number}", context.tag);
    let (mut spec, exec_request) = match options.exec_request {
        Some(request) => {
            let target = context.node.exec_targets.find(&request)?;
            (target.process_spec(&request, argv, tag)?, Some((target, request)))
        }
        None => {
            let env = environment(context);
            let argv = argv(env.get("PATH").map(String::as_str));
            let confinement = context.node.confine_cluster_process(&context.home)?;
            (ProcessSpec { argv, env, cwd: context.home.clone(), tag, confinement }, None)
        }
    };
    let env = &mut spec.env;
    env.extend(options.variables);
    let terminal = match options.terminal {
        Some((name, size)) => {
            env.insert("TERM".to_owned(), name);
            Some(Terminal::open(size).map_err(|error| error_chain::join(&error))?)
        }
        None => None,
    };
    env.retain(|name, value| !name.contains('\0') && !value.contains('\0'));
    let (input, pty) = match terminal {
        Some(Terminal { input: stdin, output: pty_output, resizer, child_side }) => {
            (Input::Terminal(child_side), Some((stdin, pty_output, resizer)))
        }
        None => (Input::Pipe, None),
    };
    let (spec, exec_guard) = match exec_request {
        Some((target, request)) => (target.wrap(spec, &request), Some(target.guard())),
        None => (spec, None),
    };
    let process = context.node.config.guard.spawn_with(spec, input).await;
    let mut process = process.map_err(|error| error_chain::join(&error))?;
    Ok(match pty {
        Some((stdin, pty_output, resizer)) => {
            Running { process, stdin: Some(stdin), pty_output: Some(pty_output), resizer: Some(resizer), exec_guard }
        }
        None => Running { stdin: process.stdin.take(), process, pty_output: None, resizer: None, exec_guard },
    })
}

/// Environment of a login, with the path of the cluster's volumes. Variables of jobs are not included.
fn environment(context: &SshContext) -> BTreeMap<String, String> {
    let mut env = inherited(std::env::vars_os());
    let home = context.home.to_string_lossy().into_owned();
    let user = &context.login.user;
    let mounts = context.node.directories.mount_root().to_string_lossy().into_owned();
    for (name, value) in
        [("HOME", &home), ("PWD", &home), ("USER", user), ("LOGNAME", user), ("AZ_BATCHAI_MOUNT_ROOT", &mounts)]
    {
        env.insert(name.to_owned(), value.clone());
    }
    env.insert("SHELL".to_owned(), "/bin/bash".to_owned());
    env
}

impl Running {
    /// Runs until the program has ended and its output is sent; `None` if the client disconnected first.
    async fn run_to_end(mut self, requests: &mut ChannelReadHalf, answers: &ChannelWriteHalf<Msg>) -> Option<Exit> {
        let (stdout, stderr) = (self.process.stdout.take(), self.process.stderr.take());
        let stopper = self.process.stopper();
        let output = async {
            tokio::join!(
                forward_output(self.pty_output, answers, None),
                forward_output(stdout, answers, None),
                forward_output(stderr, answers, Some(STDERR))
            )
        };
        let ended = async { tokio::join!(self.process.wait(), output).0 };
        let (exit, target_closed) = tokio::select! {
            exit = ended => return Some(exit.unwrap_or(Exit::Code(EXIT_NOT_STARTED as i32))),
            () = forward_input(requests, self.stdin, self.resizer, &stopper) => (None, false),
            () = target_closing(&mut self.exec_guard) => (Some(Exit::Signal(Signal::TERM.as_raw())), true),
        };
        // The terminal is closed by now, so programs get SIGHUP.
        stopper.terminate(DISCONNECT_GRACE).await;
        stopper.ended().await;
        if target_closed {
            // An error means that the client has disconnected.
            let _ = answers.make_writer_ext(Some(STDERR)).write_all(b"corro: the job has ended here\r\n").await;
        }
        exit
    }
}

/// Resolves when the job's environment is about to be removed; never for a login.
async fn target_closing(exec_guard: &mut Option<ExecGuard>) {
    match exec_guard {
        Some(exec_guard) => exec_guard.closing().await,
        None => std::future::pending().await,
    }
}

async fn forward_output(from: Option<impl AsyncRead + Unpin>, answers: &ChannelWriteHalf<Msg>, kind: Option<u32>) {
    let Some(mut from) = from else { return };
    let mut to = answers.make_writer_ext(kind);
    if copy(&mut from, &mut to).await.is_err() {
        // The client no longer reads; the program must not block on that.
        let _ = copy(&mut from, &mut tokio::io::sink()).await;
    }
}

/// Forwards input, window sizes and signals; returns when the client has disconnected.
async fn forward_input(
    requests: &mut ChannelReadHalf,
    mut stdin: Option<pipe::Sender>,
    resizer: Option<PtyResizer>,
    stopper: &Stopper,
) {
    while let Some(request) = requests.wait().await {
        match request {
            ChannelMsg::Data { data } => {
                if let Some(to) = &mut stdin {
                    match timeout(STDIN_WRITE_TIMEOUT, to.write_all(&data)).await {
                        Ok(Ok(())) => {}
                        // The program no longer reads, but may still write.
                        Ok(Err(_)) => stdin = None,
                        Err(_) => return,
                    }
                }
            }
            // A terminal has no end of input; Ctrl-D takes its place.
            ChannelMsg::Eof if resizer.is_none() => stdin = None,
            ChannelMsg::WindowChange { col_width, row_height, pix_width, pix_height } => {
                let size = TerminalSize { columns: col_width, rows: row_height, width: pix_width, height: pix_height };
                resizer.iter().for_each(|resizer| resizer.resize(size));
            }
            ChannelMsg::Signal { signal } => {
                if let Some(signal) = signal_from_ssh(&signal) {
                    stopper.signal(signal);
                }
            }
            ChannelMsg::Close => return,
            _ => {}
        }
    }
}

async fn send_exit(handle: &Handle, id: ChannelId, exit: Exit) {
    // An error means that the client has disconnected.
    let _ = match exit {
        Exit::Code(code) => handle.exit_status_request(id, code as u32).await,
        Exit::Signal(signal) => match ssh_signal_name(signal) {
            Some(name) => handle.exit_signal_request(id, name, false, exit.to_string(), String::new()).await,
            None => handle.exit_status_request(id, exit.shell_code() as u32).await,
        },
    };
}

/// Signals with an SSH name.
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

fn signal_from_ssh(name: &Sig) -> Option<Signal> {
    SIGNALS.iter().find(|(known, _)| discriminant(known) == discriminant(name)).map(|(_, signal)| *signal)
}

fn ssh_signal_name(number: i32) -> Option<Sig> {
    SIGNALS.iter().find(|(_, signal)| signal.as_raw() == number).map(|(name, _)| name.clone())
}
