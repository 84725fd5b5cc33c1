//! A simulated disk: the view of a program, and the state after a power cut. Pure: operations go
//! in, the state comes out. A sync of a file makes its bytes durable, a sync of its folder makes
//! its name durable. A seed decides which other changes survive a cut. Knows neither the kernel nor
//! a real disk.

use std::collections::{BTreeMap, BTreeSet};

use crate::random::Random;

/// The number of a file or a folder; the root is [`ROOT`].
pub(crate) type Ino = u64;
pub(crate) const ROOT: Ino = 1;

/// The unit of atomic writes in bytes. A larger write can be torn between two units.
const SECTOR: u64 = 512;

/// An error with the number of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Refusal {
    NotFound = 2,
    /// The power is out.
    Out = 5,
    Exists = 17,
    NotAFolder = 20,
    IsAFolder = 21,
    Invalid = 22,
    NotEmpty = 39,
}

/// The attributes of a file or a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) is_folder: bool,
    pub(crate) length: u64,
    pub(crate) mode: u32,
    pub(crate) links: u32,
}

type Key = (Ino, String);
/// Names that change together. A rename removes one and sets another.
type NameChange = Vec<(Key, Option<Ino>)>;
type Names = BTreeMap<Key, Ino>;

/// A change of a file's bytes that no sync has covered.
#[derive(Clone, Debug)]
enum ByteChange {
    Write { at: u64, bytes: Vec<u8> },
    Length(u64),
}

/// A file or a folder. The names in a folder are stored in the disk.
#[derive(Clone, Debug, Default)]
struct Node {
    is_folder: bool,
    mode: u32,
    durable_mode: u32,
    bytes: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<ByteChange>,
}

/// The fate of unsynced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    Nothing,
    Everything,
    /// Name changes survive, byte changes do not: a file renamed into place is empty.
    NamesOnly,
    /// Byte changes survive, name changes do not: a new file is gone.
    BytesOnly,
    /// Each change by chance, sector by sector and in any order.
    Some,
}

impl Survival {
    #[cfg(test)]
    pub(crate) const ALL: [Self; 5] =
        [Self::Nothing, Self::Everything, Self::NamesOnly, Self::BytesOnly, Self::Some];

    /// Draws a fate. The harsh ones are more frequent.
    pub(crate) fn drawn(random: &mut Random) -> Self {
        match random.below(10) {
            0..=3 => Self::Nothing,
            4..=6 => Self::Some,
            7 => Self::NamesOnly,
            8 => Self::BytesOnly,
            _ => Self::Everything,
        }
    }
}

/// The order in which names become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// Only a sync of a folder makes its names durable, and two folders are independent. This is
    /// all that POSIX guarantees.
    #[default]
    Strict,
    /// One journal contains all names, and every sync commits it, as in ext4.
    Journalled,
}

/// A simulated disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    order: Order,
    nodes: BTreeMap<Ino, Node>,
    names: Names,
    durable_names: Names,
    pending_names: Vec<NameChange>,
    next: Ino,
    /// The number of changes and syncs since the last cut.
    operations: u64,
    /// The operation at which the power goes.
    cut_at: Option<u64>,
    is_out: bool,
}

type Done<T> = Result<T, Refusal>;

impl Disk {
    /// Returns an empty disk.
    pub(crate) fn new(order: Order) -> Self {
        let root = Node { is_folder: true, mode: 0o755, durable_mode: 0o755, ..Node::default() };
        Self {
            order,
            nodes: [(ROOT, root)].into(),
            names: Names::new(),
            durable_names: Names::new(),
            pending_names: Vec::new(),
            next: ROOT + 1,
            operations: 0,
            cut_at: None,
            is_out: false,
        }
    }

    /// Schedules a power cut before the `nth` change or sync from now.
    pub(crate) fn cut_at(&mut self, nth: Option<u64>) {
        self.operations = 0;
        self.cut_at = nth;
    }

    pub(crate) fn is_out(&self) -> bool {
        self.is_out
    }

