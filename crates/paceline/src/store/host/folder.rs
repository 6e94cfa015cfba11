//! Which folder, and whether it may be used: its owner, its permissions, its format, the file
//! system it is on. What is wrong with it is said when the store is opened.
//!
//! **The default folder** must be the same for all processes of a user: an interactive shell, a
//! cron job, a service. `$XDG_RUNTIME_DIR` is not (cron has none, and it goes with the last
//! session), nor is `$XDG_STATE_HOME` (set by some shells' start files). What they agree on is the
//! user's home: `$HOME/.local/state/paceline`; where `HOME` is not set, the home that
//! `/etc/passwd` gives. A user without a home that exists gets `/var/tmp/paceline-UID`, which is
//! warned about: a service that may not see the homes would disagree with everybody else.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use super::name::{self, SUFFIX};
use crate::error::{Error, Kind};

/// Says what kind of folder this is; locked while a bucket is made.
const MARKER: &str = "paceline.format";
const MARKER_TEXT: &str = "paceline host folder, format ";
/// The format this version reads and writes.
const FORMAT: u32 = 1;
/// A bucket being made. One name is enough, since who makes one holds the marker's lock; one left
/// by a killed process is written over.
const TEMPORARY: &str = ".new";
/// File systems that other machines write to as well.
const NETWORKS: [&str; 19] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "beegfs",
    "afs",
    "ncpfs",
    "ocfs2",
    "gfs2",
    "sshfs",
    "s3fs",
    "rclone",
    "gcsfuse",
];

/// A folder that may be used.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder where there is none, and checks it.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Error> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => default_folder(&User::of_process())?,
        };
        let folder = Self { path };
        folder.make()?;
        folder.marker()?;
        folder.warn_of_network();
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a bucket's file is.
    pub(super) fn of_bucket(&self, name: &str) -> PathBuf {
        self.path.join(name::file_name(name))
    }

    pub(super) fn marker_path(&self) -> PathBuf {
        self.path.join(MARKER)
    }

    pub(super) fn temporary(&self) -> PathBuf {
        self.path.join(TEMPORARY)
    }

    /// Whether a file of the folder is a bucket's.
    pub(super) fn is_bucket(path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with(SUFFIX) && name != SUFFIX)
    }

    /// The kind of file system it is on, and whether other machines may write there, too.
    pub(super) fn file_system(&self) -> Option<(String, bool)> {
        let path = self.path.canonicalize().ok()?;
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let kind = file_system(&mounts, &path);
        (!kind.is_empty()).then(|| (kind.to_owned(), is_network(kind)))
    }

    fn make(&self) -> Result<(), Error> {
        let path = &self.path;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        let found = made.and_then(|()| std::fs::metadata(path));
        let found = found.map_err(|error| self.failed("make the folder", &error))?;
        let us = rustix::process::geteuid().as_raw();
        let link = std::fs::symlink_metadata(path);
        let link = link.map_err(|error| self.failed("look at the folder", &error))?;
        judge_link(path, link.is_symlink(), link.uid(), us).map_err(Error::forbidden)?;
        judge(path, found.uid(), found.mode(), us).map_err(Error::forbidden)
    }

    /// The open marker, made where there is none: also after somebody removed the whole folder.
    pub(super) fn marker(&self) -> Result<File, Error> {
        let path = self.marker_path();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let opened = match options.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.make()?;
                options.open(&path)
            }
            opened => opened,
        };
        let marker = opened.map_err(|error| self.failed("write in it", &error))?;
        let mut text = [0; 64];
        let got = marker.read_at(&mut text, 0).map_err(|error| self.failed("read it", &error))?;
        if got == 0 {
            // All who find it empty write the same.
            let text = format!("{MARKER_TEXT}{FORMAT}\n");
            let written = marker.write_all_at(text.as_bytes(), 0);
            written.map_err(|error| self.failed("write in it", &error))?;
            return Ok(marker);
        }
        let text = String::from_utf8_lossy(&text[..got]);
        let format = text.strip_prefix(MARKER_TEXT).and_then(|rest| rest.trim_end().parse().ok());
        match format {
            Some(FORMAT) => Ok(marker),
            Some(newer @ FORMAT..) => Err(Error::incompatible(format!(
                "host folder {}: it has format {newer}, this version reads up to {FORMAT}; upgrade \
                 Paceline here, or choose another folder with host:/path",
                self.path.display()
            ))),
            _ => Err(Error::incompatible(format!(
                "host folder {}: {MARKER} does not say which format it has; choose another folder \
                 with host:/path, or remove this one's files to start anew",
                self.path.display()
            ))),
        }
    }

    /// A failed operation, told with the folder and what to do.
    pub(super) fn failed(&self, what: &str, error: &io::Error) -> Error {
        let (kind, hint) = match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (
                Kind::Forbidden,
                "; give it to this user (chown, chmod 700) or choose another with host:/path",
            ),
            ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
                (Kind::Input, "; a host folder is a folder, or a path where one can be made")
            }
            ErrorKind::NotFound => {
                (Kind::Unavailable, "; choose a path where a folder can be made, with host:/path")
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                (Kind::Unavailable, "; the disk is full: make room")
            }
            _ => (Kind::Unavailable, ""),
        };
        Error::new(
            kind,
            format!("host folder {}: cannot {what}: {error}{hint}", self.path.display()),
        )
    }

    /// Warns, once a process, of a folder that other machines may share: their clocks differ, locks
    /// are slow there or missing.
    fn warn_of_network(&self) {
        static TOLD: Once = Once::new();
        if let Some((kind, true)) = self.file_system() {
            TOLD.call_once(|| {
                tracing::warn!(
                    folder = %self.path.display(),
                    kind,
                    "the host folder is on a network file system, where locks are slow or missing; \
                     choose a local folder with host:/path, or redis:// to share buckets between \
                     machines"
                );
            });
        }
    }
}

