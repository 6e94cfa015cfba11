//! Buckets of one machine: a file each, in one folder, without a server. All processes of a user
//! that open the same folder share them, and may come, go and be killed as they like.
//!
//! An operation locks the bucket's file (`flock`, through the standard library), reads one short
//! page, decides, writes one of two slots and unlocks: five short system calls, nothing to set up
//! and nothing to repair. [`folder`] says which folder and whether it may be used, [`name`] how a
//! bucket's name becomes a file's, [`file`] what is in it and why a kill never tears it,
//! [`handles`] which files stay open, [`patience`] how a taken lock is waited for, [`sweep`] how
//! evaporated buckets go, [`examine`] what is wrong or risky about the folder.
//!
//! **A file that is there is never empty, and one that is gone is known to be.** Files are made
//! whole under another name and then renamed, by whoever holds the folder's own lock; they are
//! removed by whoever holds the file's lock, after a record that says so to those who have it open.
//! So nobody works on a file that others no longer see, and what looks at a name without a bucket
//! (a status, a check) leaves no trace.

mod examine;
mod file;
mod folder;
mod handles;
mod name;
mod patience;
mod record;
mod sweep;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paceline_core::{Bucket, Micros};

use self::file::{BucketFile, Kept, Locked, Unread};
use self::folder::Folder;
use self::handles::Handles;
use self::patience::{Patience, Stuck};
use self::sweep::Sweeper;
use super::local::{Change, Local};
use crate::clock::Clock;
use crate::error::Error;

/// How often one attempt starts over because the file it had opened was removed or made meanwhile.
const STARTS_MAX: usize = 8;
/// A bucket that is used without being changed is marked as used when this part of its idle expiry
/// has passed since it last was, and is kept by as much longer: a refusal then writes nothing,
/// nearly always, and the expiry still counts from the last use.
const TOUCH_PART: Micros = 8;

/// The store.
#[derive(Debug)]
pub(crate) struct Host {
    folder: Folder,
    clock: Clock,
    timeout: Duration,
    handles: Handles,
    maker: Mutex<Maker>,
    /// Whether the marker's lock is.
    stuck: Stuck,
    sweeper: Sweeper,
}

/// The folder's marker, whose lock is held while a bucket is made.
#[derive(Debug, Default)]
struct Maker {
    /// The process that opened it.
    process: u32,
    marker: Option<Arc<File>>,
}

/// How an attempt at an operation ended.
enum Attempt<R> {
    Done(R),
    /// The lock is taken.
    Busy,
    /// The file was made or removed meanwhile.
    Moved,
}

impl Host {
    /// Opens a folder, the user's default one where none is named, and makes it where it is not
    /// there. An operation waits for a lock no longer than `timeout`.
    pub(crate) fn open(
        folder: Option<&Path>,
        clock: Clock,
        timeout: Duration,
    ) -> Result<Self, Error> {
        Ok(Self {
            folder: Folder::open(folder)?,
            clock,
            timeout,
            handles: Handles::default(),
            maker: Mutex::default(),
            stuck: Stuck::default(),
            sweeper: Sweeper::default(),
        })
    }

