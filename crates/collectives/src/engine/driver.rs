//! The engine's one turn: takes what was asked, talks to the coordinator, does what is agreed. Held by one thread at a time: the engine's
//! own, or one that waits for a result. Nothing here waits, but for the operations themselves.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::communicator::Communicator;
use crate::coordinator::{
    Action, Coordinator, GLOBAL_AREA, Member, Request, SHUT_DOWN, SetId, ShutdownReason, ToMember, Token,
    decode_to_coordinator, decode_to_member, encode_to_coordinator, encode_to_member,
};
use crate::engine::desk::Desk;
use crate::engine::entry::{Ask, Entry, Keeps, Place};
use crate::engine::handle::{EngineError, Slot};
use crate::engine::observed::Observed;
use crate::observe::shared_steps::SharedSteps;
use crate::observe::status::Status;
use crate::settings::LogLevel;
use crate::transport::control::channel::ControlChannel;
use crate::world::World;

pub struct Driver {
    pub(super) world: World,
    pub(super) member: Member,
    desk: Arc<Desk>,
    /// On rank 0.
    pub(super) coordinator: Option<Coordinator>,
    control_channel: ControlChannel,
    pub(super) sets: HashMap<SetId, Option<Communicator>>,
    pub(super) entries: HashMap<Token, Entry>,
    /// Calls that are no tensors.
    calls: HashMap<Token, Arc<Slot>>,
    pub(super) observed: Observed,
    pub(super) status: Status,
    pub(super) shared_steps: Arc<SharedSteps>,
    pub(super) fused: Vec<u8>,
    pub(super) began: Instant,
    /// Scratch.
    frame: Vec<u8>,
    heard: Vec<(usize, Vec<u8>)>,
    actions: Vec<Action>,
    to_self: Vec<ToMember>,
    /// Why there is nothing more to be done.
    pub(super) ended: Option<Arc<str>>,
    looked_for_stalls: Duration,
    /// `HOROVOD_GLOO_TIMEOUT_SECONDS`, for what all ranks have begun.
    silence_limit: Duration,
}

impl Driver {
    #[expect(clippy::too_many_arguments, reason = "each is given once, by the one who starts the engine")]
    pub fn new(
        world: World,
        member: Member,
        desk: Arc<Desk>,
        coordinator: Option<Coordinator>,
        control_channel: ControlChannel,
        global: Communicator,
        observed: Observed,
        silence_limit: Duration,
    ) -> Driver {
        let began = Instant::now();
        let shared_steps = Arc::new(SharedSteps::new(began));
        Driver {
            status: Status::new(world.rank(), world.size(), shared_steps.clone()),
            shared_steps,
            world,
            member,
            desk,
            coordinator,
            control_channel,
            sets: HashMap::from([(SetId::GLOBAL, Some(global))]),
            entries: HashMap::new(),
            calls: HashMap::new(),
            observed,
            fused: Vec::new(),
            began,
            frame: Vec::new(),
            heard: Vec::new(),
            actions: Vec::new(),
            to_self: Vec::new(),
            ended: None,
            looked_for_stalls: Duration::ZERO,
            silence_limit,
        }
    }

