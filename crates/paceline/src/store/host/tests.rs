//! The store through its own face, with the files looked into and broken on purpose.
//! [`processes`] has the tests with processes that are killed.

mod processes;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use paceline_core::{Ask, Decision, Policy, Suspension};
use paceline_testkit::{ScratchDir, eventually, scratch_dir};

use super::super::local;
use super::super::url::StoreUrl;
use super::*;
use crate::clock::ManualClock;
use crate::store::Store;
use crate::store::contract::{START, Tested, contract};

/// Long enough for a loaded machine; only what is stopped on purpose takes [`SHORT`].
const BOUND: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

async fn store() -> Tested {
    let (clock, folder) = (ManualClock::at(START), scratch_dir("contract"));
    let url = StoreUrl::Host { folder: Some(folder.path().to_owned()) };
    let store = Store::open(&url, Clock::Manual(clock.clone()), BOUND).await.unwrap();
    Tested { store: Arc::new(store), clock, _keeps: Box::new(folder) }
}

contract!();

fn at(folder: &ScratchDir, clock: &ManualClock) -> Host {
    Host::open(Some(folder.path()), Clock::Manual(clock.clone()), BOUND).unwrap()
}

fn opened() -> (ManualClock, ScratchDir, Host) {
    let (clock, folder) = (ManualClock::at(START), scratch_dir("host"));
    let host = at(&folder, &clock);
    (clock, folder, host)
}

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(text.parse().unwrap())
}

async fn take(host: &Host, name: &str, policy: &Arc<Policy>) -> Result<Decision, Error> {
    Ok(local::take(host, name, policy, Ask { cost: 1.into(), wait_max_us: 0 }).await?.decision)
}

async fn takes(host: &Host, name: &str, policy: &Arc<Policy>) -> bool {
    matches!(take(host, name, policy).await.unwrap(), Decision::Granted { wait_us: 0, .. })
}

async fn left(host: &Host, name: &str) -> Result<i64, Error> {
    let look = local::look(host, name).await?;
    Ok(look.bucket.map_or(-1, |bucket| bucket.view(look.now).quotas[0].remaining))
}

fn file(folder: &ScratchDir, name: &str) -> PathBuf {
    folder.join(super::name::file_name(name))
}

/// Names of the files in the folder, but for the marker.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "paceline.format");
    names.sort_unstable();
    names
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn folder_and_files_are_for_the_user_alone() {
    let (clock, scratch) = (ManualClock::at(START), scratch_dir("host"));
    let folder = scratch.join("deep/er");
    let host = Host::open(Some(&folder), Clock::Manual(clock), BOUND).unwrap();
    assert!(run(takes(&host, "api", &policy("5/s"))));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&folder), 0o700);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(files(&folder), ["api.bucket"]);
}

#[test]
fn a_folder_that_cannot_be_used_is_refused_with_the_path_and_what_to_do() {
    let scratch = scratch_dir("host");
    let refused = |path: &Path| {
        let error = Host::open(Some(path), Clock::System, BOUND).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains("host:/path") || message.contains("a folder"), "{message}");
        error
    };
    for mode in [0o500, 0o777, 0o770] {
        let folder = scratch.join(format!("{mode:o}"));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
        assert!(refused(&folder).is_forbidden());
        assert!(files(&folder).is_empty(), "it is left alone");
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    }
    let plain = scratch.join("file");
    fs::write(&plain, "x").unwrap();
    assert!(refused(&plain).is_input());
    assert!(refused(&plain.join("below")).is_input());
    refused(Path::new("/proc/paceline"));
}

#[test]
fn a_folder_of_a_newer_or_unknown_format_is_refused() {
    let (clock, folder, host) = opened();
    assert!(run(takes(&host, "api", &policy("5/s"))));
    let marker = folder.join("paceline.format");
    assert_eq!(fs::read_to_string(&marker).unwrap(), "paceline host folder, format 1\n");
    for (text, word) in [
        ("paceline host folder, format 2\n", "format 2, this version reads up to 1; upgrade"),
        ("paceline host folder, format 0\n", "does not say which format"),
        ("something else", "does not say which format"),
    ] {
        fs::write(&marker, text).unwrap();
        let clock = Clock::Manual(clock.clone());
        let error = Host::open(Some(folder.path()), clock, BOUND).unwrap_err();
        assert!(error.is_incompatible() && error.to_string().contains(word), "{error}");
    }
    // One made and not yet written, as a kill may leave it.
    fs::write(&marker, "").unwrap();
    assert!(run(takes(&at(&folder, &clock), "api", &policy("5/s"))));
    assert_eq!(fs::read_to_string(&marker).unwrap(), "paceline host folder, format 1\n");
}