/// Whether a path may be what it is. A link that somebody else has placed (in `/var/tmp`, say) would
/// have us write where they choose.
fn judge_link(path: &Path, is_link: bool, owner: u32, us: u32) -> Result<(), String> {
    if is_link && owner != us && owner != 0 {
        return Err(format!(
            "host folder {}: it is a symbolic link of user {owner}, and this process is user {us}; \
             remove the link, or choose another folder with host:/path",
            path.display()
        ));
    }
    Ok(())
}

/// Whether a folder of this owner and mode is safe for us. As ssh does with its keys: where others
/// may write, others decide what our buckets hold.
fn judge(path: &Path, owner: u32, mode: u32, us: u32) -> Result<(), String> {
    let folder = path.display();
    if owner != us {
        return Err(format!(
            "host folder {folder}: it belongs to user {owner}, and this process is user {us}; \
             processes that share buckets run as one user: choose another folder with host:/path, \
             or redis:// to share between users"
        ));
    }
    if mode & 0o022 != 0 {
        return Err(format!(
            "host folder {folder}: others may write in it (mode {:04o}); make it private with \
             chmod 700, or choose another with host:/path",
            mode & 0o7777
        ));
    }
    if mode & 0o300 != 0o300 {
        return Err(format!(
            "host folder {folder}: this user may not write in it (mode {:04o}); allow it with \
             chmod 700, or choose another with host:/path",
            mode & 0o7777
        ));
    }
    Ok(())
}

/// What the default folder depends on.
struct User {
    id: u32,
    home: Option<PathBuf>,
}

impl User {
    fn of_process() -> Self {
        let id = rustix::process::geteuid().as_raw();
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let from_passwd = || home_of(&std::fs::read_to_string("/etc/passwd").ok()?, id);
        Self { id, home: home.or_else(from_passwd) }
    }
}

fn default_folder(user: &User) -> Result<PathBuf, Error> {
    match &user.home {
        Some(home) if home.is_dir() => Ok(home.join(".local/state/paceline")),
        _ => {
            let folder = PathBuf::from(format!("/var/tmp/paceline-{}", user.id));
            tracing::warn!(
                folder = %folder.display(),
                "this user has no home folder; processes that see one use another default, so name \
                 one for all with PACELINE_STORE=host:/path"
            );
            Ok(folder)
        }
    }
}

/// The home of a user in the text of `/etc/passwd`.
fn home_of(passwd: &str, user: u32) -> Option<PathBuf> {
    let user = user.to_string();
    let home = passwd.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        (fields.next() == Some(user.as_str())).then(|| fields.nth(2))?
    })?;
    Some(PathBuf::from(home)).filter(|home| home.is_absolute())
}