    /// Whether anything was done: then there may be more.
    pub fn turn(&mut self, asked: &mut Vec<Ask>) -> bool {
        let mut busy = !asked.is_empty();
        for ask in asked.drain(..) {
            self.on_ask(ask);
        }
        if self.ended.is_some() {
            return busy;
        }
        let now = self.began.elapsed();
        self.status.pending(self.member.n_pending(), now);
        if let Some(coordinator) = &mut self.coordinator {
            self.observed.watch_agreement(coordinator);
        }
        busy |= self.tell_coordinator(now);
        busy |= self.listen(now);
        self.coordinate();
        busy |= !self.actions.is_empty();
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.on_action(action);
        }
        self.actions = actions;
        busy
    }

    /// Now and then, when there is nothing to do: has somebody died, does somebody let others wait?
    pub fn look_around(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Some(error) = self.world.shared.peer_table.death() {
            self.end(&error.to_string());
            return;
        }
        // Without the coordinator nothing is agreed any more; it says so before it leaves, unless it was in a hurry.
        if self.world.rank() != 0 && self.world.shared.peer_table.is_gone(0) && !self.control_channel.is_pending() {
            self.end(SHUT_DOWN);
            return;
        }
        self.world.shared.peer_table.set_agreeing(self.member.n_pending() > 0);
        let now = self.began.elapsed();
        self.status.pending(self.member.n_pending(), now);
        self.show(now);
        if now < self.looked_for_stalls + Duration::from_millis(500) {
            return;
        }
        self.looked_for_stalls = now;
        if let Some(report) = self.coordinator.as_mut().and_then(|coordinator| coordinator.stalled(now)) {
            self.observed.log_stall(&report);
            self.coordinate();
            let mut actions = std::mem::take(&mut self.actions);
            actions.drain(..).for_each(|action| self.on_action(action));
        }
    }

    /// Whether this rank waits for anything.
    pub fn is_waiting(&self) -> bool {
        self.member.n_pending() > 0
    }

    /// Whether others may need this rank though it waits for nothing: it coordinates sets it is not in, or is about to end.
    pub fn is_needed(&self) -> bool {
        self.coordinator.is_some() && self.sets.len() > 1
    }

    pub fn has_mail(&self) -> bool {
        self.control_channel.is_pending()
    }

    /// Before this rank goes: what others have to hear. Not for long, if they do not listen.
    pub fn send_rest(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !self.control_channel.is_sent() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Everything fails, now and later.
    pub fn end(&mut self, text: &str) {
        if self.ended.is_some() {
            return;
        }
        self.member.abort(text);
        self.end_with(text.into());
    }

    /// Also what was agreed on and is not performed any more: the member has forgotten it already.
    fn end_with(&mut self, text: Arc<str>) {
        let error = EngineError::Failed(text.clone());
        // First, so that whoever hears of it and asks again is told at once.
        self.desk.end(&text);
        self.ended = Some(text);
        let tensors = self.entries.drain().map(|(_, entry)| entry.slot);
        let waiting: Vec<Arc<Slot>> = tensors.chain(self.calls.drain().map(|(_, slot)| slot)).collect();
        for slot in waiting {
            slot.settle(Err(error.clone()), |_| {});
        }
        let text = self.ended.as_deref().unwrap_or_default();
        self.observed.log(LogLevel::Debug, &format!("the engine has ended: {text}"));
        self.observed.stop();
        self.status.close();
    }

    fn on_ask(&mut self, ask: Ask) {
        let now = self.began.elapsed();
        let (slot, token) = match ask {
            Ask::Tensors { requests, places, grouped, slot, keeps } => {
                return self.on_tensors(requests, places, grouped, &slot, &keeps);
            }
            Ask::ShutDown => {
                self.member.shut_down();
                return;
            }
            Ask::Barrier { set, slot } => (slot, self.member.barrier(set, now)),
            Ask::Join { set, slot } => (slot, self.member.join(set, now)),
            Ask::RegisterSets { sets, slot } => (slot, self.member.register_sets(sets, now)),
            Ask::AddSet { ranks, slot } => (slot, self.member.add_set(ranks, now)),
            Ask::RemoveSet { set, slot } => (slot, self.member.remove_set(set, now)),
        };
        match token {
            Ok(token) => drop(self.calls.insert(token, slot)),
            Err(error) => slot.refuse(EngineError::of(error)),
        }
    }

    fn on_tensors(
        &mut self,
        mut requests: Vec<Request>,
        places: Vec<Place>,
        grouped: bool,
        slot: &Arc<Slot>,
        keeps: &Keeps,
    ) {
        let now = self.began.elapsed();
        self.observed.ask(&requests);
        if requests.len() == 1 {
            let request = requests.remove(0);
            match self.member.submit_one(request, now) {
                Err(error) => slot.refuse(EngineError::of(error)),
                Ok(token) => self.enter(token, places[0], slot, 0, keeps),
            }
            return;
        }
        match self.member.submit(requests, grouped, now) {
            Err(error) => slot.refuse(EngineError::of(error)),
            Ok(tokens) => {
                for (index, (token, place)) in tokens.into_iter().zip(places).enumerate() {
                    self.enter(token, place, slot, index, keeps);
                }
            }
        }
    }

    fn enter(&mut self, token: Token, place: Place, slot: &Arc<Slot>, index: usize, keeps: &Keeps) {
        self.entries.insert(token, Entry { place, slot: slot.clone(), index, keeps: keeps.clone() });
    }

    fn tell_coordinator(&mut self, now: Duration) -> bool {
        let mut said = false;
        self.frame.clear();
        for message in self.member.drain_outgoing() {
            said = true;
            match &mut self.coordinator {
                Some(coordinator) => coordinator.on_message(0, message, now),
                None => encode_to_coordinator(&message, &mut self.frame),
            }
        }
        if !self.frame.is_empty() {
            self.control_channel.send(0, &self.frame);
        }
        said
    }

    fn listen(&mut self, now: Duration) -> bool {
        let heard = &mut self.heard;
        let moved = self.control_channel.deliver(|rank, message| heard.push((rank, message.to_vec())));
        let mut nonsense = None;
        for (rank, message) in self.heard.drain(..) {
            let outcome = match &mut self.coordinator {
                Some(coordinator) => {
                    decode_to_coordinator(&message, |said| coordinator.on_message(rank as u32, said, now))
                        .map_err(|error| error.to_string())
                }
                None => hear_coordinator(&mut self.member, &message, &mut self.actions),
            };
            if let Err(error) = outcome {
                nonsense = Some(format!("rank {rank} sent what cannot be understood: {error}"));
            }
        }
        if let Some(text) = nonsense {
            self.end(&text);
        }
        moved
    }

    /// Lets the coordinator, if it is here, tell everybody what it has decided.
    fn coordinate(&mut self) {
        let Some(coordinator) = &mut self.coordinator else { return };
        self.observed.note_agreement(coordinator);
        if !coordinator.has_news() {
            return;
        }
        let (control_channel, frame, to_self) = (&mut self.control_channel, &mut self.frame, &mut self.to_self);
        coordinator.drain(|rank, messages| {
            if rank == 0 {
                to_self.extend_from_slice(messages);
                return;
            }
            frame.clear();
            messages.iter().for_each(|message| encode_to_member(message, frame));
            control_channel.send(rank as usize, frame);
        });
        self.observed.note_agreement(coordinator);
        self.observed.timeline.mark_cycle();
        let mut nonsense = None;
        for message in self.to_self.drain(..) {
            if let Err(error) = self.member.on_message(message, &mut self.actions) {
                nonsense = Some(error.to_string());
            }
        }
        if let Some(text) = nonsense {
            self.end(&text);
        }
    }

    fn on_action(&mut self, action: Action) {
        if self.ended.is_some() {
            return;
        }
        match action {
            Action::Perform { set, terms, tensors } => self.perform(set, terms, &tensors),
            Action::Fail { tokens, text } => self.fail(&tokens, &text),
            Action::Barrier { token } => self.settle_call(token, |_| {}),
            Action::Joined { token, last } => self.settle_call(token, |outcome| outcome.last_joined = Some(last)),
            Action::SetsAdded { token, sets } => {
                for set in sets.iter() {
                    let ranks: Vec<usize> = set.ranks.iter().map(|rank| *rank as usize).collect();
                    match self.world.subset(&ranks) {
                        Ok(mut communicator) => {
                            if let Some(communicator) = &mut communicator {
                                communicator.limit_silence(Some(self.silence_limit));
                            }
                            self.sets.insert(set.id, communicator);
                            self.desk.open(set.id, &set.ranks);
                        }
                        Err(error) => return self.end(&chain(&error)),
                    }
                }
                self.settle_call(token, |outcome| outcome.sets = sets.to_vec());
            }
            Action::SetRemoved { token, set, area } => {
                debug_assert_ne!(area, GLOBAL_AREA);
                self.sets.remove(&set);
                self.desk.close(set);
                self.settle_call(token, |_| {});
            }
            Action::SetRefused { token, refusal } => {
                if let Some(slot) = self.calls.remove(&token) {
                    slot.settle(Err(refusal.into()), |_| {});
                }
            }
            Action::Tune(tuning) => self.observed.on_tuning(tuning),
            Action::ShutDown { reason, text, .. } => {
                if let ShutdownReason::Lost { .. } | ShutdownReason::Stalled = reason {
                    self.observed.log_error(&text);
                }
                self.end_with(text);
            }
        }
    }

    fn settle_call(&mut self, token: Token, change: impl FnOnce(&mut crate::engine::handle::Outcome)) {
        if let Some(slot) = self.calls.remove(&token) {
            slot.settle(Ok(()), change);
        }
    }

    pub(super) fn fail(&mut self, tokens: &[Token], text: &str) {
        let error = EngineError::Failed(text.into());
        for token in tokens {
            if let Some(entry) = self.entries.remove(token) {
                entry.slot.settle(Err(error.clone()), |_| {});
            } else if let Some(slot) = self.calls.remove(token) {
                slot.settle(Err(error.clone()), |_| {});
            }
        }
    }
}

fn hear_coordinator(member: &mut Member, message: &[u8], actions: &mut Vec<Action>) -> Result<(), String> {
    let mut refused = None;
    decode_to_member(message, |said| {
        if let Err(error) = member.on_message(said, actions) {
            refused.get_or_insert(error);
        }
    })
    .map_err(|error| error.to_string())?;
    refused.map_or(Ok(()), |error| Err(error.to_string()))
}

/// An error with its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
