//! Requests and answers of FUSE 7.31, byte by byte, as defined in `linux/fuse.h`. Unknown requests
//! are refused, and the kernel works without them.

use crate::disk::{Disk, Ino, Refusal, Status};

const HEADER: usize = 40;
/// Cache validity in seconds. Long, because only the kernel writes to this disk.
const VALID: u64 = 3_600;
const NOT_KNOWN: i32 = 38;
/// `FOPEN_KEEP_CACHE`: cached data stays valid until it is written.
const KEEP_CACHE: u32 = 2;

mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const FSYNCDIR: u32 = 30;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const RENAME2: u32 = 45;
}

/// The header of every request.
pub(super) struct Header {
    pub(super) opcode: u32,
    pub(super) unique: u64,
    node: Ino,
}

/// The remaining bytes of a request, read from the front.
pub(super) struct Words<'a>(&'a [u8]);

pub(super) enum Answer {
    Refused(i32),
    Given(Vec<u8>),
}

/// Returns whether the request has no answer.
pub(super) fn is_silent(opcode: u32) -> bool {
    matches!(opcode, opcode::FORGET | opcode::INTERRUPT | opcode::BATCH_FORGET)
}

impl Header {
    pub(super) fn read(request: &[u8]) -> Option<(Self, Words<'_>)> {
        let (head, body) = request.split_at_checked(HEADER)?;
        let mut words = Words(head);
        words.u32();
        let (opcode, unique, node) = (words.u32(), words.u64(), words.u64());
        Some((Self { opcode, unique, node }, Words(body)))
    }
}

impl<'a> Words<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, left) = self.0.split_at(count.min(self.0.len()));
        self.0 = left;
        taken
    }

    fn u32(&mut self) -> u32 {
        self.bytes(4).try_into().map_or(0, u32::from_le_bytes)
    }

    fn u64(&mut self) -> u64 {
        self.bytes(8).try_into().map_or(0, u64::from_le_bytes)
    }

    /// Reads a name up to a NUL. The host's own names are UTF-8.
    fn name(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let name = String::from_utf8_lossy(self.bytes(end)).into_owned();
        self.bytes(1);
        name
    }
}

/// The bytes of an answer.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u16(mut self, number: u16) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }

    fn attributes(self, ino: Ino, status: &Status) -> Self {
        let kind = if status.is_folder { 0o040_000 } else { 0o100_000 };
        let blocks = status.length.div_ceil(512);
        // Order: number, length, blocks; three times; their nanoseconds; mode, links, owner, group,
        // device, block, flags.
        let out = self.u64(ino).u64(status.length).u64(blocks).zeros(24 + 12);
        out.u32(kind | status.mode).u32(status.links).zeros(12).u32(4096).u32(0)
    }

    fn entry(self, ino: Ino, status: &Status) -> Self {
        self.u64(ino).u64(0).u64(VALID).u64(VALID).zeros(8).attributes(ino, status)
    }

    fn opened(self) -> Self {
        self.u64(0).u32(KEEP_CACHE).u32(0)
    }
}

impl Answer {
    pub(super) fn bytes(&self, unique: u64) -> Vec<u8> {
        let (error, body): (i32, &[u8]) = match self {
            Self::Refused(error) => (-error, &[]),
            Self::Given(body) => (0, body),
        };
        let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
        let mut out = Out::default().u32(length).u32(error.cast_unsigned()).u64(unique).0;
        out.extend_from_slice(body);
        out
    }
}

/// Performs a request and returns its answer.
pub(super) fn answer(disk: &mut Disk, header: &Header, words: Words<'_>, most: usize) -> Answer {
    match done(disk, header, words, most) {
        Ok(out) => Answer::Given(out.0),
        Err(None) => Answer::Refused(NOT_KNOWN),
        Err(Some(refusal)) => Answer::Refused(refusal as i32),
    }
}

