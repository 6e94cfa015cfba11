//! A folder of a test's own, private to the user and gone when the test is over.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes a new empty folder under [`std::env::temp_dir`], readable by the user alone. The label is
/// a part of its name, for whoever finds it after a crash.
///
/// # Panics
/// When the folder cannot be made.
#[track_caller]
pub fn scratch_dir(label: &str) -> ScratchDir {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // A process id comes round again, so a crashed run may have left a folder of the same name.
    // Making the folder is what claims the name; a taken one only means trying the next.
    for _ in 0..10_000 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline-{label}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return ScratchDir { path },
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => panic!("cannot make the scratch folder {}: {e}", path.display()),
        }
    }
    panic!("no free name for a scratch folder in {}", std::env::temp_dir().display());
}

/// A folder that is removed, with all that is in it, when this is dropped.
#[derive(Debug)]
pub struct ScratchDir {
    path: PathBuf,
}

impl ScratchDir {
    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path `name` would have inside the folder.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl AsRef<Path> for ScratchDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // A test that removed the folder itself is fine, and a panic here would hide the test's.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