    /// Cuts the power: every operation fails until [`restart`](Self::restart).
    pub(crate) fn cut(&mut self) {
        self.is_out = true;
    }

    fn count(&mut self) -> Done<()> {
        if !self.is_out {
            self.operations += 1;
            self.is_out = self.cut_at.is_some_and(|at| self.operations >= at);
        }
        if self.is_out { Err(Refusal::Out) } else { Ok(()) }
    }

    fn node(&self, ino: Ino) -> Done<&Node> {
        self.nodes.get(&ino).ok_or(Refusal::NotFound)
    }

    fn file(&mut self, ino: Ino) -> Done<&mut Node> {
        let node = self.nodes.get_mut(&ino).ok_or(Refusal::NotFound)?;
        if node.is_folder { Err(Refusal::IsAFolder) } else { Ok(node) }
    }

    fn require_folder(&self, ino: Ino) -> Done<()> {
        if self.node(ino)?.is_folder { Ok(()) } else { Err(Refusal::NotAFolder) }
    }

    pub(crate) fn look_up(&self, folder: Ino, name: &str) -> Done<Ino> {
        self.require_folder(folder)?;
        self.names.get(&(folder, name.to_owned())).copied().ok_or(Refusal::NotFound)
    }

    pub(crate) fn status(&self, ino: Ino) -> Done<Status> {
        let node = self.node(ino)?;
        let links = self.names.values().filter(|named| **named == ino).count();
        let links = if node.is_folder { 2 } else { u32::try_from(links).unwrap_or(u32::MAX) };
        Ok(Status {
            is_folder: node.is_folder,
            length: node.bytes.len() as u64,
            mode: node.mode,
            links,
        })
    }

    /// Returns the names of a folder, in order.
    pub(crate) fn list(&self, folder: Ino) -> Done<Vec<(String, Ino, bool)>> {
        self.require_folder(folder)?;
        let below =
            self.names.range((folder, String::new())..).take_while(|((of, _), _)| *of == folder);
        Ok(below.map(|((_, name), ino)| (name.clone(), *ino, self.nodes[ino].is_folder)).collect())
    }

    pub(crate) fn read(&self, ino: Ino, at: u64, length: usize) -> Done<&[u8]> {
        let node = self.node(ino)?;
        if node.is_folder {
            return Err(Refusal::IsAFolder);
        }
        let from = usize::try_from(at).unwrap_or(usize::MAX).min(node.bytes.len());
        Ok(&node.bytes[from..from.saturating_add(length).min(node.bytes.len())])
    }

