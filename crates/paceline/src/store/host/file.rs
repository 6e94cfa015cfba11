//! One bucket's file. It holds two states, A and B, each with a sequence number and a checksum;
//! the valid one with the higher number counts, and the next is written over the other. So a
//! process killed at any instant leaves the old state or the new one, in one write and without a
//! journal to clean up (an undo record would need two writes in a fixed order, and a reader that
//! repairs).
//!
//! ```text
//! 0      slot A   sequence u64 · checksum u64 · length u32 · version u32 · record
//! 1024   slot B   the same
//! 4096   where a record too long for its slot is kept instead: A's, then B's at 4096 + 64 KiB
//! ```
//!
//! A record of no length says that the bucket is forgotten. It is written before the file is
//! removed, so that whoever has the file open learns of it by the read it makes anyway. Asking the
//! system whether the file still has a name would cost as much as all the rest: once somebody has
//! looked at a file's times, Linux gives the next write a new one and writes the inode for it.
//!
//! Both slots lie in one page: one short read gets them, and a write needs no new space on the
//! disk. Nothing is synced: after a power cut a bucket may be as it was some seconds before, which
//! is about as long as the machine was away.
//!
//! Where both slots are broken (a disk's fault; no kill can do it) the bucket answers with an
//! error until somebody removes the file. To start anew by itself would be to forget a suspension
//! or a pinned limit that nobody can read any more.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_core::{Bucket, Micros, Policy};

use super::record::{self, Record};

const HEAD: usize = 24;
const SLOT: usize = 1_024;
const PAGE: usize = 2 * SLOT;
/// Where long records begin, and how long they may be: eight windows of 65 entries, a name, a
/// reason and a policy come to less than 16 KiB.
const LONG_AT: u64 = 4_096;
const LONG_MAX: usize = 64 * 1_024;
/// How often a file in use is looked for under its name.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The version of slots and record.
const VERSION: u32 = 1;

/// An open file, and what is known of it. Two parts, because the lock borrows the first.
#[derive(Debug)]
pub(super) struct BucketFile {
    pub(super) file: File,
    pub(super) slots: Slots,
}

/// The two slots of one file, read and written under its lock.
#[derive(Debug)]
pub(super) struct Slots {
    page: Box<[u8; PAGE]>,
    out: Vec<u8>,
    /// The state as last read or written by us; true as long as the file shows the same head.
    kept: Option<Kept>,
    /// The policy last seen, so that its text is not parsed again.
    known: Option<Arc<Policy>>,
    /// When the path was last seen to lead here.
    looked: Instant,
}

/// A state as found in the file.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) touched: Micros,
    /// `None` where the bucket was forgotten.
    pub(super) bucket: Option<Bucket>,
    place: Place,
}

/// Where a state stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    head: Head,
    slot: usize,
}

/// Why a file gives no state.
#[derive(Debug)]
pub(super) enum Unread {
    /// Neither slot is whole.
    Damaged,
    /// It holds another bucket.
    OtherName(String),
    /// Written by a newer version.
    Newer(u32),
    Io(io::Error),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The file's lock, held until dropped. Locks are of the open file, not of the process.
#[derive(Debug)]
pub(super) struct Locked<'a>(&'a File);

impl<'a> Locked<'a> {
    /// Tries once; `None` where another holds it.
    pub(super) fn try_lock(file: &'a File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Unlocking one's own open file cannot fail; closing it would unlock as well.
        let _ = self.0.unlock();
    }
}

impl BucketFile {
    /// Opens a file that is there; `None` where none is.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Ok(Some(Self::of(file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a file that is whole from the first moment anybody can see it: written under the
    /// temporary name, then renamed. The caller sees to it that nobody else makes one meanwhile.
    pub(super) fn create(
        temporary: &Path,
        path: &Path,
        name: &str,
        touched: Micros,
        bucket: Bucket,
    ) -> io::Result<()> {
        let bucket = Some(bucket);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let mut made = Self::of(options.open(temporary)?);
        // The whole page, so that the disk has the space before anybody counts on it.
        made.file.write_all_at(&[0; PAGE], 0)?;
        made.slots.write(&made.file, name, touched, bucket, None)?;
        std::fs::rename(temporary, path)
    }