#[test]
fn junk_in_the_folder_is_ignored_and_left_alone() {
    let (_, folder, host) = opened();
    for junk in ["notes.txt", ".bucket", ".new", "core"] {
        fs::write(folder.join(junk), "junk").unwrap();
    }
    fs::create_dir(folder.join("sub.bucket")).unwrap();
    fs::write(folder.join("odd.bucket"), "junk").unwrap();
    for number in 0..20 {
        assert!(run(takes(&host, &format!("b {number}"), &policy("5/s"))));
    }
    let listed = host.list().unwrap();
    assert_eq!(listed.len(), 20, "{listed:?}");
    for junk in ["notes.txt", ".bucket", "core", "odd.bucket", "sub.bucket"] {
        assert!(folder.join(junk).exists(), "{junk}");
    }
}

#[test]
fn a_refusal_and_a_look_write_nothing_and_a_name_without_bucket_has_no_file() {
    let (clock, folder, host) = opened();
    let once = policy("1/h");
    assert_eq!(run(left(&host, "other")).unwrap(), -1);
    assert!(files(folder.path()).is_empty());
    assert!(run(takes(&host, "api", &once)));
    let before = fs::read(file(&folder, "api")).unwrap();
    for _ in 0..10 {
        assert!(!run(takes(&host, "api", &once)));
        assert_eq!(run(left(&host, "api")).unwrap(), 0);
        clock.advance(Duration::from_millis(30));
    }
    assert_eq!(fs::read(file(&folder, "api")).unwrap(), before);
    // Only its use is noted, when some of its idle expiry has passed.
    clock.advance(Duration::from_millis(100));
    assert!(!run(takes(&host, "api", &once)));
    assert_ne!(fs::read(file(&folder, "api")).unwrap(), before);
}

#[test]
fn a_bucket_in_use_keeps_its_policy_though_nothing_is_ever_granted() {
    let (clock, folder, host) = opened();
    run(local::set(&host, "api", &policy("0/s"), false)).unwrap();
    for _ in 0..20 {
        clock.advance(Duration::from_millis(2_999));
        let never = run(take(&host, "api", &policy("5/s"))).unwrap();
        assert!(matches!(never, Decision::Never { .. }), "{never:?}");
    }
    clock.advance(Duration::from_secs(4));
    assert!(run(takes(&host, "api", &policy("5/s"))), "idle, it evaporates");
    assert_eq!(files(folder.path()), ["api.bucket"]);
}

#[test]
fn a_bucket_evaporates_when_it_is_full_again_and_no_sooner() {
    let (clock, _folder, host) = opened();
    let slow = policy("1/m burst 3");
    for _ in 0..3 {
        assert!(run(takes(&host, "api", &slow)));
    }
    clock.advance(Duration::from_micros(179_999_999));
    assert_eq!(host.list().unwrap(), ["api"]);
    assert_eq!(run(left(&host, "api")).unwrap(), 2);
    clock.advance(Duration::from_secs(180));
    assert!(host.list().unwrap().is_empty());
    assert_eq!(run(left(&host, "api")).unwrap(), -1);
}

#[test]
fn c15_a_thousand_idle_buckets_are_swept_and_those_that_refill_or_are_pinned_stay() {
    let (clock, folder, host) = opened();
    let (fast, slow) = (policy("1/s"), policy("1/h"));
    assert!(run(takes(&host, "refilling", &slow)));
    run(local::set(&host, "pinned", &fast, true)).unwrap();
    for number in 0..1_000 {
        assert!(run(takes(&host, &format!("idle {number}"), &fast)));
    }
    assert_eq!(files(folder.path()).len(), 1_002);
    clock.advance(Duration::from_secs(60));
    for number in 0..500 {
        // Each by a store of its own, as by a process that makes one bucket and ends.
        let host = if number < 100 { &at(&folder, &clock) } else { &host };
        assert!(run(takes(host, &format!("new {number}"), &fast)));
    }
    let held = files(folder.path()).len();
    assert!((502..600).contains(&held), "{held} files");
    let listed = host.list().unwrap();
    assert_eq!(listed.len(), 502);
    assert!(listed.contains(&"refilling".to_owned()) && listed.contains(&"pinned".to_owned()));
    assert!(!run(takes(&host, "refilling", &slow)));
}

