//! The agent's side of one command that a process on another node started here: under a guard of this node, with the
//! job's environment, for as long as whoever asked for it is there. Entered by the listener only.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use corro_launch::confinement::Confinement;
use corro_launch::connection_set::Proof;
use corro_launch::process::{Input, Process, ProcessSpec, Stopper};

use super::wire::{self, Frame, MAX_FRAME_BYTES, NONCE_BYTES, Request};
use super::{NODES_VARIABLE, RemoteExecContext};
use crate::shell;
use crate::task_errors;

/// For a stranger to prove that it is none.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// For a command that nobody waits for any more.
const GRACE: Duration = Duration::from_secs(1);
/// What `ssh` ends with when it was not the command that failed.
const EXIT_NOT_STARTED: i32 = 255;

pub async fn serve(
    mut stream: TcpStream,
    context: &Arc<RemoteExecContext>,
    number: u64,
    mut stopped: watch::Receiver<Option<Duration>>,
    proof: Proof,
) {
    let mut nonce = [0; NONCE_BYTES];
    if getrandom::fill(&mut nonce).is_err() {
        return;
    }
    // Small pieces are passed on as they come.
    let _ = stream.set_nodelay(true);
    let secret = context.order.gang_secret.expose();
    let handshake = tokio::select! {
        handshake = timeout(HANDSHAKE_TIMEOUT, wire::server_handshake(&mut stream, secret, nonce)) => handshake,
        _ = stopped.wait_for(Option::is_some) => return,
    };
    let Ok(Ok(request)) = handshake else {
        tracing::warn!(node = %context.node.node, "a command was asked for without the job's secret, and refused");
        return;
    };
    proof.give();
    let (from, to) = stream.into_split();
    let to = Mutex::new(to);
    let code = match start(context, &request, number).await {
        Ok(process) => run_to_end(process, from, &to, stopped).await,
        Err(why) => {
            let text = format!("corro: cannot start a command on node {}: {why}\n", context.node.node);
            let _ = wire::write_frame(&mut *to.lock().await, &Frame::Data(2, text.into_bytes())).await;
            Some(EXIT_NOT_STARTED)
        }
    };
    if let Some(code) = code {
        let mut to = to.lock().await;
        // An error means that nobody waits for it.
        let _ = wire::write_frame(&mut *to, &Frame::Exited(code)).await;
        let _ = to.shutdown().await;
    }
}

async fn start(context: &RemoteExecContext, request: &Request, number: u64) -> Result<Process, String> {
    let job_env = &context.job_env;
    let mut env = job_env.environment.variables.clone();
    env.insert(NODES_VARIABLE.to_owned(), request.nodes.clone());
    env.retain(|_, value| !value.contains('\0'));
    let spec = ProcessSpec {
        argv: shell::command(&request.command, env.get("PATH").map(String::as_str)),
        env,
        cwd: job_env.directories.layout.job_temp.clone(),
        tag: format!("{}remote-{number}", context.node.tags.attempt_prefix(&context.order.attempt)),
        confinement: Confinement::default(),
    };
    let process = context.node.config.guard.spawn_with(job_env.wrap(spec), Input::Pipe).await;
    process.map_err(|error| task_errors::chain(&error))
}

/// Until the command has ended and all it wrote is sent; `None` when whoever asked for it left first.
async fn run_to_end(
    mut process: Process,
    mut from: OwnedReadHalf,
    to: &Mutex<OwnedWriteHalf>,
    mut stopped: watch::Receiver<Option<Duration>>,
) -> Option<i32> {
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let stopper = process.stopper();
    let output = async { tokio::join!(forward_output(stdout, 1, to), forward_output(stderr, 2, to)) };
    let ended = async { tokio::join!(process.wait(), output).0 };
    tokio::pin!(ended);
    let grace = tokio::select! {
        exit = &mut ended => return Some(exit.map_or(EXIT_NOT_STARTED, |exit| exit.shell_code())),
        () = forward_input(&mut from, stdin, &stopper) => None,
        grace = stopped.wait_for(Option::is_some) => Some(grace.map_or(None, |grace| *grace).unwrap_or(GRACE)),
    };
    let (exit, ()) = tokio::join!(ended, stopper.terminate(grace.unwrap_or(GRACE)));
    // Stopped with the job, and there is still somebody to tell.
    grace.map(|_| exit.map_or(EXIT_NOT_STARTED, |exit| exit.shell_code()))
}

async fn forward_output(from: Option<impl AsyncRead + Unpin>, number: u8, to: &Mutex<OwnedWriteHalf>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; MAX_FRAME_BYTES / 4];
    let mut is_connected = true;
    while let Ok(length) = from.read(&mut buffer).await
        && length > 0
    {
        // The command must not wait for somebody who has left.
        is_connected = is_connected && {
            let frame = Frame::Data(number, buffer[..length].to_vec());
            wire::write_frame(&mut *to.lock().await, &frame).await.is_ok()
        };
    }
}

/// Passes on what comes for the command; returns when the other side has left.
async fn forward_input(from: &mut OwnedReadHalf, mut stdin: Option<pipe::Sender>, stopper: &Stopper) {
    loop {
        match wire::read_frame(from).await {
            Ok(Frame::Data(0, bytes)) => {
                // One that does not read any more may still have something to say.
                if let Some(to) = &mut stdin
                    && to.write_all(&bytes).await.is_err()
                {
                    stdin = None;
                }
            }
            Ok(Frame::EndOfInput) => stdin = None,
            Ok(Frame::Signal(number)) => {
                if let Some(signal) = Signal::from_named_raw(i32::from(number)) {
                    stopper.signal(signal);
                }
            }
            Ok(_) | Err(_) => return,
        }
    }
}
