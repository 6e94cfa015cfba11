//! Several processes on one folder, killed at any instant. The workers are this test binary again,
//! told by the environment what to do.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::*;

/// Tells a worker what to do: folder, log and how often it may be refused, one a line.
const WORKER: &str = "PACELINE_TEST_HOST_WORKER";
const KILLS: usize = 300;
const PROCESSES: usize = 4;
/// Refills one token in two minutes, so what is taken in a test is gone. The clocks are each
/// worker's own, moved by hand, and differ.
const BURST: i64 = 3_000_000;
const SHARED: &str = "3000000/3650d burst 3000000";
/// The same with windows whose record does not fit in a slot and is written in two steps.
const LONG: &str = "3000000/3650d burst 3000000, window 64/3ms, window 64/4ms, window 64/5ms, \
                    window 64/6ms, window 64/7ms, window 64/8ms, window 64/9ms";

struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    fn start(folder: &Path, log: PathBuf, refusals: usize) -> Self {
        let task = format!("{}\n{}\n{refusals}", folder.display(), log.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::host::tests::processes::worker", "--ignored"])
            .env(WORKER, task)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Grants it has told of, in either bucket.
    fn grants(&self) -> [i64; 2] {
        let log = fs::read(&self.log).unwrap_or_default();
        [b's', b'l'].map(|of| i64::try_from(log.iter().filter(|it| **it == of).count()).unwrap())
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "a worker, started by the tests of this file"]
fn worker() {
    let Ok(task) = std::env::var(WORKER) else { return };
    let mut lines = task.lines();
    let mut next = || lines.next().unwrap();
    let (folder, log, refusals) = (next(), next(), next().parse::<usize>().unwrap());
    let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    let clock = ManualClock::at(START);
    let host = Host::open(Some(Path::new(folder)), Clock::Manual(clock.clone()), BOUND).unwrap();
    let (shared, long) = (policy(SHARED), policy(LONG));
    let mut refused = 0;
    run(async {
        // Ends by being killed or refused; the bound is for a test that forgot it.
        for round in 0..10_000_000_u64 {
            if takes(&host, "shared", &shared).await {
                log.write_all(b"s").unwrap();
            } else {
                refused += 1;
            }
            if takes(&host, "long", &long).await {
                log.write_all(b"l").unwrap();
            }
            if round % 64 == 0 {
                // Buckets that come and go, made and removed by several at once.
                let name = format!("passing {}", round / 64 % 4);
                takes(&host, &name, &shared).await;
                local::delete(&host, &name).await.unwrap();
            }
            if refused > refusals {
                return;
            }
            clock.advance(Duration::from_micros(150));
        }
    });
}

#[test]
fn three_hundred_kills_under_load_tear_nothing_and_mint_nothing() {
    let (scratch, clock) = (scratch_dir("kills"), ManualClock::at(START));
    let folder = scratch.join("folder");
    let mut logs = 0;
    let mut start = || {
        logs += 1;
        Worker::start(&folder, scratch.join(format!("log {logs}")), usize::MAX)
    };
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|_| start()).collect();
    let mut told = [0, 0];
    let mut add = |worker: &mut Worker, grants: i64| {
        eventually("the worker is at work", || worker.grants()[0] > grants);
        worker.kill();
        let grants = worker.grants();
        told = [told[0] + grants[0], told[1] + grants[1]];
    };
    for kill in 0..KILLS {
        let worker = &mut workers[kill % PROCESSES];
        // At another moment of its work each time.
        add(worker, i64::try_from(kill % 150).unwrap());
        *worker = start();
    }
    workers.iter_mut().for_each(|worker| add(worker, 0));
    let kills = i64::try_from(KILLS + PROCESSES).unwrap();

    let host = Host::open(Some(&folder), Clock::Manual(clock), BOUND).unwrap();
    let mut lost = 0;
    for (name, told) in ["shared", "long"].into_iter().zip(told) {
        let gone = BURST - run(left(&host, name)).unwrap();
        assert!(told > kills, "{name}: under load, {told} grants");
        assert!(gone >= told, "{name}: {told} grants, but only {gone} tokens are gone");
        lost += gone - told;
    }
    assert!(lost <= kills, "{lost} tokens lost by {kills} kills");
    for name in host.list().unwrap() {
        run(local::look(&host, &name)).unwrap();
        assert!(["shared", "long"].contains(&&*name) || name.starts_with("passing"), "{name}");
    }
    let odd: Vec<_> =
        files(&folder).into_iter().filter(|it| !it.ends_with(".bucket") && it != ".new").collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn four_processes_get_the_burst_and_not_one_more() {
    let (scratch, clock) = (scratch_dir("processes"), ManualClock::at(START));
    let folder = scratch.join("folder");
    let host = Host::open(Some(&folder), Clock::Manual(clock), BOUND).unwrap();
    // Who made the bucket says how much it holds.
    let few = policy("2000/3650d");
    run(local::set(&host, "shared", &few, true)).unwrap();
    let mut workers: Vec<Worker> = (0..PROCESSES)
        .map(|number| Worker::start(&folder, scratch.join(format!("log {number}")), 20))
        .collect();
    let mut granted = 0;
    for worker in &mut workers {
        assert!(worker.child.wait().unwrap().success());
        granted += worker.grants()[0];
    }
    assert_eq!(granted, 2_000);
    assert_eq!(run(left(&host, "shared")).unwrap(), 0);
}
