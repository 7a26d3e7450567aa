//! Bounded table of the connections of one listener, in total and per address, loopback included. At a limit, a waiting
//! connection is evicted for a new one: first the oldest without a complete request (an unfinished TLS handshake counts
//! as such), then the longest idle one. Connections with a request in progress and upgraded ones (WebSocket) are never
//! evicted; upgraded ones count for the total only.
//!
//! A request costs two atomic operations. The lock is taken when a connection opens, sends its first request and
//! closes.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use tokio::sync::Notify;

/// Evicted connections whose sockets are not closed yet; beyond this, accepting waits for them.
const MAX_CLOSING: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    pub total: usize,
    /// Limit per address of another machine.
    pub per_address: usize,
    /// Limit per loopback address: agents, mounts and browsers of this machine.
    pub per_loopback_address: usize,
}

impl ConnectionLimits {
    fn limit_for(&self, address: IpAddr) -> usize {
        if address.is_loopback() { self.per_loopback_address } else { self.per_address }
    }
}

/// Table of connections. Clones share it.
#[derive(Clone)]
pub struct ConnectionTable(Arc<Shared>);

struct Shared {
    limits: ConnectionLimits,
    start: Instant,
    state: Mutex<State>,
    /// Whether an accept loop waits for a connection to close or to become idle.
    is_awaited: AtomicBool,
    changed: Notify,
}

#[derive(Default)]
struct State {
    next_id: u64,
    open: HashMap<u64, Arc<Slot>>,
    /// Ids in order of acceptance.
    awaiting_request: BTreeSet<u64>,
    addresses: HashMap<IpAddr, AddressEntry>,
    n_closing: usize,
    /// Number of connections evicted so far.
    n_evicted: u64,
}

#[derive(Default)]
struct AddressEntry {
    n_open: usize,
    awaiting_request: BTreeSet<u64>,
}

struct Slot {
    address: IpAddr,
    phase: AtomicU8,
    /// Start of the idle time, in milliseconds since the table was created.
    idle_since: AtomicU64,
    closed: Notify,
}

/// No complete request yet.
const AWAITING_FIRST_REQUEST: u8 = 0;
/// Between two requests.
const IDLE: u8 = 1;
const IN_REQUEST: u8 = 2;
const UPGRADED: u8 = 3;
const EVICTED: u8 = 4;

/// Reason why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitError {
    /// The address is at its limit, and all its connections have requests in progress.
    AddressFull,
    /// All connections have requests in progress.
    TableFull,
}

/// One connection; dropped when its socket closes.
pub struct Connection {
    table: ConnectionTable,
    id: u64,
    slot: Arc<Slot>,
}

impl ConnectionTable {
    pub fn new(limits: ConnectionLimits) -> Self {
        let state = Mutex::new(State { next_id: 1, ..State::default() });
        let shared =
            Shared { limits, start: Instant::now(), state, is_awaited: AtomicBool::new(false), changed: Notify::new() };
        ConnectionTable(Arc::new(shared))
    }

    /// Admits a connection; at a limit, evicts a waiting one.
    pub fn admit(&self, address: IpAddr) -> Result<Connection, AdmitError> {
        let address = address.to_canonical();
        let mut state = self.state();
        let n_of_address = state.addresses.get(&address).map_or(0, |entry| entry.n_open);
        if n_of_address >= self.0.limits.limit_for(address) {
            state.evict_one(Some(address)).ok_or(AdmitError::AddressFull)?;
        } else if state.open.len() >= self.0.limits.total {
            state.evict_one(None).ok_or(AdmitError::TableFull)?;
        }
        let id = state.next_id;
        state.next_id += 1;
        let slot = Slot {
            address,
            phase: AtomicU8::new(AWAITING_FIRST_REQUEST),
            idle_since: AtomicU64::new(0),
            closed: Notify::new(),
        };
        let slot = Arc::new(slot);
        state.open.insert(id, slot.clone());
        state.awaiting_request.insert(id);
        let entry = state.addresses.entry(address).or_default();
        entry.n_open += 1;
        entry.awaiting_request.insert(id);
        Ok(Connection { table: self.clone(), id, slot })
    }

