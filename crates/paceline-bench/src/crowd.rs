//! A thousand tasks of one process that want permits from one bucket whose limit is far away: what
//! the driver's batches are worth. Each task takes the same number of permits, one after the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline::{Limiter, Policy};
use paceline_core::Ask;
use paceline_core::script::{self, Call};
use paceline_testkit::{RedisServer, scratch_dir};
use redis::aio::MultiplexedConnection;
use tokio::runtime::{Builder, Runtime};

use crate::Figure;

const POLICY: &str = "1000000/s burst 1000000000";
const TASKS: usize = 1_000;
/// Permits a task takes in one round of each kind.
const PERMITS: usize = 200;
const SINGLES: usize = 30;
const ROUNDS: usize = 9;

/// Permits a second over Redis, against the same tasks each doing one EVALSHA of the single
/// decision for each permit.
pub(crate) fn redis(what: &str, target_times: f64, target: f64) -> Figure {
    let server = RedisServer::start();
    let mut best = (0.0, 0.0, "");
    for (name, runtime) in runtimes() {
        let limiter = runtime.block_on(open(&server.url()));
        let singles = runtime.block_on(Singles::new(&server.url()));
        let (mut rates, mut times) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let single = runtime.block_on(singles.rate());
            let ours = runtime.block_on(rate(&limiter, PERMITS));
            rates.push(ours);
            times.push(ours / single);
        }
        let (rate, times) = (crate::median(&mut rates), crate::median(&mut times));
        if rate > best.0 {
            best = (rate, times, name);
        }
    }
    let (rate, times, name) = best;
    Figure {
        what: what.to_owned(),
        target: format!("{target_times} times, {target}/s"),
        measured: format!("{rate:.0}/s, {times:.1} times single EVALSHAs ({name})"),
        met: rate >= target && times >= target_times,
    }
}

/// Permits a second in the memory store, or the host store.
pub(crate) fn local(what: &str, host: bool, target: f64) -> Figure {
    let folder = scratch_dir("figures");
    let url = if host { format!("host:{}", folder.path().display()) } else { "memory:".to_owned() };
    let mut best = (0.0, "");
    for (name, runtime) in runtimes() {
        let limiter = runtime.block_on(open(&url));
        let mut rates: Vec<f64> =
            (0..ROUNDS).map(|_| runtime.block_on(rate(&limiter, PERMITS))).collect();
        let rate = crate::median(&mut rates);
        if rate > best.0 {
            best = (rate, name);
        }
    }
    let (rate, name) = best;
    Figure {
        what: what.to_owned(),
        target: format!("at least {target}/s"),
        measured: format!("{rate:.0}/s ({name})"),
        met: rate >= target,
    }
}

fn runtimes() -> [(&'static str, Runtime); 2] {
    let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    [("one thread", crate::runtime()), ("two threads", threads.expect("a runtime"))]
}

async fn open(url: &str) -> Limiter {
    let builder = Limiter::builder(url).timeout(Duration::from_secs(10));
    builder.open().await.expect("a store")
}

/// Permits a second of all tasks together.
async fn rate(limiter: &Limiter, permits: usize) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let bucket = limiter.bucket("figures", POLICY).expect("a policy");
            tokio::spawn(async move {
                for _ in 0..permits {
                    bucket.acquire().await.expect("the store answers").spend();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    (TASKS * permits) as f64 / start.elapsed().as_secs_f64()
}

/// One EVALSHA a permit.
struct Singles {
    connection: MultiplexedConnection,
    sha: Arc<str>,
    args: Arc<Vec<Vec<u8>>>,
}

impl Singles {
    async fn new(url: &str) -> Self {
        let client = redis::Client::open(url).expect("our own URL");
        let mut connection =
            client.get_multiplexed_async_connection().await.expect("our own server");
        let sha: String = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(script::SOURCE)
            .query_async(&mut connection)
            .await
            .expect("the script loads");
        let policy: Policy = POLICY.parse().expect("a policy");
        let ask = Ask { cost: 1.into(), wait_max_us: 0 };
        let args = Call::Take { policy: &policy, ask }.args(None);
        let args = args.into_iter().map(|arg| arg.into_owned()).collect();
        Self { connection, sha: sha.into(), args: Arc::new(args) }
    }

    async fn rate(&self) -> f64 {
        let start = Instant::now();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (mut connection, sha, args) =
                    (self.connection.clone(), Arc::clone(&self.sha), Arc::clone(&self.args));
                tokio::spawn(async move {
                    for _ in 0..SINGLES {
                        let mut evalsha = redis::cmd("EVALSHA");
                        evalsha.arg(&*sha).arg(1).arg("paceline:{single}").arg(&*args);
                        evalsha
                            .query_async::<redis::Value>(&mut connection)
                            .await
                            .expect("the server answers");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("a task");
        }
        (TASKS * SINGLES) as f64 / start.elapsed().as_secs_f64()
    }
}