    /// Names of the buckets that have not evaporated. It waits for no lock.
    pub(crate) fn list(&self) -> Result<Vec<String>, Error> {
        let failed = |error: io::Error| self.folder.failed("list it", &error);
        let now = self.clock.now();
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.folder.path()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if !Folder::is_bucket(&path) {
                continue;
            }
            match sweep::name_unless_evaporated(&path, now) {
                Ok(name) => names.extend(name),
                Err(unread) => {
                    let error = self.unread(&path, &unread);
                    tracing::warn!(%error, "a bucket is left out of the list");
                }
            }
        }
        Ok(names)
    }

    /// One attempt on the file of a bucket, or at making it.
    fn attempt<R>(
        &self,
        name: &str,
        operation: &mut Option<impl FnOnce(&mut Option<Bucket>, Micros) -> (R, Change)>,
        patience: &Patience,
    ) -> Result<Attempt<R>, Error> {
        let failed = |what| move |error: io::Error| self.folder.failed(what, &error);
        let opened = self.handles.get(name, || self.folder.of_bucket(name));
        let Some(handle) = opened.map_err(failed("open a bucket's file"))? else {
            return self.make(name, operation, patience);
        };
        let mut alone = handle.alone();
        let BucketFile { file, slots } = &mut *alone;
        let locked = patience
            .try_take(&handle.stuck, || Locked::try_lock(file))
            .map_err(failed("lock a file"))?;
        let Some(_locked) = locked else { return Ok(Attempt::Busy) };
        let kept = match slots.read(file, Some(name)) {
            Ok((kept, _)) => kept,
            Err(unread) => {
                // What is wrong with it may be mended already, by removing it.
                self.handles.forget(name, &handle);
                let path = self.folder.of_bucket(name);
                if slots.is_at(file, &path).map_err(failed("look for a file"))? {
                    return Err(self.unread(&path, &unread));
                }
                return Ok(Attempt::Moved);
            }
        };
        // Inside the lock, so that the bucket sees the moments in order.
        let now = self.clock.now();
        let (place, touched) = (kept.place(), kept.touched);
        let mut slot = if kept.has_evaporated(now) { None } else { kept.bucket };
        if slot.is_none() || slots.is_to_be_looked_for() {
            let path = self.folder.of_bucket(name);
            if !slots.is_at(file, &path).map_err(failed("look for a file"))? {
                self.handles.forget(name, &handle);
                return Ok(Attempt::Moved);
            }
        }
        let Some(operation) = operation.take() else { return Ok(Attempt::Moved) };
        let (result, change) = operation(&mut slot, now);
        match (slot, change) {
            (Some(bucket), Change::Unchanged) if now - touched <= bucket.keep_us / TOUCH_PART => {
                slots.keep(place, touched, bucket);
            }
            (slot @ Some(_), _) => {
                let written = slots.write(file, name, now, slot, Some(place));
                written.map_err(failed("write a bucket's file"))?;
            }
            (None, Change::Changed) => {
                let removed = slots.forget(file, place, &self.folder.of_bucket(name));
                self.handles.forget(name, &handle);
                removed.map_err(failed("remove a bucket's file"))?;
            }
            // Evaporated, and left to the sweep.
            (None, Change::Unchanged) => {}
        }
        Ok(Attempt::Done(result))
    }

    /// One attempt at an operation on a bucket that has no file, under the folder's lock. The file
    /// is made only where the operation made a bucket.
    fn make<R>(
        &self,
        name: &str,
        operation: &mut Option<impl FnOnce(&mut Option<Bucket>, Micros) -> (R, Change)>,
        patience: &Patience,
    ) -> Result<Attempt<R>, Error> {
        let failed = |what| move |error: io::Error| self.folder.failed(what, &error);
        let mut maker = self.maker.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if maker.process != process {
            // Forked since: what is open here is our parent's.
            *maker = Maker { process, marker: None };
        }
        let marker = match &maker.marker {
            Some(marker) => Arc::clone(marker),
            None => Arc::clone(maker.marker.insert(Arc::new(self.folder.marker()?))),
        };
        let locked = patience
            .try_take(&self.stuck, || Locked::try_lock(&marker))
            .map_err(failed("lock a file"))?;
        let Some(locked) = locked else { return Ok(Attempt::Busy) };
        if !file::is_at(&marker, &self.folder.marker_path()).map_err(failed("look for a file"))? {
            drop(locked);
            maker.marker = None;
            return Ok(Attempt::Moved);
        }
        let path = self.folder.of_bucket(name);
        if path.try_exists().map_err(failed("look at a file"))? {
            return Ok(Attempt::Moved);
        }
        let now = self.clock.now();
        let Some(operation) = operation.take() else { return Ok(Attempt::Moved) };
        let mut slot = None;
        let (result, change) = operation(&mut slot, now);
        if let (Some(bucket), Change::Changed) = (slot, change) {
            BucketFile::create(&self.folder.temporary(), &path, name, now, bucket)
                .map_err(failed("make a bucket's file"))?;
            drop(locked);
            drop(maker);
            self.sweeper.sweep(&self.folder, now);
        }
        Ok(Attempt::Done(result))
    }

    fn unread(&self, path: &Path, unread: &Unread) -> Error {
        let path = path.display();
        match unread {
            Unread::Damaged => Error::incompatible(format!(
                "host file {path} is damaged, both its states; what it held (a limit or a \
                 suspension, maybe) is lost: remove it to start the bucket anew, full"
            )),
            Unread::OtherName(other) => Error::incompatible(format!(
                "host file {path} belongs to the bucket {other:?}; the two names cannot be used in \
                 one folder: rename one"
            )),
            Unread::Newer(version) => Error::incompatible(format!(
                "host file {path} has version {version}, newer than this program reads; upgrade \
                 Paceline here"
            )),
            Unread::Io(error) => self.folder.failed("read a bucket's file", error),
        }
    }
}

impl Local for Host {
    async fn update<R: Send>(
        &self,
        name: &str,
        operation: impl FnOnce(&mut Option<Bucket>, Micros) -> (R, Change) + Send,
    ) -> Result<R, Error> {
        let mut operation = Some(operation);
        let mut patience = Patience::new(self.timeout);
        let mut starts = 0;
        loop {
            match self.attempt(name, &mut operation, &patience)? {
                Attempt::Done(result) => return Ok(result),
                Attempt::Moved if starts < STARTS_MAX => starts += 1,
                Attempt::Moved | Attempt::Busy => {
                    if !patience.sleep().await {
                        return Err(Error::unavailable(format!(
                            "host folder {}: the lock was not free within {:?}; a process that \
                             holds it may have been stopped",
                            self.folder.path().display(),
                            self.timeout
                        )));
                    }
                    starts = 0;
                }
            }
        }
    }
}

impl Kept {
    /// Whether nobody has used the bucket for so long that a new one gives nobody anything early.
    fn has_evaporated(&self, now: Micros) -> bool {
        let Some(bucket) = &self.bucket else { return true };
        let (idle, keep_us) = (now - self.touched, bucket.keep_us);
        // The lifetime is never shorter than keep_us, and costs a little to compute.
        idle >= keep_us + keep_us / TOUCH_PART && idle >= bucket.lifetime_us(self.touched)
    }
}
