//! A connection to a node's SSH server: proves who we are, runs a command. Entered by `node exec`. A node's own key is
//! remembered when it is first seen, by `known`; a node that shows another one later gets neither password nor command.

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
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::known::KnownNode;
use super::terminal::{self, Raw};
use crate::failure::Failure;
use crate::talk::say;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const KEEPALIVE: Duration = Duration::from_secs(15);
/// When a command ended without telling how.
const NO_EXIT_CODE: u8 = 255;
const INTERRUPTED: u8 = 130;

/// Whom to connect to, and as whom.
pub struct Login {
    pub user: String,
    pub node: RemoteLoginInformation,
    pub proof: Proof,
}

/// How to prove who we are: what is given is tried, the key first.
pub struct Proof {
    pub key: Option<PathBuf>,
    pub password: Option<Secret>,
}

/// Whose processes a command is to stand beside.
pub struct Beside {
    /// `WORKSPACE/EXPERIMENT/JOB`
    pub job: String,
    pub rank: Option<usize>,
    pub with_secrets: bool,
}

pub struct Connection {
    handle: Arc<Handle<Visitor>>,
}

pub async fn connect(login: Login) -> Result<Connection, Failure> {
    let attempt = tokio::time::timeout(CONNECT_TIMEOUT, log_in(&login)).await;
    match attempt {
        Ok(connected) => connected,
        Err(_) => {
            let message = format!("no answer from {}:{} within 20 seconds", login.node.ip_address, login.node.port);
            Err(not_connected(message))
        }
    }
}

async fn log_in(login: &Login) -> Result<Connection, Failure> {
    let Login { user, node, proof } = login;
    let config = client::Config { keepalive_interval: Some(KEEPALIVE), ..client::Config::default() };
    let visitor = Visitor { node: KnownNode::new(&node.node_id)? };
    let mut handle = client::connect(Arc::new(config), (node.ip_address.as_str(), node.port), visitor)
        .await
        .map_err(|VisitError(failure)| failure)?;
    if let Some(path) = &proof.key {
        let key = load_secret_key(path, None)
            .map_err(|error| not_connected(format!("cannot use the key {}: {error}", path.display())))?;
        let hash = handle.best_supported_rsa_hash().await.map_err(not_connected)?.flatten();
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        if handle.authenticate_publickey(user, key).await.map_err(not_connected)?.success() {
            return Ok(Connection { handle: Arc::new(handle) });
        }
    }
    if let Some(password) = &proof.password
        && handle.authenticate_password(user, password.expose()).await.map_err(not_connected)?.success()
    {
        return Ok(Connection { handle: Arc::new(handle) });
    }
    Err(not_connected(format!("the node does not accept them from '{user}'"))
        .hint("give --password or --ssh-private-key as the cluster was made with --password or --ssh-key"))
}

fn not_connected(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("Connection to remote host failed. Please check provided credentials. Error: {error}"))
}

impl Connection {
    pub fn handle(&self) -> Arc<Handle<Visitor>> {
        Arc::clone(&self.handle)
    }

    /// Runs a command line with an interactive bash on a terminal; its exit code becomes ours.
    pub async fn exec(&self, command: &str) -> Result<(), Failure> {
        let code = tokio::select! {
            code = self.run(command) => code?,
            _ = tokio::signal::ctrl_c() => INTERRUPTED,
        };
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "en").await;
        if code == 0 { Ok(()) } else { Err(Failure::silent(code)) }
    }

    async fn run(&self, command: &str) -> Result<u8, Failure> {
        let mut channel = self.handle.channel_open_session().await.map_err(broken)?;
        let (columns, rows) = terminal::size();
        let terminal = std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned());
        channel.request_pty(false, &terminal, columns, rows, 0, 0, &[]).await.map_err(broken)?;
        channel.exec(true, format!("bash -ilc {}", quoted(command))).await.map_err(broken)?;
        let mut code = None;
        while let Some(message) = channel.wait().await {
            match message {
                ChannelMsg::Data { data } => write(&mut io::stdout(), &data)?,
                ChannelMsg::ExtendedData { data, .. } => write(&mut io::stderr(), &data)?,
                ChannelMsg::ExitStatus { exit_status } => {
                    code = Some(u8::try_from(exit_status).unwrap_or(NO_EXIT_CODE))
                }
                ChannelMsg::ExitSignal { signal_name, .. } => {
                    say(format_args!("The command was ended by the signal {signal_name:?}."));
                    code = Some(NO_EXIT_CODE);
                }
                ChannelMsg::Failure => return Err(Failure::new("the node refuses to run commands")),
                _ => {}
            }
        }
        code.ok_or_else(|| Failure::new("the connection to the node broke before the command ended"))
    }
}

