//! SSH connection to a node: authenticates and runs commands. The node's host key is checked against [`super::known_hosts`] before any
//! credential is sent.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use corro_model::Secret;
use corro_model::batchai::RemoteLoginInformation;
use corro_model::node::{JOB_VARIABLE, RANK_VARIABLE, SECRETS_VARIABLE};
use russh::client::{self, Handle};
use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate, load_secret_key};
use russh::{Channel, ChannelMsg, Disconnect, Sig};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::known_hosts::PinnedHostKey;
use crate::error::CliError;
use crate::stdio::note;
use crate::terminal::{self, RawMode};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Exit code of a command that ended without reporting one.
const NO_EXIT_CODE: u8 = 255;
const INTERRUPTED: u8 = 130;

/// A node, and the user and credentials to log in with.
pub struct Login {
    pub user: String,
    pub node: RemoteLoginInformation,
    pub credentials: Credentials,
}

/// Credentials to try, the key first.
pub struct Credentials {
    pub key: Option<PathBuf>,
    pub password: Option<Secret>,
}

/// The job in whose environment a command runs, as variables for the node's agent.
pub struct JobExecTarget {
    /// `WORKSPACE/EXPERIMENT/JOB`.
    pub job: String,
    /// Take the variables of this rank.
    pub rank: Option<usize>,
    pub with_secrets: bool,
}

pub struct Connection {
    handle: Arc<Handle<HostKeyHandler>>,
}

/// Connects to the node's address and authenticates, within [`CONNECT_TIMEOUT`].
pub async fn connect(login: Login) -> Result<Connection, CliError> {
    let address = (login.node.ip_address.clone(), login.node.port);
    let connecting = async {
        let stream = TcpStream::connect((address.0.as_str(), address.1)).await.map_err(connect_error)?;
        let _ = stream.set_nodelay(true);
        authenticate(&login, stream).await
    };
    let silent =
        || format!("no response from {}:{} within {} seconds", address.0, address.1, CONNECT_TIMEOUT.as_secs());
    timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(connect_error(silent())))
}

/// Authenticates over an open stream to the node's SSH server.
pub async fn connect_over(login: Login, stream: DuplexStream) -> Result<Connection, CliError> {
    let silent =
        || format!("no response from node {} within {} seconds", login.node.node_id, CONNECT_TIMEOUT.as_secs());
    timeout(CONNECT_TIMEOUT, authenticate(&login, stream)).await.unwrap_or_else(|_| Err(connect_error(silent())))
}

async fn authenticate<S>(login: &Login, stream: S) -> Result<Connection, CliError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Login { user, node, credentials } = login;
    let config = client::Config { keepalive_interval: Some(KEEPALIVE_INTERVAL), ..client::Config::default() };
    let handler = HostKeyHandler { pinned_key: PinnedHostKey::new(&node.node_id)? };
    let connected = client::connect_stream(Arc::new(config), stream, handler).await;
    let mut handle = connected.map_err(|HandlerError(error)| error)?;
    if let Some(path) = &credentials.key {
        let key = load_secret_key(path, None)
            .map_err(|error| connect_error(format!("cannot use the key {}: {error}", path.display())))?;
        let hash = handle.best_supported_rsa_hash().await.map_err(connect_error)?.flatten();
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        if handle.authenticate_publickey(user, key).await.map_err(connect_error)?.success() {
            return Ok(Connection { handle: Arc::new(handle) });
        }
    }
    if let Some(password) = &credentials.password
        && handle.authenticate_password(user, password.expose()).await.map_err(connect_error)?.success()
    {
        return Ok(Connection { handle: Arc::new(handle) });
    }
    Err(connect_error(format!("the node does not accept them for user '{user}'"))
        .hint("give --password or --ssh-private-key as the cluster was made with --password or --ssh-key"))
}

fn connect_error(error: impl std::fmt::Display) -> CliError {
    CliError::new(format!("Connection to remote host failed. Please check provided credentials. Error: {error}"))
}