    fn of(file: File) -> Self {
        let slots = Slots {
            page: Box::new([0; PAGE]),
            out: Vec::new(),
            kept: None,
            known: None,
            looked: Instant::now(),
        };
        Self { file, slots }
    }
}

impl Slots {
    /// Whether the path leads to this very file; the next look is due a while from now.
    pub(super) fn is_at(&mut self, file: &File, path: &Path) -> io::Result<bool> {
        self.looked = Instant::now();
        is_at(file, path)
    }

    /// Whether it is time to look whether the path still leads here: the file may have been
    /// removed by somebody who leaves no record, such as a person.
    pub(super) fn is_to_be_looked_for(&self) -> bool {
        self.looked.elapsed() >= LOOK_EVERY
    }

    /// The state that counts, taken out: hand it back with [`write`](Self::write) or
    /// [`keep`](Self::keep). Without a `name` any is right, and comes along.
    pub(super) fn read(
        &mut self,
        file: &File,
        name: Option<&str>,
    ) -> Result<(Kept, Option<String>), Unread> {
        let got = read_up_to(file, &mut self.page[..], 0)?;
        self.page[got..].fill(0);
        let heads = [0, 1].map(|slot| Head::read(&self.page[slot * SLOT..]));
        let newest = usize::from(heads[1].sequence > heads[0].sequence);
        let mut newer = None;
        for slot in [newest, 1 - newest] {
            let head = heads[slot];
            let place = Place { head, slot };
            if let Some(kept) = self.kept.take_if(|kept| kept.place == place) {
                return Ok((kept, None));
            }
            if head.version == VERSION && head.length == 0 && self.is_whole(file, head, slot)? {
                return Ok((Kept { touched: 0, bucket: None, place }, None));
            }
            let Some(Record { name: found, touched, bucket }) = self.record(file, head, slot)?
            else {
                // Checked as a whole, so that a torn write is not taken for a new version.
                if head.version > VERSION && self.is_whole(file, head, slot)? {
                    newer = Some(head.version);
                }
                continue;
            };
            if newer.is_some() {
                break;
            }
            if name.is_some_and(|name| name != found) {
                return Err(Unread::OtherName(found));
            }
            self.known = bucket.policy.clone().or(self.known.take());
            return Ok((Kept { touched, bucket: Some(bucket), place }, Some(found)));
        }
        Err(newer.map_or(Unread::Damaged, Unread::Newer))
    }

    fn record(&mut self, file: &File, head: Head, slot: usize) -> io::Result<Option<Record>> {
        if head.version != VERSION || !self.is_whole(file, head, slot)? {
            return Ok(None);
        }
        let length = head.length as usize;
        let body = if length > SLOT - HEAD { &self.out[..length] } else { self.body(slot, length) };
        Ok(record::decode(body, self.known.as_ref()))
    }

    /// Whether checksum and record agree. A long record is in `out` afterwards.
    fn is_whole(&mut self, file: &File, head: Head, slot: usize) -> io::Result<bool> {
        let length = head.length as usize;
        if head.sequence == 0 || length > LONG_MAX {
            return Ok(false);
        }
        if length > SLOT - HEAD {
            self.out.resize(length, 0);
            let got = read_up_to(file, &mut self.out, long_at(slot))?;
            return Ok(got == length && head.checksum == head.sum(&self.out));
        }
        Ok(head.checksum == head.sum(self.body(slot, length)))
    }

    fn body(&self, slot: usize, length: usize) -> &[u8] {
        &self.page[slot * SLOT + HEAD..][..length]
    }

