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

use super::wire::{self, Frame, MOST_FRAME, NONCE, Request};
use super::{House, NODES_VARIABLE};
use crate::shell;
use crate::task_errors;

/// For a stranger to prove that it is none.
const PROVE_WITHIN: Duration = Duration::from_secs(10);
/// For a command that nobody waits for any more.
const GRACE: Duration = Duration::from_secs(1);
/// What `ssh` ends with when it was not the command that failed.
const NOT_STARTED: i32 = 255;

pub async fn serve(
    mut stream: TcpStream,
    house: &Arc<House>,
    number: u64,
    mut stopped: watch::Receiver<Option<Duration>>,
    proof: Proof,
) {
    let mut nonce = [0; NONCE];
    if getrandom::fill(&mut nonce).is_err() {
        return;
    }
    // Small pieces are passed on as they come.
    let _ = stream.set_nodelay(true);
    let secret = house.order.gang_secret.expose();
    let heard = tokio::select! {
        heard = timeout(PROVE_WITHIN, wire::listen(&mut stream, secret, nonce)) => heard,
        _ = stopped.wait_for(Option::is_some) => return,
    };
    let Ok(Ok(request)) = heard else {
        tracing::warn!(node = %house.context.node, "a command was asked for without the job's secret, and refused");
        return;
    };
    proof.give();
    let (from, to) = stream.into_split();
    let to = Mutex::new(to);
    let code = match start(house, &request, number).await {
        Ok(process) => attend(process, from, &to, stopped).await,
        Err(why) => {
            let text = format!("corro: cannot start a command on node {}: {why}\n", house.context.node);
            let _ = wire::write(&mut *to.lock().await, &Frame::Data(2, text.into_bytes())).await;
            Some(NOT_STARTED)
        }
    };
    if let Some(code) = code {
        let mut to = to.lock().await;
        // An error means that nobody waits for it.
        let _ = wire::write(&mut *to, &Frame::Ended(code)).await;
        let _ = to.shutdown().await;
    }
}

async fn start(house: &House, request: &Request, number: u64) -> Result<Process, String> {
    let ground = &house.ground;
    let mut env = ground.environment.variables.clone();
    env.insert(NODES_VARIABLE.to_owned(), request.nodes.clone());
    env.retain(|_, value| !value.contains('\0'));
    let spec = ProcessSpec {
        argv: shell::command(&request.command, env.get("PATH").map(String::as_str)),
        env,
        cwd: ground.directories.layout.job_temp.clone(),
        tag: format!("{}remote-{number}", house.context.tags.of_attempt(&house.order.attempt)),
        confinement: Confinement::default(),
    };
    let process = house.context.config.guard.spawn_with(ground.process(spec), Input::Pipe).await;
    process.map_err(|error| task_errors::chain(&error))
}

/// Until the command has ended and all it wrote is sent; `None` when whoever asked for it left first.
async fn attend(
    mut process: Process,
    mut from: OwnedReadHalf,
    to: &Mutex<OwnedWriteHalf>,
    mut stopped: watch::Receiver<Option<Duration>>,
) -> Option<i32> {
    let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
    let stopper = process.stopper();
    let output = async { tokio::join!(send(stdout, 1, to), send(stderr, 2, to)) };
    let ended = async { tokio::join!(process.wait(), output).0 };
    tokio::pin!(ended);
    let grace = tokio::select! {
        exit = &mut ended => return Some(exit.map_or(NOT_STARTED, |exit| exit.shell_code())),
        () = listen(&mut from, stdin, &stopper) => None,
        grace = stopped.wait_for(Option::is_some) => Some(grace.map_or(None, |grace| *grace).unwrap_or(GRACE)),
    };
    let (exit, ()) = tokio::join!(ended, stopper.terminate(grace.unwrap_or(GRACE)));
    // Stopped with the job, and there is still somebody to tell.
    grace.map(|_| exit.map_or(NOT_STARTED, |exit| exit.shell_code()))
}

async fn send(from: Option<impl AsyncRead + Unpin>, number: u8, to: &Mutex<OwnedWriteHalf>) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; MOST_FRAME / 4];
    let mut heard = true;
    while let Ok(length) = from.read(&mut buffer).await
        && length > 0
    {
        // The command must not wait for somebody who has left.
        heard = heard && {
            let frame = Frame::Data(number, buffer[..length].to_vec());
            wire::write(&mut *to.lock().await, &frame).await.is_ok()
        };
    }
}

/// Passes on what comes for the command; returns when the other side has left.
async fn listen(from: &mut OwnedReadHalf, mut stdin: Option<pipe::Sender>, stopper: &Stopper) {
    loop {
        match wire::read(from).await {
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
