//! What users feel of servers that fail, move, stop and forget: each against real ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use paceline::{Answer, Limiter};
use paceline_testkit::{FaultProxy, RedisCluster, RedisServer, SentinelSet};

use crate::Figure;
use crate::fleet::provider::{Provider, Quota};
use crate::fleet::worker::{Job, Worker};

/// What one operation may take; the library's own default.
const TIMEOUT: Duration = Duration::from_millis(250);
const PROCESSES: usize = 8;

/// A primary behind Sentinels dies under eight processes: from the promotion of the replica until
/// each process has made a shared decision again, the longest. How long sentinels take to promote
/// one is theirs; where they take longer than the workers run, it is tried again.
pub(crate) fn failover(what: &str, target_s: f64) -> Figure {
    let seen = (0..5).find_map(|_| failed_over());
    let Some((promoted_s, longest_s, errors, refused)) = seen else {
        panic!("five times no promotion while the workers ran")
    };
    Figure {
        what: what.to_owned(),
        target: format!("at most {target_s} s"),
        measured: format!(
            "{longest_s:.2} s (promoted {promoted_s:.2} s after the kill; {errors} errors, \
             {refused} 429s)"
        ),
        met: longest_s <= target_s,
    }
}

/// Seconds until the promotion and from it to the last process's first call; errors and 429s.
fn failed_over() -> Option<(f64, f64, u64, usize)> {
    const SECONDS: u64 = 14;
    let set = SentinelSet::start();
    let quota = Quota { limit: 200, interval: Duration::from_secs(1), fixed: false };
    let provider = Provider::start(quota, 1);
    let mut workers = workers(&set.url(), "strict 200/s guard 60ms", &provider, 1, SECONDS);
    let began = Instant::now();
    workers.iter_mut().for_each(Worker::go);
    std::thread::sleep(Duration::from_secs(3));
    let old = set.kill_primary();
    let killed = Instant::now();
    let promoted = set.wait_for_promotion(old);
    let errors: u64 = workers.iter_mut().map(|worker| worker.told().errors).sum();
    let arrivals = provider.stop();
    if promoted > began + Duration::from_secs(SECONDS - 4) {
        return None;
    }
    let first = |worker: usize| {
        let after = arrivals.iter().find(|it| it.worker == worker && it.at >= promoted);
        after.map_or(f64::INFINITY, |it| (it.at - promoted).as_secs_f64())
    };
    let longest_s = (0..PROCESSES).map(first).fold(0.0, f64::max);
    let refused = arrivals.iter().filter(|it| !it.accepted).count();
    Some(((promoted - killed).as_secs_f64(), longest_s, errors, refused))
}

/// All slots of a Cluster move to another primary under eight processes on 24 buckets.
pub(crate) fn reshard(what: &str) -> Figure {
    const BUCKETS: usize = 24;
    const SECONDS: u64 = 90;
    let cluster = RedisCluster::builder().replicas(0).start();
    let quota = Quota { limit: 20, interval: Duration::from_secs(1), fixed: false };
    let provider = Provider::start(quota, BUCKETS);
    let mut workers =
        workers(&cluster.url(), "strict 20/s guard 60ms", &provider, BUCKETS, SECONDS);
    workers.iter_mut().for_each(Worker::go);
    std::thread::sleep(Duration::from_secs(1));
    let start = Instant::now();
    let owners: Vec<usize> = [0, 5_461, 10_923].map(|slot| cluster.owner(slot)).to_vec();
    let mut moved = 0;
    for (slots, owner) in [(0..=5_460), (5_461..=10_922), (10_923..=16_383)].into_iter().zip(owners)
    {
        moved += slots.clone().count();
        cluster.move_slots(slots, (owner + 1) % 3);
    }
    let took = start.elapsed();
    let errors: u64 = workers.iter_mut().map(|worker| worker.told().errors).sum();
    let arrivals = provider.stop();
    let over = arrivals.iter().filter(|it| !it.accepted).count();
    let during = arrivals.iter().filter(|it| it.at < start + took).count();
    Figure {
        what: what.to_owned(),
        target: "0 errors, 0 over".to_owned(),
        measured: format!(
            "{errors} errors, {over} over of {during} calls while {moved} slots moved in {:.0} s",
            took.as_secs_f64()
        ),
        met: errors == 0 && over == 0 && took < Duration::from_secs(SECONDS - 2),
    }
}

fn workers(
    url: &str,
    policy: &str,
    provider: &Provider,
    buckets: usize,
    seconds: u64,
) -> Vec<Worker> {
    let job = Job {
        url: url.to_owned(),
        policy: policy.to_owned(),
        provider: provider.addr(),
        callers: buckets.max(20),
        buckets,
        seconds,
        timeout: TIMEOUT,
    };
    (0..PROCESSES).map(|number| Worker::start(number, &job)).collect()
}