/// The kind of file system a path is on, by a text in the form of `/proc/self/mounts`; empty where
/// that does not say.
fn file_system<'a>(mounts: &'a str, path: &Path) -> &'a str {
    // The deepest mount point that holds the path; of several at one point, the last.
    let mut deepest = (0, "");
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (fields.next(), fields.next()) else { continue };
        let point = PathBuf::from(unescaped(point));
        let depth = point.components().count();
        if path.starts_with(&point) && depth >= deepest.0 {
            deepest = (depth, kind);
        }
    }
    deepest.1
}

fn is_network(kind: &str) -> bool {
    NETWORKS.contains(&kind.strip_prefix("fuse.").unwrap_or(kind))
}

/// Spaces and the like are written as `\040` there.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_what_cron_and_a_shell_agree_on() {
        let of = |id, home: Option<&str>| {
            default_folder(&User { id, home: home.map(PathBuf::from) }).unwrap()
        };
        let home = std::env::temp_dir();
        assert_eq!(of(7, home.to_str()), home.join(".local/state/paceline"));
        assert_eq!(of(7, Some("/nonexistent")), Path::new("/var/tmp/paceline-7"));
        assert_eq!(of(7, None), Path::new("/var/tmp/paceline-7"));
        let passwd = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:100:,,,:/home/me:/bin/sh\nodd\n";
        assert_eq!(home_of(passwd, 1_000), Some(PathBuf::from("/home/me")));
        assert_eq!(home_of(passwd, 100), None);
    }

    #[test]
    fn a_folder_that_others_own_or_may_write_in_is_refused_with_what_to_do() {
        let judged = |owner, mode| judge(Path::new("/f"), owner, mode, 1_000);
        for mode in [0o40_700, 0o40_755, 0o40_750, 0o41_700] {
            assert_eq!(judged(1_000, mode), Ok(()), "{mode:o}");
        }
        for (owner, mode, word) in [
            (1_001, 0o40_700, "belongs to user 1001"),
            (0, 0o40_755, "belongs to user 0"),
            (1_000, 0o41_777, "chmod 700"),
            (1_000, 0o40_770, "mode 0770"),
            (1_000, 0o40_702, "others may write"),
            (1_000, 0o40_500, "may not write"),
            (1_000, 0o40_600, "may not write"),
        ] {
            let message = judged(owner, mode).unwrap_err();
            assert!(message.contains(word) && message.contains("/f"), "{message}");
            assert!(message.contains("host:/path"), "{message}");
        }
    }

    #[test]
    fn a_link_of_somebody_else_is_not_followed() {
        let judged = |is_link, owner| judge_link(Path::new("/f"), is_link, owner, 1_000);
        for (is_link, owner) in [(false, 1_000), (false, 1_001), (true, 1_000), (true, 0)] {
            assert_eq!(judged(is_link, owner), Ok(()));
        }
        let message = judged(true, 1_001).unwrap_err();
        assert!(message.contains("symbolic link of user 1001") && message.contains("host:/path"));
    }

    #[test]
    fn the_deepest_mount_says_whether_a_folder_is_on_a_network() {
        let mounts = "/dev/vda / ext4 rw 0 0\nproc /proc proc rw 0 0\nsrv:/h /home nfs4 rw 0 0\n\
                      //s/x /mnt/my\\040share cifs rw 0 0\nhost: /mnt/ssh fuse.sshfs rw 0 0\n\
                      tmpfs /home/me/fast tmpfs rw 0 0\nx /mnt/loc fuse.ntfs rw 0 0\n";
        for (path, kind) in [
            ("/var/tmp", None),
            ("/home/me", Some("nfs4")),
            ("/homely", None),
            ("/home/me/fast/p", None),
            ("/mnt/my share/p", Some("cifs")),
            ("/mnt/ssh", Some("fuse.sshfs")),
            ("/mnt/loc", None),
        ] {
            let found = file_system(mounts, Path::new(path));
            assert_eq!(Some(found).filter(|kind| is_network(kind)), kind, "{path}");
            assert_ne!(found, "", "{path}");
        }
    }
}
