//! Process sets come and go by agreement of all ranks, members or not: each rank's wishes wait in its own line, and when every line
//! has one the first of each are compared. The coordinator enters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::core::Coordinator;
use super::message::{Area, SetId, SetMade, ToMember};
use super::text::Refusal;

#[derive(Debug)]
pub struct SetWishes {
    lines: Vec<VecDeque<(Wish, Duration)>>,
    next_area: Area,
    next_id: u32,
    /// Ids of removed sets, first in first out.
    free_ids: VecDeque<SetId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    /// Those given at init.
    Register(Vec<Vec<u32>>),
    Add(Vec<u32>),
    Remove(Area),
}

impl SetWishes {
    pub fn new(size: u32) -> SetWishes {
        let lines = (0..size).map(|_| VecDeque::new()).collect();
        SetWishes { lines, next_area: 1, next_id: 1, free_ids: VecDeque::new() }
    }

    /// What somebody has wished for and somebody not: since when, what, and who is missing.
    pub fn waiting(&self) -> Option<(Duration, String, Vec<u32>)> {
        let (wish, _) = self.lines.iter().find_map(|line| line.front())?;
        let since = self.lines.iter().filter_map(|line| line.front()).map(|(_, since)| *since).min()?;
        let what = match wish {
            Wish::Register(_) => "process sets of init".to_owned(),
            Wish::Add(ranks) => format!("add_process_set {ranks:?}"),
            Wish::Remove(_) => "remove_process_set".to_owned(),
        };
        let missing = (0..self.lines.len() as u32).filter(|rank| self.lines[*rank as usize].is_empty());
        Some((since, what, missing.collect()))
    }
}

impl Coordinator {
    pub(super) fn on_register(&mut self, from: u32, sets: Vec<Vec<u32>>, now: Duration) {
        let sets = sets.into_iter().map(sorted).collect();
        self.on_wish(from, Wish::Register(sets), now);
    }

    pub(super) fn on_add_set(&mut self, from: u32, ranks: Vec<u32>, now: Duration) {
        self.on_wish(from, Wish::Add(sorted(ranks)), now);
    }

    pub(super) fn on_remove_set(&mut self, from: u32, area: Area, now: Duration) {
        self.on_wish(from, Wish::Remove(area), now);
    }

    fn on_wish(&mut self, from: u32, wish: Wish, now: Duration) {
        self.wishes.lines[from as usize].push_back((wish, now));
        if self.wishes.lines.iter().any(VecDeque::is_empty) {
            return;
        }
        let wishes = self.wishes.lines.iter_mut().filter_map(VecDeque::pop_front).map(|(wish, _)| wish);
        let wishes: Vec<Wish> = wishes.collect();
        match self.fulfil(&wishes) {
            Ok(told) => self.queue.tell_all(told),
            Err(refusal) => self.queue.tell_all(ToMember::SetRefused(refusal)),
        }
    }

    fn fulfil(&mut self, wishes: &[Wish]) -> Result<ToMember, Refusal> {
        let (first, others) = wishes.split_first().expect("there is at least one rank");
        if let Some(other) = others.iter().find(|other| *other != first) {
            return Err(difference(first, other));
        }
        match first {
            Wish::Register(sets) => self.make(sets),
            Wish::Add(ranks) => self.make(std::slice::from_ref(ranks)),
            Wish::Remove(area) => {
                let id = if *area == super::message::GLOBAL_AREA { None } else { self.close(*area) };
                let id = id.ok_or(Refusal::Unknown)?;
                self.wishes.free_ids.push_back(id);
                Ok(ToMember::SetRemoved(*area))
            }
        }
    }

    /// All of them or none.
    fn make(&mut self, sets: &[Vec<u32>]) -> Result<ToMember, Refusal> {
        for (at, ranks) in sets.iter().enumerate() {
            if ranks.is_empty() {
                return Err(Refusal::Empty);
            }
            if let Some(twice) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Refusal::DuplicateRank(twice[0]));
            }
            if let Some(rank) = ranks.iter().find(|rank| **rank >= self.size()) {
                return Err(Refusal::InvalidRank(*rank));
            }
            let exists = self.tallies.iter().flatten().any(|tally| *tally.members == **ranks);
            if exists || sets[..at].contains(ranks) {
                return Err(Refusal::Exists(ranks.clone()));
            }
        }
        let made: Arc<[SetMade]> = sets.iter().map(|ranks| self.make_one(ranks)).collect();
        Ok(ToMember::SetsAdded(made))
    }

    fn make_one(&mut self, ranks: &[u32]) -> SetMade {
        let wishes = &mut self.wishes;
        let id = wishes.free_ids.pop_front().unwrap_or_else(|| {
            wishes.next_id += 1;
            SetId(wishes.next_id - 1)
        });
        let area = wishes.next_area;
        wishes.next_area += 1;
        self.open(id, area, ranks.into());
        SetMade { id, area, ranks: ranks.to_vec() }
    }
}

fn difference(one: &Wish, another: &Wish) -> Refusal {
    let of_two = |one: &[u32], another: &[u32]| {
        if one.len() == another.len() { Refusal::MismatchedValues } else { Refusal::MismatchedSize }
    };
    match (one, another) {
        (Wish::Register(one), Wish::Register(another)) if one.len() != another.len() => Refusal::MismatchedNumber,
        (Wish::Register(one), Wish::Register(another)) => {
            let differing = one.iter().zip(another).find(|(one, another)| one != another);
            differing.map_or(Refusal::MismatchedValues, |(one, another)| of_two(one, another))
        }
        (Wish::Add(one), Wish::Add(another)) => of_two(one, another),
        (Wish::Remove(_), Wish::Remove(_)) => Refusal::MismatchedRemoval,
        _ => Refusal::MismatchedAction,
    }
}

fn sorted(mut ranks: Vec<u32>) -> Vec<u32> {
    ranks.sort_unstable();
    ranks
}
