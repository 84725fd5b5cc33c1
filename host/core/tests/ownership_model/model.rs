//! Three hosts and one room in a store that they share.
//!
//! The run of the room performs effects one after the other and then ends. A request to the store
//! travels by itself: it arrives at any later time or never, and so does its answer. A pause of any
//! length is the absence of a host's actions. Hosts decide by the functions of `journal/ownership`.

use conclave_core::journal::ownership::{
    AfterUnknown, EFFECTS_WITHIN_MS, LeaseClock, OneHistory, RoomHead,
};
use conclave_core::types::ids::Millis;

use crate::explorer::Model;

const HOSTS: usize = 3;

/// The variant of the system: the product, or one with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The product.
    Sound,
    /// Readers fold records of any epoch.
    FoldWithoutEpoch,
    /// An effect is performed when its `side-effect-asked` is sent.
    EffectBeforeAnswer,
    /// The store compares neither epoch nor sequence number, and each host appends only while its
    /// lease is young. The clocks are perfect: no lease is over for the store while its owner
    /// believes in it.
    LeaseAsFence,
    /// A new owner performs an effect again whose end is unknown.
    EffectRepeated,
    /// An append whose outcome is unknown counts as stored.
    UnknownIsStored,
    /// An unknown outcome of taking the room is decided like that of an append.
    UnknownTakeIsAppend,
}

/// The store of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// It compares epoch and sequence number with each append.
    Fencing,
    /// It gives the room to one host at a time, but then appends what arrives, wherever the end is.
    /// A host that lost the room gets no answer. The others get theirs: without a comparison, a
    /// second attempt would be a second record.
    LetsLateRecordsIn,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ownership {
    pub(crate) variant: Variant,
    pub(crate) store: StoreKind,
    /// The number of effects of the run.
    pub(crate) effects: u8,
    /// The number of answers that may be lost or come too late.
    pub(crate) losses: u8,
    /// The number of times that the room may be taken.
    pub(crate) epochs: u64,
}

/// A record of the room, as far as the run depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entry {
    Owned,
    Asked(u8),
    Ended(u8),
    RunEnded,
}

/// A request to append an entry, and a record of the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Append {
    pub(crate) epoch: u64,
    pub(crate) seq: usize,
    pub(crate) entry: Entry,
    /// The number of the attempt; 0 in a record.
    attempt: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// Stored with this sequence number.
    Done(usize),
    Behind,
    Fenced,
}

/// The run, as a fold of the room's records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    next: u8,
    is_asked: bool,
    pub(crate) is_over: bool,
}

impl Run {
    /// Folds the next record. Returns false if it has no effect.
    fn take(&mut self, entry: Entry, effects: u8) -> bool {
        let before = *self;
        match entry {
            Entry::Owned => return true,
            _ if self.is_over => {}
            Entry::Asked(effect) => self.is_asked |= effect == self.next,
            Entry::Ended(effect) if self.is_asked && effect == self.next => {
                (self.is_asked, self.next) = (false, self.next + 1);
            }
            Entry::Ended(_) => {}
            Entry::RunEnded => self.is_over = !self.is_asked && self.next == effects,
        }
        *self != before
    }

