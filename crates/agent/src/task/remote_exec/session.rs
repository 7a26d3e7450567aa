//! The agent's side of one command from another node: handshake, process under a guard, forwarding of input, output and
//! signals. The command ends when its client disconnects.

use std::sync::Arc;
use std::time::Duration;

use corro_base::error_chain;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use corro_launch::confinement::Confinement;
use corro_launch::connection_set::AuthFlag;
use corro_launch::process::Process;
use corro_launch::process_spec::{Input, ProcessSpec};
use corro_launch::stopper::Stopper;

use super::wire::{self, Frame, MAX_FRAME_BYTES, NONCE_BYTES, Request};
use super::{NODES_VARIABLE, RemoteExecContext};
use crate::shell;

/// Time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Grace of a command whose client has disconnected.
const DISCONNECT_GRACE: Duration = Duration::from_secs(1);
/// Exit code of `ssh` for its own failures.
const EXIT_NOT_STARTED: i32 = 255;

/// Serves one connection: handshake, command, exit code.
pub async fn serve(
    mut stream: TcpStream,
    context: &Arc<RemoteExecContext>,
    number: u64,
    mut stopped: watch::Receiver<Option<Duration>>,
    auth_flag: AuthFlag,
) {
    let mut nonce = [0; NONCE_BYTES];
    if getrandom::fill(&mut nonce).is_err() {
        return;
    }
    // Small frames are sent at once.
    let _ = stream.set_nodelay(true);
    let secret = context.order.gang_secret.expose();
    let handshake = tokio::select! {
        handshake = timeout(HANDSHAKE_TIMEOUT, wire::server_handshake(&mut stream, secret, nonce)) => handshake,
        _ = stopped.wait_for(Option::is_some) => return,
    };
    let Ok(Ok(request)) = handshake else {
        tracing::warn!(node = %context.node.node, "refused a remote command: authentication with the job's secret failed");
        return;
    };
    auth_flag.set();
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
        // An error means that the client has disconnected.
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
        cwd: job_env.environment.working_directory.clone(),
        tag: format!("{}remote-{number}", context.node.tags.attempt_prefix(&context.order.attempt)),
        confinement: Confinement::default(),
    };
    let process = context.node.config.guard.spawn_with(job_env.wrap(spec), Input::Pipe).await;
    process.map_err(|error| error_chain::join(&error))
}

/// Runs until the command has ended and its output is sent; `None` if the client disconnected first.
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
        grace = stopped.wait_for(Option::is_some) => Some(grace.map_or(None, |grace| *grace).unwrap_or(DISCONNECT_GRACE)),
    };
    let (exit, ()) = tokio::join!(ended, stopper.terminate(grace.unwrap_or(DISCONNECT_GRACE)));
    // Stopped with the job; the client is still connected.
    grace.map(|_| exit.map_or(EXIT_NOT_STARTED, |exit| exit.shell_code()))
}

async fn forward_output(from: Option<impl AsyncRead + Unpin>, number: u8, to: &Mutex<OwnedWriteHalf>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; MAX_FRAME_BYTES / 4];
    let mut is_connected = true;
    while let Ok(length) = from.read(&mut buffer).await
        && length > 0
    {
        // The command must not block on a client that has disconnected.
        is_connected = is_connected && {
            let frame = Frame::Data(number, buffer[..length].to_vec());
            wire::write_frame(&mut *to.lock().await, &frame).await.is_ok()
        };
    }
}

/// Forwards input and signals to the command; returns when the client disconnects.
async fn forward_input(from: &mut OwnedReadHalf, mut stdin: Option<pipe::Sender>, stopper: &Stopper) {
    loop {
        match wire::read_frame(from).await {
            Ok(Frame::Data(0, bytes)) => {
                // A command that no longer reads may still write.
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