    /// Creates an empty file or folder.
    pub(crate) fn make(
        &mut self,
        folder: Ino,
        name: &str,
        is_folder: bool,
        mode: u32,
    ) -> Done<Ino> {
        self.require_folder(folder)?;
        if self.look_up(folder, name).is_ok() {
            return Err(Refusal::Exists);
        }
        self.count()?;
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, Node { is_folder, mode, durable_mode: mode, ..Node::default() });
        self.change_names(vec![((folder, name.to_owned()), Some(ino))]);
        Ok(ino)
    }

    /// Gives a file a second name.
    pub(crate) fn link(&mut self, ino: Ino, folder: Ino, name: &str) -> Done<()> {
        self.file(ino)?;
        self.require_folder(folder)?;
        if self.look_up(folder, name).is_ok() {
            return Err(Refusal::Exists);
        }
        self.count()?;
        self.change_names(vec![((folder, name.to_owned()), Some(ino))]);
        Ok(())
    }

    /// Removes the name of a file or of an empty folder.
    pub(crate) fn remove(&mut self, folder: Ino, name: &str, is_folder: bool) -> Done<()> {
        let ino = self.look_up(folder, name)?;
        match (self.node(ino)?.is_folder, is_folder) {
            (true, false) => return Err(Refusal::IsAFolder),
            (false, true) => return Err(Refusal::NotAFolder),
            (true, true) if !self.list(ino)?.is_empty() => return Err(Refusal::NotEmpty),
            _ => {}
        }
        self.count()?;
        self.change_names(vec![((folder, name.to_owned()), None)]);
        Ok(())
    }

    /// Renames, and replaces an existing target unless `keeps` is set.
    pub(crate) fn rename(&mut self, from: (Ino, &str), to: (Ino, &str), keeps: bool) -> Done<()> {
        let ino = self.look_up(from.0, from.1)?;
        if let Ok(there) = self.look_up(to.0, to.1) {
            let (moved, there_is_folder) = (self.node(ino)?.is_folder, self.node(there)?.is_folder);
            match (moved, there_is_folder) {
                _ if keeps => return Err(Refusal::Exists),
                _ if there == ino => return Ok(()),
                (true, false) => return Err(Refusal::NotAFolder),
                (false, true) => return Err(Refusal::IsAFolder),
                (true, true) if !self.list(there)?.is_empty() => return Err(Refusal::NotEmpty),
                _ => {}
            }
        }
        self.count()?;
        let key = |(folder, name): (Ino, &str)| (folder, name.to_owned());
        self.change_names(vec![(key(from), None), (key(to), Some(ino))]);
        Ok(())
    }

    pub(crate) fn write(&mut self, ino: Ino, at: u64, bytes: &[u8]) -> Done<()> {
        self.file(ino)?;
        self.count()?;
        let change = ByteChange::Write { at, bytes: bytes.to_vec() };
        let node = self.file(ino)?;
        change.apply(&mut node.bytes);
        node.pending.push(change);
        Ok(())
    }

    pub(crate) fn set_length(&mut self, ino: Ino, length: u64) -> Done<()> {
        if self.file(ino)?.bytes.len() as u64 == length {
            return Ok(());
        }
        self.count()?;
        let node = self.file(ino)?;
        ByteChange::Length(length).apply(&mut node.bytes);
        node.pending.push(ByteChange::Length(length));
        Ok(())
    }

    pub(crate) fn set_mode(&mut self, ino: Ino, mode: u32) -> Done<()> {
        self.node(ino)?;
        self.count()?;
        let node = self.nodes.get_mut(&ino).ok_or(Refusal::NotFound)?;
        node.mode = mode;
        Ok(())
    }

    /// Makes the bytes of a file durable. With `data_only`, makes nothing else of it durable.
    pub(crate) fn sync(&mut self, ino: Ino, data_only: bool) -> Done<()> {
        self.file(ino)?;
        self.count()?;
        if self.order == Order::Journalled {
            self.sync_all_names();
        }
        let node = self.file(ino)?;
        for change in std::mem::take(&mut node.pending) {
            change.apply(&mut node.durable);
        }
        if !data_only {
            node.durable_mode = node.mode;
        }
        Ok(())
    }

    /// Makes the names of a folder durable.
    pub(crate) fn sync_folder(&mut self, folder: Ino) -> Done<()> {
        self.require_folder(folder)?;
        self.count()?;
        if self.order == Order::Journalled {
            self.sync_all_names();
            return Ok(());
        }
        // A change includes the earlier ones of its names, so that a file is never replaced by an
        // older one.
        let mut wanted: BTreeSet<Key> = BTreeSet::new();
        let mut taken = vec![false; self.pending_names.len()];
        for (index, change) in self.pending_names.iter().enumerate().rev() {
            if change.iter().any(|(key, _)| key.0 == folder || wanted.contains(key)) {
                wanted.extend(change.iter().map(|(key, _)| key.clone()));
                taken[index] = true;
            }
        }
        let mut taken = taken.into_iter();
        let (done, left) = std::mem::take(&mut self.pending_names)
            .into_iter()
            .partition::<Vec<_>, _>(|_| taken.next().unwrap_or(false));
        done.iter().for_each(|change| apply_names(&mut self.durable_names, change));
        self.pending_names = left;
        let node = self.nodes.get_mut(&folder).ok_or(Refusal::NotFound)?;
        node.durable_mode = node.mode;
        Ok(())
    }

    fn sync_all_names(&mut self) {
        for change in std::mem::take(&mut self.pending_names) {
            apply_names(&mut self.durable_names, &change);
        }
    }

    fn change_names(&mut self, change: NameChange) {
        apply_names(&mut self.names, &change);
        self.pending_names.push(change);
    }

    /// Turns the power on again. The state is the one that the cut left.
    pub(crate) fn restart(&mut self, survival: Survival, random: &mut Random) {
        let names_survive = matches!(survival, Survival::Everything | Survival::NamesOnly);
        let mut refused: BTreeSet<Key> = BTreeSet::new();
        for change in std::mem::take(&mut self.pending_names) {
            let by_chance = survival == Survival::Some && random.below(2) == 0;
            let follows = change.iter().any(|(key, _)| refused.contains(key));
            // A journal loses its end. Without a journal, changes that do not depend on a lost one
            // may survive.
            let is_cut_off = self.order == Order::Journalled && !refused.is_empty();
            if (names_survive || by_chance) && !follows && !is_cut_off {
                apply_names(&mut self.durable_names, &change);
            } else {
                refused.extend(change.into_iter().map(|(key, _)| key));
            }
        }
        self.names = self.durable_names.clone();
        let reached = self.reached();
        self.names.retain(|(folder, _), _| reached.contains(folder));
        self.durable_names = self.names.clone();
        self.nodes.retain(|ino, _| reached.contains(ino));
        for node in self.nodes.values_mut() {
            node.restart(survival, random);
        }
        (self.operations, self.cut_at, self.is_out) = (0, None, false);
    }

    /// Returns everything reachable from the root.
    fn reached(&self) -> BTreeSet<Ino> {
        let (mut reached, mut open) = (BTreeSet::from([ROOT]), vec![ROOT]);
        while let Some(folder) = open.pop() {
            let below = self
                .names
                .range((folder, String::new())..)
                .take_while(|((of, _), _)| *of == folder);
            open.extend(below.map(|(_, ino)| *ino).filter(|ino| reached.insert(*ino)));
        }
        reached
    }
}