#[test]
fn a_swept_or_deleted_bucket_is_noticed_by_others_at_once() {
    let (clock, folder, host) = opened();
    let other = at(&folder, &clock);
    let once = policy("1/h");
    for _ in 0..5 {
        assert!(run(takes(&host, "api", &once)));
        assert!(!run(takes(&other, "api", &once)));
        assert!(run(local::delete(&host, "api")).unwrap());
        assert!(files(folder.path()).is_empty());
        assert!(run(takes(&other, "api", &once)), "a new one");
        assert!(!run(takes(&host, "api", &once)), "which is shared");
        // Evaporated, and swept by a third while both have it open.
        clock.advance(Duration::from_secs(7_200));
        assert!(at(&folder, &clock).list().unwrap().is_empty());
        assert!(files(folder.path()).is_empty());
    }
}

#[test]
fn c23_at_the_instant_of_expiry_with_sweepers_about_the_burst_is_granted_once() {
    let (clock, folder, _) = opened();
    let (ten, fast) = (policy("10/h"), policy("1/s"));
    // Each a process of its own as far as files and locks go.
    let hosts: Vec<Host> = (0..4).map(|_| at(&folder, &clock)).collect();
    for round in 0..150 {
        let granted: usize = std::thread::scope(|threads| {
            let callers: Vec<_> = hosts
                .iter()
                .enumerate()
                .map(|(number, host)| {
                    let (ten, fast) = (&ten, &fast);
                    threads.spawn(move || {
                        run(async {
                            // Making a bucket sweeps, and so does a listing.
                            match number {
                                0 => assert!(takes(host, &format!("new {round}"), fast).await),
                                1 => drop(host.list().unwrap()),
                                _ => {}
                            }
                            let mut granted = 0;
                            for _ in 0..12 {
                                granted += usize::from(takes(host, "api", ten).await);
                            }
                            granted
                        })
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert_eq!(granted, 10, "round {round}");
        clock.advance(Duration::from_secs(7_200));
    }
}

#[test]
fn a_forgotten_bucket_whose_file_a_kill_left_behind_starts_anew_in_it() {
    let (clock, folder, host) = opened();
    let once = policy("1/h");
    assert!(run(takes(&host, "api", &once)));
    let mut left_behind = BucketFile::open(&file(&folder, "api")).unwrap().unwrap();
    let BucketFile { file, slots } = &mut left_behind;
    let (kept, _) = slots.read(file, Some("api")).unwrap();
    slots.write(file, "", 0, None, Some(kept.place())).unwrap();
    assert!(host.list().unwrap().is_empty());
    assert!(!folder.join("api.bucket").exists(), "a listing sweeps it");
    assert!(run(takes(&host, "api", &once)));
    let BucketFile { file, slots } =
        &mut BucketFile::open(&folder.join("api.bucket")).unwrap().unwrap();
    let (kept, _) = slots.read(file, Some("api")).unwrap();
    slots.write(file, "", 0, None, Some(kept.place())).unwrap();
    for host in [host, at(&folder, &clock)] {
        run(local::delete(&host, "other")).unwrap();
        assert_eq!(run(left(&host, "api")).unwrap(), -1);
    }
    let host = at(&folder, &clock);
    assert!(run(takes(&host, "api", &once)));
    assert!(!run(takes(&host, "api", &once)));
}

#[test]
fn a_file_or_folder_removed_by_a_person_is_noticed_soon() {
    let (clock, folder, host) = opened();
    let once = policy("1/h");
    assert!(run(takes(&host, "api", &once)));
    fs::remove_file(file(&folder, "api")).unwrap();
    eventually("the bucket starts anew", || run(takes(&host, "api", &once)));
    assert!(!run(takes(&at(&folder, &clock), "api", &once)), "in a file that all see");
    fs::remove_dir_all(folder.path()).unwrap();
    eventually("the folder is made anew", || run(takes(&host, "api", &once)));
    assert_eq!(files(folder.path()), ["api.bucket"]);
    assert!(!run(takes(&at(&folder, &clock), "api", &once)));
    let other = scratch_dir("host");
    let moved = other.join("moved");
    fs::rename(folder.path(), &moved).unwrap();
    eventually("a moved folder is left", || run(takes(&host, "api", &once)));
    assert_eq!(files(folder.path()), ["api.bucket"]);
}

#[tokio::test]
async fn a_lock_that_is_not_let_go_is_away_after_the_timeout_and_stalls_nobody_else() {
    let (clock, folder) = (ManualClock::at(START), scratch_dir("host"));
    let host = Host::open(Some(folder.path()), Clock::Manual(clock), SHORT).unwrap();
    let two = policy("2/h");
    assert!(takes(&host, "held", &two).await);
    // As a process that was stopped while it held the lock.
    let holder = File::open(file(&folder, "held")).unwrap();
    holder.lock().unwrap();
    let mut order = Vec::new();
    {
        let order = std::cell::RefCell::new(&mut order);
        let held = async {
            let error = take(&host, "held", &two).await.unwrap_err();
            assert!(error.is_unavailable(), "{error}");
            assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
            order.borrow_mut().push("held");
        };
        let free = async {
            assert!(takes(&host, "free", &two).await);
            order.borrow_mut().push("free");
        };
        tokio::join!(held, free);
    }
    assert_eq!(order, ["free", "held"]);
    assert_eq!(host.list().unwrap().len(), 2, "a listing waits for no lock");
    holder.unlock().unwrap();
    assert_eq!(left(&host, "held").await.unwrap(), 1, "nothing was taken");
    // The folder's own lock, which making a bucket needs.
    let maker = File::open(folder.join("paceline.format")).unwrap();
    maker.lock().unwrap();
    assert!(take(&host, "new", &two).await.unwrap_err().is_unavailable());
    assert!(takes(&host, "held", &two).await, "a bucket that is there does not need it");
    maker.unlock().unwrap();
    assert!(takes(&host, "new", &two).await);
}

#[tokio::test]
async fn who_waits_for_a_lock_gets_it_when_it_is_free() {
    let (_, folder, host) = opened();
    let two = policy("2/h");
    assert!(takes(&host, "api", &two).await);
    let holder = File::open(file(&folder, "api")).unwrap();
    holder.lock().unwrap();
    let free = async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        holder.unlock().unwrap();
    };
    assert!(tokio::join!(takes(&host, "api", &two), free).0);
}

#[test]
fn after_a_fork_files_are_opened_anew_since_locks_come_with_open_files() {
    let (clock, folder) = (ManualClock::at(START), scratch_dir("host"));
    let host = Host::open(Some(folder.path()), Clock::Manual(clock), SHORT).unwrap();
    let policy = policy("5/h");
    assert!(run(takes(&host, "api", &policy)));
    let handle = host.handles.get("api", || file(&folder, "api")).unwrap().unwrap();
    // What a parent holds, its forked child would hold, too.
    let parent = handle.alone().file.try_clone().unwrap();
    parent.lock().unwrap();
    assert!(run(takes(&host, "api", &policy)), "the trap: the same open file");
    parent.lock().unwrap();
    host.handles.pretend_forked();
    assert!(run(take(&host, "api", &policy)).unwrap_err().is_unavailable());
    parent.unlock().unwrap();
    assert!(run(takes(&host, "api", &policy)));
    assert_eq!(run(left(&host, "api")).unwrap(), 2);
}

#[test]
fn open_files_are_bounded() {
    let (_, _folder, host) = opened();
    let fast = policy("5/s");
    for number in 0..600 {
        assert!(run(takes(&host, &format!("b {number}"), &fast)));
        assert!(run(takes(&host, &format!("b {number}"), &fast)));
        assert!(host.handles.open_now() <= 256);
    }
    assert!(run(takes(&host, "b 0", &fast)), "what was closed is opened again");
}

#[test]
fn a_write_that_fails_is_an_error_and_the_old_state_stands() {
    let (clock, folder, host) = opened();
    let five = policy("5/h");
    assert!(run(takes(&host, "api", &five)));
    let handle = host.handles.get("api", || file(&folder, "api")).unwrap().unwrap();
    // Open for reading alone: every write fails.
    let whole =
        std::mem::replace(&mut handle.alone().file, File::open(file(&folder, "api")).unwrap());
    for _ in 0..3 {
        let error = run(take(&host, "api", &five)).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        assert!(error.to_string().contains(folder.path().to_str().unwrap()), "{error}");
        assert_eq!(run(left(&host, "api")).unwrap(), 4);
    }
    assert_eq!(run(left(&at(&folder, &clock), "api")).unwrap(), 4);
    handle.alone().file = whole;
    assert!(run(takes(&host, "api", &five)));
    assert_eq!(run(left(&host, "api")).unwrap(), 3);
}

#[test]
fn a_bucket_that_cannot_be_made_is_an_error_and_is_not_there() {
    let (_, folder, host) = opened();
    // The temporary name is taken by a folder.
    fs::create_dir(folder.join(".new")).unwrap();
    assert!(run(take(&host, "api", &policy("5/h"))).is_err());
    assert_eq!(run(left(&host, "api")).unwrap(), -1);
    fs::remove_dir(folder.join(".new")).unwrap();
    // What a killed process left there is written over.
    fs::write(folder.join(".new"), vec![7; 100_000]).unwrap();
    assert!(run(takes(&host, "api", &policy("5/h"))));
    assert_eq!(files(folder.path()), ["api.bucket"]);
    assert_eq!(run(left(&host, "api")).unwrap(), 4);
}

#[test]
fn a_panic_inside_an_operation_lets_the_lock_go_and_changes_nothing() {
    let (clock, folder, host) = opened();
    let five = policy("5/h");
    assert!(run(takes(&host, "api", &five)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(host.update("api", |slot, _| -> ((), Change) {
            *slot = None;
            panic!("on purpose");
        }))
    }));
    assert!(panicked.is_err());
    assert_eq!(run(left(&host, "api")).unwrap(), 4);
    assert!(run(takes(&at(&folder, &clock), "api", &five)));
}

#[test]
fn a_torn_write_leaves_the_old_state_wherever_it_was_torn() {
    let (clock, folder, host) = opened();
    let five = policy("5/h, window 9/h");
    let path = file(&folder, "api");
    assert!(run(takes(&host, "api", &five)));
    let old = fs::read(&path).unwrap();
    assert!(run(takes(&host, "api", &five)));
    let new = fs::read(&path).unwrap();
    let changed: Vec<usize> = (0..new.len()).filter(|&at| old[at] != new[at]).collect();
    assert!(changed.len() > 50 && changed[0] >= 1_024, "the other slot");
    // Any part of the new bytes over the old ones, in either order.
    for &tear in &changed {
        for first in [true, false] {
            let mut torn = if first { old.clone() } else { new.clone() };
            let from = if first { &new } else { &old };
            torn[..tear].copy_from_slice(&from[..tear]);
            fs::write(&path, &torn).unwrap();
            let wanted = if torn == new { 3 } else { 4 };
            assert_eq!(run(left(&at(&folder, &clock), "api")).unwrap(), wanted, "torn at {tear}");
        }
    }
    // The next write mends it.
    let host = at(&folder, &clock);
    assert!(run(takes(&host, "api", &five)) && run(takes(&host, "api", &five)));
    assert_eq!(run(left(&at(&folder, &clock), "api")).unwrap(), 2);
}

#[test]
fn a_file_broken_twice_is_an_error_that_says_what_to_do_and_never_a_grant() {
    let (clock, folder, host) = opened();
    let five = policy("5/h");
    let path = file(&folder, "api");
    assert!(run(takes(&host, "api", &five)) && run(takes(&host, "api", &five)));
    let whole = fs::read(&path).unwrap();
    let mut broken = whole.clone();
    (broken[30], broken[1_054]) = (broken[30] ^ 1, broken[1_054] ^ 1);
    let cut = whole[..100].to_vec();
    for bytes in [Vec::new(), vec![0; 2_048], vec![0xff; 8_192], cut, broken] {
        fs::write(&path, &bytes).unwrap();
        // With the heads whole, who wrote the state still knows it.
        let hosts = if bytes.len() == whole.len() && bytes[..24] == whole[..24] { 1 } else { 2 };
        for host in [&at(&folder, &clock), &host].into_iter().take(hosts) {
            let error = run(take(host, "api", &five)).unwrap_err();
            assert!(error.is_incompatible(), "{error}");
            let message = error.to_string();
            assert!(message.contains("remove it"), "{message}");
            assert!(message.contains(path.to_str().unwrap()), "{message}");
        }
        assert!(host.list().unwrap().is_empty());
        assert_eq!(fs::read(&path).unwrap(), bytes, "it is left for whoever looks into it");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(run(left(&host, "api")).unwrap(), 3);
    // What the error says helps, also where the broken file is open.
    fs::write(&path, "broken").unwrap();
    assert!(run(take(&host, "api", &five)).is_err());
    fs::remove_file(&path).unwrap();
    assert!(run(takes(&host, "api", &five)));
    assert_eq!(run(left(&host, "api")).unwrap(), 4);
}

#[test]
fn no_single_broken_byte_gives_more_than_the_old_state() {
    let (clock, folder, host) = opened();
    let five = policy("5/h");
    let path = file(&folder, "api");
    assert!(run(takes(&host, "api", &five)) && run(takes(&host, "api", &five)));
    let whole = fs::read(&path).unwrap();
    for at_byte in (0..160).chain(1_024..1_184) {
        for bit in [1, 0x80] {
            let mut broken = whole.clone();
            broken[at_byte] ^= bit;
            fs::write(&path, &broken).unwrap();
            let left = run(left(&at(&folder, &clock), "api")).unwrap();
            let allowed = if at_byte < 1_024 { 3..=3 } else { 3..=4 };
            assert!(allowed.contains(&left), "byte {at_byte}: {left}");
        }
    }
}

#[test]
fn a_file_of_another_bucket_or_a_newer_version_is_refused() {
    let (clock, folder, host) = opened();
    let five = policy("5/h");
    assert!(run(takes(&host, "a", &five)));
    fs::copy(file(&folder, "a"), file(&folder, "b")).unwrap();
    let error = run(take(&host, "b", &five)).unwrap_err();
    assert!(error.is_incompatible() && error.to_string().contains("bucket \"a\""), "{error}");
    fs::remove_file(file(&folder, "b")).unwrap();
    // As a later version may write it: another version, under a checksum that fits.
    let newer = super::file::with_version(&fs::read(file(&folder, "a")).unwrap(), 2);
    fs::write(file(&folder, "a"), newer).unwrap();
    for host in [host, at(&folder, &clock)] {
        let error = run(take(&host, "a", &five)).unwrap_err();
        assert!(error.is_incompatible() && error.to_string().contains("version 2"), "{error}");
    }
}

#[test]
fn a_state_too_long_for_its_slot_is_kept_whole_and_as_safely() {
    let (clock, folder, host) = opened();
    let windows: Vec<_> = (1..=8).map(|hours| format!("window 64/{hours}h")).collect();
    let long = policy(&windows.join(", "));
    let path = file(&folder, "api");
    for used in 1..=64 {
        assert!(run(takes(&host, "api", &long)));
        clock.advance(Duration::from_millis(777));
        assert_eq!(run(left(&at(&folder, &clock), "api")).unwrap(), 64 - used);
    }
    assert!(!run(takes(&host, "api", &long)));
    let whole = fs::read(&path).unwrap();
    assert!(whole.len() > 4_096, "{} bytes", whole.len());
    // Garble the end: one of the two long records.
    let mut broken = whole.clone();
    if let Some(last) = broken.last_mut() {
        *last ^= 1;
    }
    fs::write(&path, &broken).unwrap();
    let after = run(left(&at(&folder, &clock), "api")).unwrap();
    assert!((0..=1).contains(&after), "{after}");
    fs::write(&path, &whole).unwrap();
    // And short again.
    run(local::set(&host, "api", &policy("64/h"), false)).unwrap();
    assert_eq!(run(left(&at(&folder, &clock), "api")).unwrap(), 64);
}

#[test]
fn a_reason_is_kept_for_others_to_read() {
    let (clock, folder, host) = opened();
    let why = Suspension { reason: "r".repeat(256), by: "host/1".to_owned() };
    let name = "ä".repeat(128);
    run(local::suspend(&host, &name, 60_000_000, 0, why.clone())).unwrap();
    let look = run(local::look(&at(&folder, &clock), &name)).unwrap();
    assert_eq!(look.bucket.unwrap().state.suspension, Some(why));
    assert_eq!(host.list().unwrap(), [name]);
}