/// Talking to a job's place.
impl Connection {
    /// Runs a command beside the processes of a job: with a terminal when a person is here, with our input otherwise.
    /// Ctrl-C goes to the command; where there is no terminal, a second one ends us.
    pub async fn exec_beside(&self, beside: &Beside, command: &[String]) -> Result<ExitCode, Failure> {
        let mut channel = self.handle.channel_open_session().await.map_err(broken)?;
        let rank = beside.rank.map(|rank| rank.to_string());
        let secrets = beside.with_secrets.then(|| "1".to_owned());
        let wishes = [(JOB_VARIABLE, Some(beside.job.clone())), (RANK_VARIABLE, rank), (SECRETS_VARIABLE, secrets)];
        for (name, value) in wishes.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            channel.set_env(true, name, value).await.map_err(broken)?;
            if !matches!(channel.wait().await, Some(ChannelMsg::Success)) {
                return Err(Failure::new("the node's agent does not know how to run a command beside a job")
                    .hint("it is of an older version: start it again with the program that the server runs"));
            }
        }
        let raw = if terminal::is_interactive() { Raw::enter() } else { None };
        if raw.is_some() {
            let (columns, rows) = terminal::size();
            let kind = std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned());
            channel.request_pty(false, &kind, columns, rows, 0, 0, &[]).await.map_err(broken)?;
        }
        let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
        channel.exec(true, words.join(" ")).await.map_err(broken)?;
        let code = converse(channel, raw.is_some()).await;
        drop(raw);
        let _ = self.handle.disconnect(Disconnect::ByApplication, "", "en").await;
        code.map(ExitCode::from)
    }
}

async fn converse(channel: Channel<client::Msg>, on_terminal: bool) -> Result<u8, Failure> {
    let (mut from, to) = channel.split();
    let mut keyboard = Some(terminal::keyboard());
    let mut resized = signal(SignalKind::window_change()).map_err(|error| Failure::of(&error))?;
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
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => code = Some(code_of(&signal_name)),
                Some(ChannelMsg::Failure) => return Err(Failure::new("the node refuses to run commands")),
                Some(_) => {}
                None => break,
            },
            typed = next(&mut keyboard) => match typed {
                Some(bytes) => to.data(&bytes[..]).await.map_err(broken)?,
                None => {
                    keyboard = None;
                    to.eof().await.map_err(broken)?;
                }
            },
            _ = resized.recv(), if on_terminal => {
                let (columns, rows) = terminal::size();
                to.window_change(columns, rows, 0, 0).await.map_err(broken)?;
            }
            _ = tokio::signal::ctrl_c(), if !on_terminal => {
                interrupts += 1;
                if interrupts > 1 {
                    return Ok(INTERRUPTED);
                }
                to.signal(Sig::INT).await.map_err(broken)?;
            }
        }
    }
    code.ok_or_else(|| Failure::new("the connection to the node broke before the command ended"))
}

async fn next(keyboard: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match keyboard {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

/// As a shell reports it.
fn code_of(signal: &Sig) -> u8 {
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

fn broken(error: russh::Error) -> Failure {
    Failure { causes: vec![error.to_string()], ..Failure::new("the connection to the node broke") }
}

fn write(out: &mut impl Write, bytes: &[u8]) -> Result<(), Failure> {
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        // The reader has seen enough.
        io::ErrorKind::BrokenPipe => Failure::silent(0),
        _ => Failure { causes: vec![error.to_string()], ..Failure::new("cannot write what the command says") },
    })
}

/// One word for the remote shell, whatever is in it.
fn quoted(command: &str) -> String {
    format!("'{}'", command.replace('\'', "'\\''"))
}

/// What we say to the node's key.
pub struct Visitor {
    node: KnownNode,
}

/// A failure in the clothes of an error, as the library wants one.
#[derive(Debug)]
pub struct VisitError(Failure);

impl From<russh::Error> for VisitError {
    fn from(error: russh::Error) -> VisitError {
        VisitError(not_connected(error))
    }
}

impl client::Handler for Visitor {
    type Error = VisitError;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, VisitError> {
        let key = match key {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                key.to_openssh().map_err(|error| VisitError(not_connected(error)))?
            }
            PublicKeyOrCertificate::Certificate(_) => {
                return Err(VisitError(not_connected("the node shows a certificate")));
            }
        };
        self.node.check(&key).map_err(VisitError)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_word() {
        assert_eq!(quoted("echo \"$HOME\" 'x'"), "'echo \"$HOME\" '\\''x'\\'''");
    }
}