impl Node {
    fn restart(&mut self, survival: Survival, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        match survival {
            Survival::Everything | Survival::BytesOnly => {
                pending.iter().for_each(|change| change.apply(&mut self.durable));
                self.durable_mode = self.mode;
            }
            Survival::Nothing | Survival::NamesOnly => {}
            Survival::Some => survive_some(&mut self.durable, pending, random),
        }
        self.bytes = self.durable.clone();
        self.mode = self.durable_mode;
    }
}

/// Applies each sector's writes up to a moment of its own. A lost length change also loses all
/// changes after it.
fn survive_some(durable: &mut Vec<u8>, pending: Vec<ByteChange>, random: &mut Random) {
    let mut stopped: BTreeSet<u64> = BTreeSet::new();
    for change in pending {
        match change {
            ByteChange::Length(length) if random.below(2) == 0 => {
                ByteChange::Length(length).apply(durable)
            }
            ByteChange::Length(_) => return,
            ByteChange::Write { at, bytes } => {
                let end = at + bytes.len() as u64;
                for sector in at / SECTOR..end.div_ceil(SECTOR) {
                    if stopped.contains(&sector) || random.below(2) == 0 {
                        stopped.insert(sector);
                        continue;
                    }
                    let (from, to) = ((sector * SECTOR).max(at), ((sector + 1) * SECTOR).min(end));
                    let piece = (from - at) as usize..(to - at) as usize;
                    ByteChange::Write { at: from, bytes: bytes[piece].to_vec() }.apply(durable);
                }
            }
        }
    }
}

fn apply_names(names: &mut Names, change: &NameChange) {
    for (key, ino) in change {
        match ino {
            Some(ino) => drop(names.insert(key.clone(), *ino)),
            None => drop(names.remove(key)),
        }
    }
}

impl ByteChange {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Length(length) => file.resize(usize::try_from(*length).unwrap_or(usize::MAX), 0),
            Self::Write { at, bytes } => {
                let from = usize::try_from(*at).unwrap_or(usize::MAX);
                let end = from.saturating_add(bytes.len());
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[from..end].copy_from_slice(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests;
