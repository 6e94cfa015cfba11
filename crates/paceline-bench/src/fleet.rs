//! Real processes before a strict provider: what the provider refuses, what of its quota is used,
//! and what is asked of the store for each call that goes out. Every call takes up to 10 ms to the
//! provider.

pub(crate) mod provider;
pub(crate) mod worker;

use std::time::Duration;

use paceline_testkit::{RedisServer, scratch_dir};

use self::provider::{Arrival, Provider, Quota};
use self::worker::{Job, Worker};
use crate::Figure;

/// Commands that the script runs inside the server, and those of this measurement.
const INNER: [&str; 10] = [
    "hget",
    "hset",
    "hmget",
    "hdel",
    "hgetall",
    "pexpire",
    "time",
    "publish",
    "config|resetstat",
    "info",
];

/// One fleet to measure.
#[derive(Debug, Clone)]
struct Fleet {
    policy: String,
    quota: Quota,
    /// Else the host store.
    redis: bool,
    processes: usize,
    callers: usize,
    seconds: u64,
}

/// Eight processes of twenty callers, 50 calls a second.
pub(crate) fn fast(fixed: bool, redis: bool) -> Figure {
    let what = name("50 per 1 s", fixed, redis);
    let operations = if redis { 1.5 } else { f64::INFINITY };
    measure(&what, fleet(50, 1, fixed, redis), Wanted { share: 0.93, operations })
}

/// The same with 1000 calls in ten seconds.
pub(crate) fn slow(fixed: bool, redis: bool) -> Figure {
    let what = name("1000 per 10 s", fixed, redis);
    let operations = if redis { 0.3 } else { f64::INFINITY };
    measure(&what, fleet(1_000, 10, fixed, redis), Wanted { share: 0.98, operations })
}

/// A hundred processes.
pub(crate) fn many() -> Figure {
    let fleet = Fleet { processes: 100, ..fleet(50, 1, false, true) };
    measure("fleet of 100, redis", fleet, Wanted { share: 0.93, operations: 3.0 })
}

fn name(quota: &str, fixed: bool, redis: bool) -> String {
    let (kind, store) =
        (if fixed { "fixed" } else { "sliding" }, if redis { "redis" } else { "host" });
    format!("fleet, {quota}, {kind}, {store}")
}

fn fleet(limit: usize, seconds: u64, fixed: bool, redis: bool) -> Fleet {
    Fleet {
        policy: format!("strict {limit}/{seconds}s guard 30ms"),
        quota: Quota { limit, interval: Duration::from_secs(seconds), fixed },
        redis,
        processes: 8,
        callers: 20,
        seconds: 30,
    }
}

/// What is wanted of it: least share of the quota, most operations a call.
struct Wanted {
    share: f64,
    operations: f64,
}

/// Runs a fleet. Words `policy=…`, `seconds=…`, `processes=…` on the command line change it.
fn measure(what: &str, mut fleet: Fleet, wanted: Wanted) -> Figure {
    for word in std::env::args() {
        match word.split_once('=') {
            Some(("policy", policy)) => fleet.policy = policy.to_owned(),
            Some(("seconds", seconds)) => fleet.seconds = seconds.parse().expect("a number"),
            Some(("processes", number)) => fleet.processes = number.parse().expect("a number"),
            _ => {}
        }
    }
    let seen = run(&fleet);
    let Seen { calls, refused, share, operations, fairness, longest_wait } = seen;
    Figure {
        what: what.to_owned(),
        target: format!(
            "0 429s, {:.0} %, {} a call",
            wanted.share * 100.0,
            if wanted.operations.is_finite() {
                wanted.operations.to_string()
            } else {
                "-".to_owned()
            }
        ),
        measured: format!(
            "{refused} 429s of {calls}, {:.1} % used, {operations:.2} a call, Jain {fairness:.3}, \
             longest mean wait {longest_wait:.1} times the mean",
            share * 100.0
        ),
        met: refused == 0 && share >= wanted.share && operations <= wanted.operations,
    }
}

struct Seen {
    calls: usize,
    refused: usize,
    share: f64,
    operations: f64,
    fairness: f64,
    /// The longest mean wait of a process, in means of all.
    longest_wait: f64,
}

fn run(fleet: &Fleet) -> Seen {
    let server = fleet.redis.then(RedisServer::start);
    let folder = scratch_dir("figures");
    let url = match &server {
        Some(server) => server.url(),
        None => format!("host:{}", folder.path().display()),
    };
    let provider = Provider::start(fleet.quota, 1);
    let job = Job {
        url,
        policy: fleet.policy.clone(),
        provider: provider.addr(),
        callers: fleet.callers,
        buckets: 1,
        seconds: fleet.seconds,
        timeout: Duration::from_secs(5),
    };
    let mut workers: Vec<Worker> =
        (0..fleet.processes).map(|number| Worker::start(number, &job)).collect();
    if let Some(server) = &server {
        server.command(&["CONFIG", "RESETSTAT"]);
    }
    workers.iter_mut().for_each(Worker::go);
    let told: Vec<_> = workers.iter_mut().map(Worker::told).collect();
    assert_eq!(told.iter().map(|it| it.errors).sum::<u64>(), 0, "the store answers");
    let mut operations: f64 = told.iter().map(|it| it.operations).sum();
    if let Some(server) = &server {
        let stats = server.command(&["INFO", "commandstats"]);
        let text = stats.text().expect("a text").to_owned();
        operations = text.lines().filter_map(calls_of_client).sum();
    }
    seen(fleet, &provider.stop(), operations)
}

/// Calls of a line of `INFO commandstats`, where a client sent them.
fn calls_of_client(line: &str) -> Option<f64> {
    let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = stats.strip_prefix("calls=")?.split(',').next()?;
    if INNER.contains(&command) { None } else { calls.parse().ok() }
}

#[allow(clippy::cast_precision_loss, reason = "figures")]
fn seen(fleet: &Fleet, arrivals: &[Arrival], operations: f64) -> Seen {
    let first = arrivals.first().expect("somebody called").at;
    let span = Duration::from_secs(fleet.seconds);
    let within = |arrival: &&Arrival| arrival.accepted && arrival.at - first < span;
    let accepted = arrivals.iter().filter(within).count() as f64;
    let allowed =
        fleet.quota.limit as f64 * span.as_secs_f64() / fleet.quota.interval.as_secs_f64();
    let mut by_worker = vec![(0.0, 0.0); fleet.processes];
    for arrival in arrivals {
        let (calls, waited) = &mut by_worker[arrival.worker];
        *calls += 1.0;
        *waited += arrival.waited_us as f64;
    }
    let calls: f64 = by_worker.iter().map(|it| it.0).sum();
    let squares: f64 = by_worker.iter().map(|it| it.0 * it.0).sum();
    let mean = by_worker.iter().map(|it| it.1).sum::<f64>() / calls;
    let longest = by_worker.iter().map(|it| it.1 / it.0.max(1.0)).fold(0.0, f64::max);
    Seen {
        calls: arrivals.len(),
        refused: arrivals.iter().filter(|arrival| !arrival.accepted).count(),
        share: accepted / allowed,
        operations: operations / calls,
        fairness: calls * calls / (fleet.processes as f64 * squares),
        longest_wait: longest / mean,
    }
}