fn done(
    disk: &mut Disk,
    header: &Header,
    mut words: Words<'_>,
    most: usize,
) -> Result<Out, Option<Refusal>> {
    let (node, out) = (header.node, Out::default());
    Ok(match header.opcode {
        opcode::INIT => init(&mut words, most),
        opcode::LOOKUP => {
            let ino = disk.look_up(node, &words.name())?;
            out.entry(ino, &disk.status(ino)?)
        }
        opcode::GETATTR => out.u64(VALID).u64(0).attributes(node, &disk.status(node)?),
        opcode::SETATTR => {
            set_attributes(disk, node, &mut words)?;
            out.u64(VALID).u64(0).attributes(node, &disk.status(node)?)
        }
        opcode::MKDIR => {
            let (mode, _) = (words.u32(), words.u32());
            let ino = disk.make(node, &words.name(), true, mode & 0o7777)?;
            out.entry(ino, &disk.status(ino)?)
        }
        opcode::CREATE => {
            let (_, mode) = (words.u32(), words.u32());
            words.u64();
            let ino = disk.make(node, &words.name(), false, mode & 0o7777)?;
            out.entry(ino, &disk.status(ino)?).opened()
        }
        opcode::UNLINK => disk.remove(node, &words.name(), false).map(|()| out)?,
        opcode::RMDIR => disk.remove(node, &words.name(), true).map(|()| out)?,
        opcode::RENAME | opcode::RENAME2 => {
            let folder = words.u64();
            let flags = if header.opcode == opcode::RENAME2 { words.u64() } else { 0 };
            let (from, to) = (words.name(), words.name());
            // 1 keeps an existing target. Exchanging names and whiteouts are not supported.
            if flags > 1 {
                return Err(Some(Refusal::Invalid));
            }
            disk.rename((node, &from), (folder, &to), flags == 1).map(|()| out)?
        }
        opcode::LINK => {
            let ino = words.u64();
            disk.link(ino, node, &words.name())?;
            out.entry(ino, &disk.status(ino)?)
        }
        opcode::OPEN | opcode::OPENDIR => out.opened(),
        opcode::READ => {
            words.u64();
            let (at, length) = (words.u64(), words.u32());
            Out(disk.read(node, at, length as usize)?.to_vec())
        }
        opcode::WRITE => {
            words.u64();
            let (at, length) = (words.u64(), words.u32());
            words.bytes(20);
            disk.write(node, at, words.bytes(length as usize))?;
            out.u32(length).u32(0)
        }
        opcode::FSYNC => {
            words.u64();
            disk.sync(node, words.u32() & 1 != 0).map(|()| out)?
        }
        opcode::FSYNCDIR => disk.sync_folder(node).map(|()| out)?,
        opcode::READDIR => {
            words.u64();
            let (after, length) = (words.u64(), words.u32());
            list(disk, node, after, length as usize)?
        }
        opcode::RELEASE | opcode::RELEASEDIR | opcode::DESTROY => out,
        // Order: blocks and files with the free ones of each; the sizes of a block, a name and a
        // fragment.
        opcode::STATFS => out
            .u64(1 << 24)
            .u64(1 << 23)
            .u64(1 << 23)
            .u64(1 << 20)
            .u64(1 << 19)
            .u32(4096)
            .u32(255)
            .u32(4096)
            .zeros(28),
        _ => return Err(None),
    })
}

fn init(words: &mut Words<'_>, most: usize) -> Out {
    words.u64();
    let read_ahead = words.u32();
    /// `FUSE_BIG_WRITES`: writes of more than one page.
    const BIG_WRITES: u32 = 1 << 5;
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    let out = Out::default().u32(7).u32(31).u32(read_ahead).u32(BIG_WRITES);
    out.u16(16).u16(12).u32(most).u32(1).zeros(64 - 28)
}

fn set_attributes(disk: &mut Disk, ino: Ino, words: &mut Words<'_>) -> Result<(), Refusal> {
    const MODE: u32 = 1;
    const SIZE: u32 = 1 << 3;
    let valid = words.u32();
    words.bytes(12);
    let size = words.u64();
    words.bytes(44);
    let mode = words.u32();
    if valid & SIZE != 0 {
        disk.set_length(ino, size)?;
    }
    if valid & MODE != 0 {
        disk.set_mode(ino, mode & 0o7777)?;
    }
    Ok(())
}

fn list(disk: &Disk, folder: Ino, after: u64, most: usize) -> Result<Out, Refusal> {
    let mut out = Out::default();
    let names = [(".".to_owned(), folder, true), ("..".to_owned(), folder, true)]
        .into_iter()
        .chain(disk.list(folder)?);
    for (place, (name, ino, is_folder)) in (1..).zip(names).filter(|(place, _)| *place > after) {
        let padding = name.len().next_multiple_of(8) - name.len();
        if out.0.len() + 24 + name.len() + padding > most {
            break;
        }
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        out = out.u64(ino).u64(place).u32(length).u32(if is_folder { 4 } else { 8 });
        out.0.extend_from_slice(name.as_bytes());
        out = out.zeros(padding);
    }
    Ok(out)
}
