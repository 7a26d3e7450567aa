//! One SSH connection: authentication, and which channels and requests are accepted. Called by the SSH library. The
//! work is done by `session` and `forward`, in tasks that the server owns.

use std::sync::Arc;

use russh::keys::PublicKey;
use russh::server::{Auth, ChannelOpenHandle, Handle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;

use super::{SshContext, forward, session};

/// Whether the client has authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthState {
    Pending,
    Authenticated,
}

/// Handler of one SSH connection.
pub struct SshConnection {
    context: Arc<SshContext>,
    auth: watch::Sender<AuthState>,
    channels: mpsc::Sender<OpenedChannel>,
    channel_permits: Arc<Semaphore>,
}

/// A channel that was accepted.
pub struct OpenedChannel {
    context: Arc<SshContext>,
    channel: Channel<Msg>,
    kind: ChannelKind,
    _permit: OwnedSemaphorePermit,
}

enum ChannelKind {
    Session,
    Forward { host: String, port: u16, reply: ChannelOpenHandle },
}

impl OpenedChannel {
    pub async fn serve(self, handle: Handle) {
        match self.kind {
            ChannelKind::Session => session::serve(&self.context, self.channel, handle).await,
            ChannelKind::Forward { host, port, reply } => forward::serve(self.channel, &host, port, reply).await,
        }
    }
}

impl SshConnection {
    pub fn new(
        context: Arc<SshContext>,
        channels: mpsc::Sender<OpenedChannel>,
        max_channels: usize,
    ) -> (SshConnection, watch::Receiver<AuthState>) {
        let (auth, receiver) = watch::channel(AuthState::Pending);
        (SshConnection { context, auth, channels, channel_permits: Arc::new(Semaphore::new(max_channels)) }, receiver)
    }

    fn check_key(&self, user: &str, key: &PublicKey) -> Auth {
        let ours = self.context.key.as_ref().is_some_and(|ours| ours.key_data() == key.key_data());
        if ours && user == self.context.login.user { Auth::Accept } else { self.reject() }
    }

    /// Rejects an attempt. All methods stay available for the next one.
    fn reject(&self) -> Auth {
        Auth::Reject { proceed_with_methods: Some(self.context.methods()), partial_success: false }
    }

    /// A permit for a channel; `None` if too many are open.
    fn channel_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.channel_permits).try_acquire_owned().ok()
    }

    async fn queue_channel(&self, channel: Channel<Msg>, kind: ChannelKind, channel_permit: OwnedSemaphorePermit) {
        let opened = OpenedChannel { context: Arc::clone(&self.context), channel, kind, _permit: channel_permit };
        // Fails only when the connection is about to be closed.
        let _ = self.channels.send(opened).await;
    }
}

impl Handler for SshConnection {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        Ok(self.check_key(user, offer.public_key))
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(self.check_key(user, key.public_key))
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, russh::Error> {
        let (context, password) = (Arc::clone(&self.context), password.to_owned());
        let Some(verifier) = context.login.password.clone() else { return Ok(self.reject()) };
        let _permit = context.password_check.acquire().await;
        // Checked even for a wrong user name, so that the time does not reveal which of the two was wrong.
        let right = spawn_blocking(move || verifier.accepts(&password)).await.unwrap_or(false);
        Ok(if right && user == context.login.user { Auth::Accept } else { self.reject() })
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.auth.send_replace(AuthState::Authenticated);
        tracing::info!(user = self.context.login.user, "the administrator has logged in");
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        match self.channel_permit() {
            Some(channel_permit) => {
                reply.accept().await;
                self.queue_channel(channel, ChannelKind::Session, channel_permit).await;
            }
            None => reply.reject(ChannelOpenFailure::ResourceShortage).await,
        }
        Ok(())
    }

    /// Forwards to any host that this node reaches: the client could as well start a program that connects there.
    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        match (u16::try_from(port), self.channel_permit()) {
            (Ok(port), Some(channel_permit)) => {
                self.queue_channel(
                    channel,
                    ChannelKind::Forward { host: host.to_owned(), port, reply },
                    channel_permit,
                )
                .await;
            }
            (Err(_), _) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
            (_, None) => reply.reject(ChannelOpenFailure::ResourceShortage).await,
        }
        Ok(())
    }

    // The following handlers only answer; `session` reads the same requests from its channel and acts.

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        _: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        match session::is_accepted_variable(name) {
            true => session.channel_success(channel),
            false => session.channel_failure(channel),
        }
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }

    async fn exec_request(&mut self, channel: ChannelId, _: &[u8], session: &mut Session) -> Result<(), russh::Error> {
        session.channel_success(channel)
    }

    async fn subsystem_request(
        &mut self,
        channel: ChannelId,
        _: &str,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), russh::Error> {
        session.channel_failure(channel)
    }
}