    /// Like [`Self::admit`]; while every connection has a request in progress, waits for one without.
    pub async fn admit_when_possible(&self, address: IpAddr) -> Result<Connection, AdmitError> {
        loop {
            // Registered before the check, so that no change is missed.
            let changed = self.0.changed.notified();
            self.0.is_awaited.store(true, Ordering::SeqCst);
            let n_closing = self.state().n_closing;
            if n_closing < MAX_CLOSING {
                match self.admit(address) {
                    Err(AdmitError::TableFull) => {}
                    admitted => {
                        self.0.is_awaited.store(false, Ordering::SeqCst);
                        return admitted;
                    }
                }
            }
            changed.await;
        }
    }

    #[cfg(test)]
    fn n_open(&self) -> usize {
        self.state().open.len()
    }

    #[cfg(test)]
    fn n_evicted(&self) -> u64 {
        self.state().n_evicted
    }

    fn wake_waiting(&self) {
        if self.0.is_awaited.load(Ordering::SeqCst) {
            self.0.changed.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic while the table of connections is locked")
    }
}

impl State {
    /// Evicts a waiting connection of one address, or of all.
    fn evict_one(&mut self, address: Option<IpAddr>) -> Option<()> {
        let (id, slot) = self.take_victim(address)?;
        self.remove(id, &slot);
        self.n_closing += 1;
        self.n_evicted += 1;
        slot.closed.notify_one();
        Some(())
    }

    /// Marks a waiting connection as evicted. One that has just sent a request is passed over.
    fn take_victim(&self, address: Option<IpAddr>) -> Option<(u64, Arc<Slot>)> {
        let awaiting_request = match address {
            Some(address) => &self.addresses.get(&address)?.awaiting_request,
            None => &self.awaiting_request,
        };
        for id in awaiting_request {
            let slot = self.open.get(id)?;
            if slot.enter(AWAITING_FIRST_REQUEST, EVICTED) {
                return Some((*id, slot.clone()));
            }
        }
        let is_of_address = |slot: &Slot| address.is_none_or(|address| slot.address == address);
        loop {
            let idle = self.open.iter().filter(|(_, slot)| is_of_address(slot) && slot.is_in(IDLE));
            let (id, slot) = idle.min_by_key(|(id, slot)| (slot.idle_since.load(Ordering::Relaxed), **id))?;
            if slot.enter(IDLE, EVICTED) {
                return Some((*id, slot.clone()));
            }
        }
    }

    fn remove(&mut self, id: u64, slot: &Slot) {
        self.open.remove(&id);
        self.awaiting_request.remove(&id);
        if !slot.is_in(UPGRADED) {
            self.leave_address(id, slot.address);
        }
    }