impl Connection {
    pub fn handle(&self) -> Arc<Handle<HostKeyHandler>> {
        Arc::clone(&self.handle)
    }

    /// Runs a command line with an interactive bash on a pseudo-terminal. Its exit code becomes that of this process.
    pub async fn exec(&self, command: &str) -> Result<(), CliError> {
        let code = tokio::select! {
            code = self.run(command) => code?,
            _ = tokio::signal::ctrl_c() => INTERRUPTED,
        };
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "en").await;
        if code == 0 { Ok(()) } else { Err(CliError::silent(code)) }
    }

    async fn run(&self, command: &str) -> Result<u8, CliError> {
        let mut channel = self.handle.channel_open_session().await.map_err(connection_lost)?;
        let (columns, rows) = terminal::size();
        let terminal = std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned());
        channel.request_pty(false, &terminal, columns, rows, 0, 0, &[]).await.map_err(connection_lost)?;
        channel.exec(true, format!("bash -ilc {}", shell_quote(command))).await.map_err(connection_lost)?;
        let mut code = None;
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => write(&mut io::stdout(), &data)?,
                ChannelMsg::ExtendedData { data, .. } => write(&mut io::stderr(), &data)?,
                ChannelMsg::ExitStatus { exit_status } => {
                    code = Some(u8::try_from(exit_status).unwrap_or(NO_EXIT_CODE))
                }
                ChannelMsg::ExitSignal { signal_name, .. } => {
                    note(format_args!("The command was ended by the signal {signal_name:?}."));
                    code = Some(NO_EXIT_CODE);
                }
                ChannelMsg::Failure => return Err(CliError::new("the node refuses to run commands")),
                _ => {}
            }
        }
        code.ok_or_else(|| CliError::new("the connection to the node broke before the command ended"))
    }
}

impl Connection {
    /// Runs a command in the environment of a job, on a pseudo-terminal if this process has one, else with its standard input. Ctrl-C is sent to
    /// the command; without a terminal a second Ctrl-C ends this process.
    pub async fn exec_in_job(&self, target: &JobExecTarget, command: &[String]) -> Result<ExitCode, CliError> {
        let channel = self.open_in_job(target).await?;
        let raw = if terminal::is_interactive() { RawMode::enter() } else { None };
        if raw.is_some() {
            let (columns, rows) = terminal::size();
            let kind = std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned());
            channel.request_pty(false, &kind, columns, rows, 0, 0, &[]).await.map_err(connection_lost)?;
        }
        channel.exec(true, command_line(command)).await.map_err(connection_lost)?;
        let code = relay(channel, raw.is_some()).await;
        drop(raw);
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "en").await;
        code.map(ExitCode::from)
    }

    /// A channel whose command will run in the environment of the job.
    async fn open_in_job(&self, target: &JobExecTarget) -> Result<Channel<client::Msg>, CliError> {
        let mut channel = self.handle.channel_open_session().await.map_err(connection_lost)?;
        let rank = target.rank.map(|rank| rank.to_string());
        let secrets = target.with_secrets.then(|| "1".to_owned());
        let variables = [(JOB_VARIABLE, Some(target.job.clone())), (RANK_VARIABLE, rank), (SECRETS_VARIABLE, secrets)];
        for (name, value) in variables.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            channel.set_env(true, name, value).await.map_err(connection_lost)?;
            if !matches!(channel.wait().await, Some(ChannelMsg::Success)) {
                return Err(CliError::new("the node's agent cannot run a command in a job")
                    .hint("its version is older: restart it with the version that the server runs"));
            }
        }
        Ok(channel)
    }
}

/// The words as a command line of a POSIX shell.
fn command_line(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_quote(word)).collect();
    words.join(" ")
}

