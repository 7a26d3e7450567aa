//! One connection to the login door: proves who is there and decides what may be asked for. Entered by the SSH library.
//! Only lets through: the work itself is done by `session` and `forward`, in tasks that the door owns.

use std::sync::Arc;

use russh::keys::PublicKey;
use russh::server::{Auth, ChannelOpenHandle, Handle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Pty};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;

use super::{House, forward, session};

/// Has the visitor proved who they are?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    No,
    Yes,
}

pub struct Visitor {
    house: Arc<House>,
    known: watch::Sender<Known>,
    channels: mpsc::Sender<Opened>,
    places: Arc<Semaphore>,
}

/// Something a visitor asked for and may have.
pub struct Opened {
    house: Arc<House>,
    channel: Channel<Msg>,
    what: What,
    _place: OwnedSemaphorePermit,
}

enum What {
    Session,
    Forward { host: String, port: u16, reply: ChannelOpenHandle },
}

impl Opened {
    pub async fn serve(self, handle: Handle) {
        match self.what {
            What::Session => session::serve(&self.house, self.channel, handle).await,
            What::Forward { host, port, reply } => forward::serve(self.channel, &host, port, reply).await,
        }
    }
}

impl Visitor {
    pub fn new(
        house: Arc<House>,
        channels: mpsc::Sender<Opened>,
        max_channels: usize,
    ) -> (Visitor, watch::Receiver<Known>) {
        let (known, receiver) = watch::channel(Known::No);
        (Visitor { house, known, channels, places: Arc::new(Semaphore::new(max_channels)) }, receiver)
    }

    fn knows(&self, user: &str, key: &PublicKey) -> Auth {
        let ours = self.house.key.as_ref().is_some_and(|ours| ours.key_data() == key.key_data());
        if ours && user == self.house.login.user { Auth::Accept } else { self.refusal() }
    }

    /// Every method stays open for the next attempt: who tries a key first, or mistypes, may give a password.
    fn refusal(&self) -> Auth {
        Auth::Reject { proceed_with_methods: Some(self.house.methods()), partial_success: false }
    }

    /// `None` when too much is open already.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    async fn hand_over(&self, channel: Channel<Msg>, what: What, place: OwnedSemaphorePermit) {
        let opened = Opened { house: Arc::clone(&self.house), channel, what, _place: place };
        // The door is gone only when the connection is about to be cut.
        let _ = self.channels.send(opened).await;
    }
}

impl Handler for Visitor {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, russh::Error> {
        Ok(self.knows(user, offer.public_key))
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, russh::Error> {
        Ok(self.knows(user, key.public_key))
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, russh::Error> {
        let (house, password) = (Arc::clone(&self.house), password.to_owned());
        let Some(verifier) = house.login.password.clone() else { return Ok(self.refusal()) };
        let _turn = house.checking.acquire().await;
        // Checked even for a wrong name, so that the time does not tell which of the two was wrong.
        let right = spawn_blocking(move || verifier.accepts(&password)).await.unwrap_or(false);
        Ok(if right && user == house.login.user { Auth::Accept } else { self.refusal() })
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), russh::Error> {
        self.known.send_replace(Known::Yes);
        tracing::info!(user = self.house.login.user, "the administrator has logged in");
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), russh::Error> {
        match self.place() {
            Some(place) => {
                reply.accept().await;
                self.hand_over(channel, What::Session, place).await;
            }
            None => reply.reject(ChannelOpenFailure::ResourceShortage).await,
        }
        Ok(())
    }

    /// To any host that this node reaches: the visitor could start a program that goes there just as well.
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
        match (u16::try_from(port), self.place()) {
            (Ok(port), Some(place)) => {
                self.hand_over(channel, What::Forward { host: host.to_owned(), port, reply }, place).await;
            }
            (Err(_), _) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
            (_, None) => reply.reject(ChannelOpenFailure::ResourceShortage).await,
        }
        Ok(())
    }

    // What follows only answers; `session` reads the same requests from its channel and acts.

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
        match session::may_set(name) {
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
