//! Open files, kept for the next call. The files' locks belong to the open file, not to the
//! thread, so each handle has a mutex in front; and a forked child shares its parent's open files
//! with their locks, so it must open its own.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::file::BucketFile;
use super::patience::Stuck;

/// Most handles kept open: a quarter of the 1024 files many systems let a process open.
const HANDLES_MAX: usize = 256;

/// Open files by bucket name.
#[derive(Debug, Default)]
pub(super) struct Handles {
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The process that opened them.
    process: u32,
    handles: HashMap<Box<str>, Arc<Handle>>,
}

/// One open file, for one thread at a time.
#[derive(Debug)]
pub(super) struct Handle {
    file: Mutex<BucketFile>,
    pub(super) stuck: Stuck,
    /// Whether it was used since the last round of closing.
    used: AtomicBool,
}

impl Handles {
    /// The handle of a bucket, opened where it is not open yet; `None` where there is no file.
    pub(super) fn get(
        &self,
        name: &str,
        path: impl FnOnce() -> std::path::PathBuf,
    ) -> io::Result<Option<Arc<Handle>>> {
        let process = std::process::id();
        {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            if table.process == process
                && let Some(handle) = table.handles.get(name)
            {
                if !handle.used.load(Ordering::Relaxed) {
                    handle.used.store(true, Ordering::Relaxed);
                }
                return Ok(Some(Arc::clone(handle)));
            }
        }
        let Some(file) = self.open(&path())? else { return Ok(None) };
        let handle = Arc::new(Handle {
            file: Mutex::new(file),
            stuck: Stuck::default(),
            used: AtomicBool::new(true),
        });
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.process != process {
            // Forked since: what is open here is our parent's.
            table.handles.clear();
            table.process = process;
        }
        if let Some(raced) = table.handles.get(name) {
            return Ok(Some(Arc::clone(raced)));
        }
        if table.handles.len() >= HANDLES_MAX {
            table.close_some();
        }
        table.handles.insert(name.into(), Arc::clone(&handle));
        Ok(Some(handle))
    }

    /// Opens a file; out of open files, it closes its own idle ones first.
    fn open(&self, path: &Path) -> io::Result<Option<BucketFile>> {
        /// EMFILE, which `std` gives no name.
        const TOO_MANY_OPEN: i32 = 24;
        match BucketFile::open(path) {
            Err(error) if error.raw_os_error() == Some(TOO_MANY_OPEN) => {
                self.table.write().unwrap_or_else(PoisonError::into_inner).handles.clear();
                BucketFile::open(path)
            }
            opened => opened,
        }
    }

    /// Forgets a handle whose file has gone, unless another has taken its place meanwhile.
    pub(super) fn forget(&self, name: &str, handle: &Arc<Handle>) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if table.handles.get(name).is_some_and(|kept| Arc::ptr_eq(kept, handle)) {
            table.handles.remove(name);
        }
    }

    #[cfg(test)]
    pub(super) fn open_now(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).handles.len()
    }

    /// Behaves as after a fork.
    #[cfg(test)]
    pub(super) fn pretend_forked(&self) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).process = 0;
    }
}

impl Table {
    /// Closes what was not used since the last round; if all were, half of them.
    fn close_some(&mut self) {
        self.handles.retain(|_, handle| handle.used.swap(false, Ordering::Relaxed));
        let mut spare = self.handles.len().saturating_sub(HANDLES_MAX / 2);
        self.handles.retain(|_, _| {
            let close = spare > 0;
            spare -= usize::from(close);
            !close
        });
    }
}

impl Handle {
    /// The file, alone in this process. After a panic inside an operation it is as good as before:
    /// what was read is thrown away, and the file's own lock is let go.
    pub(super) fn alone(&self) -> MutexGuard<'_, BucketFile> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