/// A server that stops for ten seconds under a thousand calls a second: the slowest decision, and
/// the most connections at a time during that and after.
pub(crate) fn stopped(what: &str, slack: Duration, connections_max: usize) -> Figure {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let slowest_us = AtomicU64::new(0);
    let (answered, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let connections = AtomicUsize::new(0);
    let over = AtomicBool::new(false);
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                connections.fetch_max(proxy.connections_now(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        crate::runtime().block_on(async {
            let limiter = Limiter::builder(&proxy.url()).timeout(TIMEOUT).open().await;
            let limiter = limiter.expect("a store");
            let bucket = limiter.bucket("figures", "1000000/s").expect("a policy");
            // Somebody who waits has the second connection made, which hears of changes.
            let slow = limiter.bucket("slow", "1/h").expect("a policy");
            slow.acquire().await.expect("the store answers").spend();
            let waits = tokio::spawn(async move { slow.acquire().await.map(|it| it.spend()) });
            let ask = async || {
                let start = Instant::now();
                let answer = bucket.try_acquire().await;
                let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                slowest_us.fetch_max(took, Ordering::Relaxed);
                match answer {
                    Ok(Answer::Granted(permit)) => {
                        permit.spend();
                        answered.fetch_add(1, Ordering::Relaxed);
                        true
                    }
                    _ => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        false
                    }
                }
            };
            let start = Instant::now();
            let callers: Vec<_> = (0..100)
                .map(|caller| async move {
                    let mut back: Option<Instant> = None;
                    let mut tick = tokio::time::interval(Duration::from_millis(100));
                    tokio::time::sleep(Duration::from_millis(caller)).await;
                    // One second before, ten of stop, four after.
                    while start.elapsed() < Duration::from_secs(15) {
                        tick.tick().await;
                        let good = ask().await;
                        if good && start.elapsed() > Duration::from_secs(11) && back.is_none() {
                            back = Some(Instant::now());
                        }
                    }
                    back
                })
                .collect();
            let breaker = async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                server.pause();
                tokio::time::sleep(Duration::from_secs(10)).await;
                server.resume();
                Instant::now()
            };
            let (resumed, backs) = tokio::join!(breaker, futures_util::future::join_all(callers));
            waits.abort();
            over.store(true, Ordering::Relaxed);
            let last = backs.into_iter().map(|back| back.map(|it| it - resumed)).collect();
            let last: Option<Vec<Duration>> = last;
            last.and_then(|all| all.into_iter().max())
        })
    });
    let slowest = Duration::from_micros(slowest_us.load(Ordering::Relaxed));
    let connections = connections.load(Ordering::Relaxed);
    Figure {
        what: what.to_owned(),
        target: format!("at most {:?}, {connections_max} connections", TIMEOUT + slack),
        measured: format!(
            "{slowest:.0?}, {connections} connections; {} answered, {} told away, all back {}",
            answered.load(Ordering::Relaxed),
            failed.load(Ordering::Relaxed),
            back.map_or("never".to_owned(), |back| format!("{:.2} s after", back.as_secs_f64()))
        ),
        met: slowest <= TIMEOUT + slack && connections <= connections_max && back.is_some(),
    }
}

/// Scripts are flushed under 512 concurrent calls: how often the script is loaded again.
pub(crate) fn flush(what: &str, loads_max: u64) -> Figure {
    const CALLS: usize = 512;
    let server = RedisServer::start();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    let (mut loads, mut errors) = (0, 0);
    runtime.block_on(async {
        let limiter = Limiter::open(&server.url()).await.expect("a store");
        let bucket = Arc::new(limiter.bucket("figures", "1000000/s").expect("a policy"));
        bucket.acquire().await.expect("the store answers").spend();
        for _ in 0..10 {
            server.command(&["SCRIPT", "FLUSH"]);
            server.command(&["CONFIG", "RESETSTAT"]);
            let calls: Vec<_> = (0..CALLS)
                .map(|_| {
                    let bucket = Arc::clone(&bucket);
                    tokio::spawn(async move { bucket.try_acquire().await.is_ok() })
                })
                .collect();
            for call in calls {
                errors += u64::from(!call.await.expect("a task"));
            }
            let stats = server.command_stats("script|load").map_or(0, |stats| stats.calls);
            loads = stats.max(loads);
        }
    });
    Figure {
        what: what.to_owned(),
        target: format!("at most {loads_max} loads, 0 errors"),
        measured: format!("{loads} loads in the worst of 10 flushes, {errors} errors"),
        met: loads <= loads_max && errors == 0,
    }
}