async fn relay(channel: Channel<client::Msg>, on_terminal: bool) -> Result<u8, CliError> {
    let (mut from, to) = channel.split();
    let mut stdin = Some(terminal::stdin_channel());
    let mut resized = signal(SignalKind::window_change()).map_err(|error| CliError::from_error(&error))?;
    let mut interrupts = 0;
    let mut code = None;
    loop {
        tokio::select! {
            message = from.wait() => match message {
                Some(ChannelMsg::Data { data }) => write(&mut io::stdout(), &data)?,
                Some(ChannelMsg::ExtendedData { data, .. }) => write(&mut io::stderr(), &data)?,
                Some(ChannelMsg::ExitStatus { exit_status }) => {
                    code = Some(u8::try_from(exit_status).unwrap_or(NO_EXIT_CODE));
                }
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => code = Some(signal_exit_code(&signal_name)),
                Some(ChannelMsg::Failure) => return Err(CliError::new("the node refuses to run commands")),
                Some(_) => {}
                None => break,
            },
            typed = next_input(&mut stdin) => match typed {
                Some(bytes) => to.data(&bytes[..]).await.map_err(connection_lost)?,
                None => {
                    stdin = None;
                    to.eof().await.map_err(connection_lost)?;
                }
            },
            _ = resized.recv(), if on_terminal => {
                let (columns, rows) = terminal::size();
                to.window_change(columns, rows, 0, 0).await.map_err(connection_lost)?;
            }
            _ = tokio::signal::ctrl_c(), if !on_terminal => {
                interrupts += 1;
                if interrupts > 1 {
                    return Ok(INTERRUPTED);
                }
                to.signal(Sig::INT).await.map_err(connection_lost)?;
            }
        }
    }
    code.ok_or_else(|| CliError::new("the connection to the node broke before the command ended"))
}

/// Never resolves once the input has ended.
async fn next_input(stdin: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match stdin {
        Some(chunks) => chunks.recv().await,
        None => std::future::pending().await,
    }
}

/// 128 plus the signal number, as a shell reports it.
fn signal_exit_code(signal: &Sig) -> u8 {
    let number = match signal {
        Sig::HUP => 1,
        Sig::INT => 2,
        Sig::QUIT => 3,
        Sig::ILL => 4,
        Sig::ABRT => 6,
        Sig::FPE => 8,
        Sig::KILL => 9,
        Sig::USR1 => 10,
        Sig::SEGV => 11,
        Sig::PIPE => 13,
        Sig::ALRM => 14,
        Sig::TERM => 15,
        Sig::Custom(_) => return NO_EXIT_CODE,
    };
    128 + number
}

fn connection_lost(error: russh::Error) -> CliError {
    CliError::new("the connection to the node broke").cause(error)
}

fn write(out: &mut impl Write, bytes: &[u8]) -> Result<(), CliError> {
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        // The reader closed the pipe, as `head` does.
        io::ErrorKind::BrokenPipe => CliError::silent(0),
        _ => CliError::new("cannot write the output of the command").cause(&error),
    })
}

/// Quotes text as one word of a POSIX shell.
fn shell_quote(command: &str) -> String {
    format!("'{}'", command.replace('\'', "'\\''"))
}

/// Checks the node's host key during the handshake.
pub struct HostKeyHandler {
    pinned_key: PinnedHostKey,
}

/// `CliError` as the error type that the SSH library requires.
#[derive(Debug)]
pub struct HandlerError(CliError);

impl From<russh::Error> for HandlerError {
    fn from(error: russh::Error) -> HandlerError {
        HandlerError(connect_error(error))
    }
}

impl client::Handler for HostKeyHandler {
    type Error = HandlerError;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, HandlerError> {
        let key = match key {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                key.to_openssh().map_err(|error| HandlerError(connect_error(error)))?
            }
            PublicKeyOrCertificate::Certificate(_) => {
                return Err(HandlerError(connect_error("the node has a host certificate instead of a key")));
            }
        };
        self.pinned_key.verify(&key).map_err(HandlerError)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_quoted_as_one_word() {
        assert_eq!(shell_quote("echo \"$HOME\" 'x'"), "'echo \"$HOME\" '\\''x'\\'''");
    }
}