    /// Writes a state over the slot that does not count; none says that the bucket is forgotten.
    /// `before` is where [`read`](Self::read) found the old one, which stands where this fails.
    pub(super) fn write(
        &mut self,
        file: &File,
        name: &str,
        touched: Micros,
        bucket: Option<Bucket>,
        before: Option<Place>,
    ) -> io::Result<()> {
        let (sequence, slot) = before
            .map_or((1, 0), |Place { head, slot }| (head.sequence.saturating_add(1), 1 - slot));
        self.out.clear();
        self.out.resize(HEAD, 0);
        if let Some(bucket) = &bucket {
            record::encode(&mut self.out, name, touched, bucket);
        }
        let length = self.out.len() - HEAD;
        if length > LONG_MAX {
            return Err(io::Error::other(format!("a record of {length} bytes is too long")));
        }
        let mut head = Head {
            sequence,
            checksum: 0,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            version: VERSION,
        };
        head.checksum = head.sum(&self.out[HEAD..]);
        self.out[..HEAD].copy_from_slice(&head.bytes());
        let at = (slot * SLOT) as u64;
        if self.out.len() > SLOT {
            // The head last: it makes the rest count.
            file.write_all_at(&self.out[HEAD..], long_at(slot))?;
            file.write_all_at(&self.out[..HEAD], at)?;
        } else {
            file.write_all_at(&self.out, at)?;
        }
        if let Some(policy) = bucket.as_ref().and_then(|bucket| bucket.policy.as_ref())
            && !self.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, policy))
        {
            self.known = Some(Arc::clone(policy));
        }
        self.kept = Some(Kept { touched, bucket, place: Place { head, slot } });
        Ok(())
    }

    /// Forgets the bucket and removes its file, which others may have open.
    pub(super) fn forget(&mut self, file: &File, kept: Place, path: &Path) -> io::Result<()> {
        self.write(file, "", 0, None, Some(kept))?;
        std::fs::remove_file(path)
    }

    /// Takes back a state that was read and not changed.
    pub(super) fn keep(&mut self, place: Place, touched: Micros, bucket: Bucket) {
        self.kept = Some(Kept { touched, bucket: Some(bucket), place });
    }
}

impl Kept {
    /// Where it stands; the next one goes to the other slot.
    pub(super) fn place(&self) -> Place {
        self.place
    }
}

/// Whether a path leads to an open file. It does not where the file, or the folder, was removed,
/// moved or replaced.
pub(super) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let here = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (here.dev(), here.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What stands before a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    sequence: u64,
    checksum: u64,
    length: u32,
    version: u32,
}

impl Head {
    fn read(bytes: &[u8]) -> Self {
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |it| u64::from_le_bytes(*it));
        let short = |at: usize| bytes[at..].first_chunk().map_or(0, |it| u32::from_le_bytes(*it));
        Self { sequence: long(0), checksum: long(8), length: short(16), version: short(20) }
    }

    fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        bytes[..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..].copy_from_slice(&self.version.to_le_bytes());
        bytes
    }

    /// The checksum of head and record: eight bytes a step, each mixed with all before it. It must
    /// tell a torn write, not an enemy: the folder is its owner's alone.
    fn sum(&self, body: &[u8]) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(ODD).rotate_left(29);
        let mut sum = mix(self.sequence, u64::from(self.length) << 32 | u64::from(self.version));
        let (words, rest) = body.as_chunks::<8>();
        for word in words {
            sum = mix(sum, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum = mix(sum, u64::from_le_bytes(last));
        sum = (sum ^ (sum >> 32)).wrapping_mul(ODD);
        sum ^ (sum >> 29)
    }
}

fn long_at(slot: usize) -> u64 {
    LONG_AT + (slot * LONG_MAX) as u64
}

/// Reads as much as there is.
fn read_up_to(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

/// A file's bytes with another version in both slots and checksums that fit, as a later version
/// might write them.
#[cfg(test)]
pub(super) fn with_version(bytes: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = bytes.to_owned();
    for slot in [0, SLOT] {
        let mut head = Head::read(&bytes[slot..]);
        head.version = version;
        head.checksum = head.sum(&bytes[slot + HEAD..][..head.length as usize]);
        bytes[slot..slot + HEAD].copy_from_slice(&head.bytes());
    }
    bytes
}