    fn leave_address(&mut self, id: u64, address: IpAddr) {
        if let Some(entry) = self.addresses.get_mut(&address) {
            entry.n_open -= 1;
            entry.awaiting_request.remove(&id);
            if entry.n_open == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

impl Slot {
    fn is_in(&self, phase: u8) -> bool {
        self.phase.load(Ordering::SeqCst) == phase
    }

    fn enter(&self, from: u8, to: u8) -> bool {
        self.phase.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

impl Connection {
    /// Call when a complete request has arrived. Returns `false` if the connection was evicted: the request must not be
    /// performed.
    pub fn begin_request(&self) -> bool {
        if self.slot.enter(IDLE, IN_REQUEST) {
            return true;
        }
        if self.slot.enter(AWAITING_FIRST_REQUEST, IN_REQUEST) {
            let mut state = self.table.state();
            state.awaiting_request.remove(&self.id);
            if let Some(entry) = state.addresses.get_mut(&self.slot.address) {
                entry.awaiting_request.remove(&self.id);
            }
            return true;
        }
        !self.is_evicted()
    }

    /// Call when the response was sent or abandoned.
    pub fn end_request(&self) {
        let now = self.table.0.start.elapsed().as_millis() as u64;
        self.slot.idle_since.store(now, Ordering::Relaxed);
        if self.slot.enter(IN_REQUEST, IDLE) {
            self.table.wake_waiting();
        }
    }

    /// Marks the connection as upgraded: it is not evicted any more. Only authenticated callers may upgrade, so it no
    /// longer counts for its address: all agents of a site may share one.
    pub fn upgrade(&self) {
        let mut state = self.table.state();
        if self.slot.enter(IN_REQUEST, UPGRADED) {
            state.leave_address(self.id, self.slot.address);
        }
    }

    pub fn is_evicted(&self) -> bool {
        self.slot.is_in(EVICTED)
    }

    /// Waits until the connection is evicted and must close.
    pub async fn evicted(&self) {
        self.slot.closed.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        {
            let mut state = self.table.state();
            match self.is_evicted() {
                true => state.n_closing -= 1,
                false => state.remove(self.id, &self.slot),
            }
        }
        self.table.wake_waiting();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(total: usize, per_address: usize, per_loopback_address: usize) -> ConnectionTable {
        ConnectionTable::new(ConnectionLimits { total, per_address, per_loopback_address })
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_oldest_connection_without_a_request_is_evicted_on_loopback_too() {
        let table = table(100, 2, 3);
        let near = address("127.0.0.1");
        let held: Vec<Connection> = (0..3).map(|_| table.admit(near).expect("below the limit")).collect();
        assert!(held[0].begin_request());
        held[0].end_request();
        let fourth = table.admit(near).expect("one gives way");
        assert_eq!(held.iter().map(Connection::is_evicted).collect::<Vec<_>>(), [false, true, false]);
        assert!(!held[1].begin_request(), "an evicted connection performs nothing");
        let _fifth = table.admit(near).expect("one gives way");
        assert!(held[2].is_evicted() && !fourth.is_evicted() && !held[0].is_evicted());
        assert_eq!((table.n_open(), table.n_evicted()), (3, 2));
        drop(held);
        assert_eq!(table.n_open(), 2);
        assert!(table.admit(address("::1")).is_ok(), "another address has limits of its own");
    }

    #[test]
    fn a_connection_whose_first_request_begins_is_passed_over() {
        let table = table(100, 3, 3);
        let far = address("192.0.2.7");
        let held: Vec<Connection> = (0..3).map(|_| table.admit(far).expect("below the limit")).collect();
        // The first half of `begin_request`: the other half waits for the lock that `admit` has.
        assert!(held[0].slot.enter(AWAITING_FIRST_REQUEST, IN_REQUEST));
        let _fourth = table.admit(far).expect("another one gives way");
        assert_eq!(held.iter().map(Connection::is_evicted).collect::<Vec<_>>(), [false, true, false]);
    }

    #[test]
    fn requests_in_progress_and_upgraded_connections_are_not_evicted() {
        let table = table(3, 3, 3);
        let far = address("192.0.2.7");
        let held: Vec<Connection> = (0..3).map(|_| table.admit(far).expect("below the limit")).collect();
        assert!(held.iter().all(Connection::begin_request));
        assert_eq!(table.admit(far).err(), Some(AdmitError::AddressFull));
        held[2].upgrade();
        assert_eq!(table.admit(far).err(), Some(AdmitError::TableFull), "it no longer counts for its address");
        assert_eq!(table.admit(address("192.0.2.8")).err(), Some(AdmitError::TableFull));
        held[1].end_request();
        held[2].end_request();
        let other = table.admit(address("192.0.2.8")).expect("the idle one gives way");
        assert_eq!(held.iter().map(Connection::is_evicted).collect::<Vec<_>>(), [false, true, false]);
        drop((held, other));
        let state = table.state();
        assert!(state.open.is_empty() && state.addresses.is_empty() && state.awaiting_request.is_empty());
        assert_eq!(state.n_closing, 0);
    }

    #[test]
    fn mapped_addresses_are_one_address() {
        let table = table(10, 1, 1);
        let first = table.admit(address("192.0.2.7")).expect("below the limit");
        assert!(first.begin_request());
        assert_eq!(table.admit(address("::ffff:192.0.2.7")).err(), Some(AdmitError::AddressFull));
        assert!(table.admit(address("192.0.2.8")).is_ok());
    }

    #[tokio::test]
    async fn a_full_table_waits_for_a_request_to_end() {
        let table = table(1, 1, 1);
        let busy = table.admit(address("192.0.2.7")).expect("below the limit");
        assert!(busy.begin_request());
        let waiting = tokio::spawn({
            let table = table.clone();
            async move { table.admit_when_possible(address("192.0.2.8")).await.is_ok() }
        });
        tokio::task::yield_now().await;
        busy.end_request();
        assert!(waiting.await.expect("it ends"));
        assert!(busy.is_evicted());
    }
}