    /// The record that the owner appends next; `None` if the run is over.
    fn next_entry(self, effects: u8) -> Option<Entry> {
        match self {
            Self { is_over: true, .. } => None,
            // After a take-over this is the end of an effect as `interrupted`.
            Self { is_asked: true, next, .. } => Some(Entry::Ended(next)),
            Self { next, .. } if next < effects => Some(Entry::Asked(next)),
            _ => Some(Entry::RunEnded),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The host does not run the room.
    #[default]
    Idle,
    /// It waits for the answer to this append, which may have arrived.
    Waiting(Append, Option<Answer>),
    /// It has no answer and reads the room.
    Unknown(Append),
    /// The next record can be sent.
    Ready,
    /// The effect's `side-effect-asked` is acknowledged.
    MayPerform(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct HostState {
    pub(crate) phase: Phase,
    epoch: u64,
    /// The sequence number of its next append.
    next: usize,
    /// The run as the host knows it.
    run: Run,
    /// Whether its lease is young by its own clock.
    is_young: bool,
    /// Requests under way to the store.
    sent: Vec<Append>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) records: Vec<Append>,
    pub(crate) hosts: [HostState; HOSTS],
    /// Whether the owner's lease is over by the store's clock.
    is_lease_over: bool,
    /// How often each effect was performed.
    pub(crate) performed: [u8; 2],
    /// The sequence numbers of the records that were acknowledged to their host.
    pub(crate) acknowledged: Vec<usize>,
    /// How often the end of the run was announced.
    pub(crate) announced: u8,
    losses: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// The host reads the room and asks to take it.
    Take(usize),
    /// The host sends its next record.
    Send(usize),
    /// The store handles the host's n-th request.
    Arrive(usize, usize),
    /// The host gets the answer.
    Receive(usize),
    /// The host gets no answer in time, or its connection is lost.
    GiveUpWaiting(usize),
    /// The host reads the room after an unknown outcome.
    Read(usize),
    /// The host performs an effect.
    Perform(usize),
    /// The host could not renew its lease for a while.
    Age(usize),
    Renew(usize),
    /// The owner's lease is over by the store's clock.
    Expire,
}

impl Model for Ownership {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State { is_lease_over: true, ..State::default() }
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_lease_fence = self.variant == Variant::LeaseAsFence;
        // The product is sound without any lease. So in its model a room can be taken at any time, and
        // no owner notices that its lease is old.
        let is_free = (!is_lease_fence || state.is_lease_over)
            && highest(&state.records) < self.epochs
            && !self.fold(&state.records).0.is_over;
        let is_unused = |host: &HostState| *host == HostState::default();
        let unused_host = state.hosts.iter().position(is_unused);
        for (host, own) in state.hosts.iter().enumerate() {
            // Hosts that have nothing under way are interchangeable, so only one of them moves.
            if is_unused(own) && unused_host != Some(host) {
                continue;
            }
            actions.extend((0..own.sent.len()).map(|n| Action::Arrive(host, n)));
            let is_paused = is_lease_fence && !may_start(own);
            match own.phase {
                Phase::Idle => actions.extend(is_free.then_some(Action::Take(host))),
                Phase::Ready => actions.extend((!is_paused).then_some(Action::Send(host))),
                Phase::Waiting(_, answer) => {
                    actions.extend(answer.map(|_| Action::Receive(host)));
                    let may_lose = state.losses < self.losses;
                    actions.extend(may_lose.then_some(Action::GiveUpWaiting(host)));
                }
                Phase::Unknown(_) => actions.push(Action::Read(host)),
                Phase::MayPerform(_) => {
                    actions.extend(may_start(own).then_some(Action::Perform(host)));
                }
            }
            let is_owner = own.epoch == highest(&state.records);
            actions.extend((is_lease_fence && own.is_young).then_some(Action::Age(host)));
            actions.extend(
                (own.epoch > 0 && !own.is_young && is_owner).then_some(Action::Renew(host)),
            );
        }
        let is_believed = |host: &HostState| host.is_young && host.epoch == highest(&state.records);
        if is_lease_fence && !state.is_lease_over && !state.hosts.iter().any(is_believed) {
            actions.push(Action::Expire);
        }
        actions
    }

    fn after(&self, state: &State, action: &Action) -> State {
        let mut state = state.clone();
        match *action {
            Action::Take(host) => {
                let epoch = highest(&state.records) + 1;
                let taking = Append::new(epoch, state.records.len(), Entry::Owned);
                send(&mut state.hosts[host], taking);
            }
            Action::Send(host) => self.send_next(&mut state, host),
            Action::Arrive(host, n) => self.arrive(&mut state, host, n),
            Action::Receive(host) => self.receive(&mut state, host),
            Action::GiveUpWaiting(host) => {
                state.losses += 1;
                self.give_up_waiting(&mut state.hosts[host]);
            }
            Action::Read(host) => self.read(&mut state, host),
            Action::Perform(host) => {
                let own = &mut state.hosts[host];
                if let Phase::MayPerform(effect) = own.phase {
                    own.phase = Phase::Ready;
                    state.performed[usize::from(effect)] += 1;
                }
            }
            Action::Age(host) => state.hosts[host].is_young = false,
            Action::Renew(host) => {
                state.hosts[host].is_young = true;
                state.is_lease_over = self.variant != Variant::LeaseAsFence;
            }
            Action::Expire => state.is_lease_over = true,
        }
        if self.compares() {
            forget_refused(&mut state);
        }
        state
    }

    fn violation(&self, state: &State) -> Option<String> {
        if let Some(effect) = state.performed.iter().position(|times| *times > 1) {
            return Some(format!("effect {effect} happened twice"));
        }
        if state.announced > 1 {
            return Some("the run ended twice".to_owned());
        }
        let (_, effective) = self.fold(&state.records);
        let record = state.acknowledged.iter().find(|seq| !effective.contains(seq))?;
        Some(format!("the acknowledged record {record} is lost"))
    }
}

impl Ownership {
    /// The run that a reader folds, and the sequence numbers of the records that have an effect.
    pub(crate) fn fold(&self, records: &[Append]) -> (Run, Vec<usize>) {
        let (mut run, mut history) = (Run::default(), OneHistory::default());
        let mut effective = Vec::new();
        for (seq, record) in records.iter().enumerate() {
            let counts = history.counts(record.epoch) || self.variant == Variant::FoldWithoutEpoch;
            if counts && run.take(record.entry, self.effects) {
                effective.push(seq);
            }
        }
        (run, effective)
    }

    /// Whether the store compares epoch and sequence number with each append.
    fn compares(&self) -> bool {
        self.store == StoreKind::Fencing && self.variant != Variant::LeaseAsFence
    }

    fn send_next(&self, state: &mut State, host: usize) {
        let own = &mut state.hosts[host];
        let Some(entry) = own.run.next_entry(self.effects) else {
            stop(own);
            return;
        };
        send(own, Append::new(own.epoch, own.next, entry));
        if let (Variant::EffectBeforeAnswer, Entry::Asked(effect)) = (self.variant, entry) {
            state.performed[usize::from(effect)] += 1;
        }
    }

    /// The store handles a request. The answer is lost if the host does not wait for it any more.
    fn arrive(&self, state: &mut State, host: usize, n: usize) {
        let append = state.hosts[host].sent.remove(n);
        let (epoch, end) = (highest(&state.records), state.records.len());
        let is_taking = append.entry == Entry::Owned;
        let is_owner = append.epoch == if is_taking { epoch + 1 } else { epoch };
        let compares = self.compares();
        let answer = match (is_owner, append.seq == end) {
            (false, _) if is_taking || compares => Answer::Fenced,
            (_, false) if is_taking || compares => Answer::Behind,
            _ => Answer::Done(end),
        };
        if answer == Answer::Done(end) {
            state.records.push(Append::new(append.epoch, end, append.entry));
            state.is_lease_over &= !(is_taking && self.variant == Variant::LeaseAsFence);
        }
        let own = &mut state.hosts[host];
        if own.phase != Phase::Waiting(append, None) {
            return;
        }
        if self.store == StoreKind::LetsLateRecordsIn && !is_owner {
            self.give_up_waiting(own);
        } else {
            own.phase = Phase::Waiting(append, Some(answer));
        }
    }

    fn receive(&self, state: &mut State, host: usize) {
        let Phase::Waiting(append, Some(answer)) = state.hosts[host].phase else { return };
        match answer {
            Answer::Done(seq) => self.stored(state, host, append, seq),
            Answer::Fenced => stop(&mut state.hosts[host]),
            // An earlier attempt may have been stored meanwhile.
            Answer::Behind => self.give_up_waiting(&mut state.hosts[host]),
        }
    }

    /// The host knows that its record was stored.
    fn stored(&self, state: &mut State, host: usize, append: Append, seq: usize) {
        state.acknowledged.push(seq);
        state.acknowledged.sort_unstable();
        state.acknowledged.dedup();
        let own = &mut state.hosts[host];
        (own.phase, own.next) = (Phase::Ready, seq + 1);
        match append.entry {
            Entry::Owned => {
                own.epoch = append.epoch;
                own.is_young = true;
                own.run = self.fold(&state.records[..=seq]).0;
                if self.variant == Variant::EffectRepeated && own.run.is_asked {
                    own.phase = Phase::MayPerform(own.run.next);
                }
                return;
            }
            Entry::Asked(effect) if self.variant != Variant::EffectBeforeAnswer => {
                own.phase = Phase::MayPerform(effect);
            }
            Entry::RunEnded => {
                stop(own);
                state.announced += 1;
                return;
            }
            Entry::Asked(_) | Entry::Ended(_) => {}
        }
        own.run.take(append.entry, self.effects);
    }

    fn give_up_waiting(&self, own: &mut HostState) {
        let Phase::Waiting(append, _) = own.phase else { return };
        own.phase = Phase::Unknown(append);
        if append.entry == Entry::Owned && self.variant != Variant::UnknownTakeIsAppend {
            stop(own);
        }
    }

    fn read(&self, state: &mut State, host: usize) {
        let Phase::Unknown(append) = state.hosts[host].phase else { return };
        let in_place = state.records.get(append.seq).map(|record| record.epoch);
        let head = RoomHead { epoch: highest(&state.records), in_place };
        match AfterUnknown::of(head, append.epoch) {
            _ if self.variant == Variant::UnknownIsStored => {
                self.stored(state, host, append, append.seq);
            }
            AfterUnknown::Stored => self.stored(state, host, append, append.seq),
            AfterUnknown::AppendAgain => {
                let attempt = append.attempt + 1;
                send(&mut state.hosts[host], Append { attempt, ..append });
            }
            AfterUnknown::Stop => stop(&mut state.hosts[host]),
        }
    }
}

impl Append {
    fn new(epoch: u64, seq: usize, entry: Entry) -> Self {
        Self { epoch, seq, entry, attempt: 0 }
    }
}

/// The host stops to run the room. Its requests may still arrive.
fn stop(own: &mut HostState) {
    *own = HostState { sent: std::mem::take(&mut own.sent), ..HostState::default() };
}

fn send(own: &mut HostState, append: Append) {
    own.sent.push(append);
    own.phase = Phase::Waiting(append, None);
}

/// Forgets requests that the store would refuse now and later, and whose answer reaches nobody:
/// states that differ only in them are the same.
fn forget_refused(state: &mut State) {
    let (epoch, end) = (highest(&state.records), state.records.len());
    for host in &mut state.hosts {
        let phase = host.phase;
        let is_awaited = |append: &Append| phase == Phase::Waiting(*append, None);
        host.sent.retain(|append| append.seq >= end && append.epoch >= epoch || is_awaited(append));
    }
}

fn highest(records: &[Append]) -> u64 {
    records.iter().map(|record| record.epoch).max().unwrap_or(0)
}

/// Whether the host may start an effect, by the time that its own clock shows.
fn may_start(own: &HostState) -> bool {
    let now = Millis(if own.is_young { 0 } else { EFFECTS_WITHIN_MS });
    LeaseClock::renewed_by_request_at(Millis(0)).may_start_effects(now)
}
