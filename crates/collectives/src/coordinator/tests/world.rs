//! A job without an engine: members, a coordinator, and the streams between them. Watches what must always hold: every token
//! ends exactly once, and nothing is performed that its members did not ask for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::coordinator::*;
use crate::{Dtype, ReduceOp};

pub struct World {
    pub members: Vec<Member>,
    pub coordinator: Coordinator,
    up: Vec<VecDeque<Vec<u8>>>,
    down: Vec<VecDeque<Vec<u8>>>,
    pub now: Duration,
    /// Per rank, everything it was told to do.
    pub done: Vec<Vec<Action>>,
    /// Per rank, how each token ended.
    pub ends: Vec<BTreeMap<Token, End>>,
    pub bytes_up: usize,
    pub bytes_down: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Performed,
    Failed(String),
    Joined(u32),
    SetsAdded(Vec<SetMade>),
    SetRemoved,
    SetRefused(String),
}

pub fn config(size: u32) -> Config {
    Config {
        hosts: (0..size).map(|rank| format!("host-{rank}")).collect(),
        fusion_threshold: 1 << 20,
        local_size: size,
        homogeneous: true,
        groups_apart: false,
        cache_capacity: 1024,
        stall: Some(StallLimits { warn_after: Duration::from_secs(10), shut_down_after: None }),
    }
}

/// An allreduce of four floats.
pub fn request(name: &str) -> Request {
    Request {
        set: SetId::GLOBAL,
        kind: Kind::Allreduce,
        name: name.into(),
        dtype: Dtype::F32,
        shape: vec![4],
        root: 0,
        device: -1,
        prescale: 1.0,
        postscale: 1.0,
        op: ReduceOp::Sum,
        splits: Vec::new(),
    }
}

pub fn of_kind(kind: Kind, name: &str) -> Request {
    Request { kind, ..request(name) }
}

impl World {
    pub fn new(size: u32) -> World {
        World::with(config(size))
    }

    pub fn with(config: Config) -> World {
        let size = config.hosts.len() as u32;
        let member = |rank| Member::new(MemberConfig { rank, size, dynamic_sets: true });
        World {
            members: (0..size).map(member).collect(),
            coordinator: Coordinator::new(config),
            up: vec![VecDeque::new(); size as usize],
            down: vec![VecDeque::new(); size as usize],
            now: Duration::ZERO,
            done: vec![Vec::new(); size as usize],
            ends: vec![BTreeMap::new(); size as usize],
            bytes_up: 0,
            bytes_down: 0,
        }
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    pub fn submit(&mut self, rank: usize, request: Request) -> Token {
        self.members[rank].submit_one(request, self.now).expect("an honest request")
    }

    pub fn submit_on<const N: usize>(&mut self, ranks: [usize; N], request: Request) -> [Token; N] {
        ranks.map(|rank| self.submit(rank, request.clone()))
    }

    pub fn submit_group(&mut self, rank: usize, requests: Vec<Request>) -> Vec<Token> {
        self.members[rank].submit(requests, true, self.now).expect("an honest group")
    }

    /// Puts what the rank has to say on its stream, as one frame.
    pub fn flush(&mut self, rank: usize) {
        let mut frame = Vec::new();
        self.members[rank].drain_outgoing().for_each(|message| encode_to_coordinator(&message, &mut frame));
        if !frame.is_empty() {
            self.bytes_up += frame.len();
            self.up[rank].push_back(frame);
        }
    }

    /// One frame from a rank reaches the coordinator.
    pub fn deliver_up(&mut self, rank: usize) -> bool {
        let Some(frame) = self.up[rank].pop_front() else { return false };
        let each = |message| self.coordinator.on_message(rank as u32, message, self.now);
        decode_to_coordinator(&frame, each).expect("what was written can be read");
        true
    }

    pub fn drain(&mut self) {
        let (down, bytes) = (&mut self.down, &mut self.bytes_down);
        self.coordinator.drain(|rank, messages| {
            let mut frame = Vec::new();
            messages.iter().for_each(|message| encode_to_member(message, &mut frame));
            *bytes += frame.len();
            down[rank as usize].push_back(frame);
        });
    }

    /// One frame from the coordinator reaches a rank.
    pub fn deliver_down(&mut self, rank: usize) -> bool {
        let Some(frame) = self.down[rank].pop_front() else { return false };
        let mut actions = Vec::new();
        let member = &mut self.members[rank];
        let each = |message| member.on_message(message, &mut actions).expect("an honest coordinator");
        decode_to_member(&frame, each).expect("what was written can be read");
        actions.iter().for_each(|action| self.note(rank, action));
        self.done[rank].extend(actions);
        true
    }

    /// Delivers everything, rank by rank, until nothing is under way.
    pub fn run(&mut self) {
        loop {
            let mut moved = false;
            for rank in 0..self.size() {
                self.flush(rank);
                while self.deliver_up(rank) {
                    moved = true;
                }
            }
            self.drain();
            for rank in 0..self.size() {
                while self.deliver_down(rank) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    pub fn end(&self, rank: usize, token: Token) -> Option<&End> {
        self.ends[rank].get(&token)
    }

    /// The names of each operation that a rank performed, in order, since the last time.
    pub fn take_performed(&mut self, rank: usize) -> Vec<Vec<String>> {
        let performed = std::mem::take(&mut self.done[rank]).into_iter().filter_map(|action| match action {
            Action::Perform { tensors, .. } => {
                Some(tensors.iter().map(|tensor| tensor.agreed.name.to_string()).collect())
            }
            _ => None,
        });
        performed.collect()
    }

    fn note(&mut self, rank: usize, action: &Action) {
        let failed = |text: &str| End::Failed(text.to_owned());
        let ended: Vec<(Token, End)> = match action {
            Action::Perform { tensors, .. } => {
                tensors.iter().filter_map(|tensor| Some((tensor.token?, End::Performed))).collect()
            }
            Action::Fail { tokens, text } | Action::ShutDown { tokens, text, .. } => {
                tokens.iter().map(|token| (*token, failed(text))).collect()
            }
            Action::Barrier { token } => vec![(*token, End::Performed)],
            Action::Joined { token, last } => vec![(*token, End::Joined(*last))],
            Action::SetsAdded { token, sets } => vec![(*token, End::SetsAdded(sets.to_vec()))],
            Action::SetRemoved { token, .. } => vec![(*token, End::SetRemoved)],
            Action::SetRefused { token, refusal } => vec![(*token, End::SetRefused(refusal.to_string()))],
            Action::Tune(_) => Vec::new(),
        };
        for (token, end) in ended {
            let before = self.ends[rank].insert(token, end);
            assert_eq!(before, None, "token {token} of rank {rank} ends twice");
        }
    }
}
