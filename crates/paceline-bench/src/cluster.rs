//! A thousand buckets in a Cluster of three primaries, against the same in one server.

use std::time::{Duration, Instant};

use paceline::Limiter;
use paceline_testkit::{RedisCluster, RedisServer};

use crate::Figure;

const BUCKETS: usize = 1_000;
/// Decisions on each bucket in one round.
const DECISIONS: usize = 40;
const ROUNDS: usize = 9;

/// Decisions a second, in times those of one server.
pub(crate) fn against_one(what: &str, target: f64) -> Figure {
    let cluster = RedisCluster::builder().replicas(0).start();
    let server = RedisServer::start();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().expect("a runtime");
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    runtime.block_on(async {
        let (many, one) = (open(&cluster.url()).await, open(&server.url()).await);
        for _ in 0..ROUNDS {
            let alone = rate(&one).await;
            let together = rate(&many).await;
            rates.push(together);
            times.push(together / alone);
        }
    });
    let (rate, times) = (crate::median(&mut rates), crate::median(&mut times));
    Figure {
        what: what.to_owned(),
        target: format!("at least {target:.1} times"),
        measured: format!("{times:.2} times, {rate:.0}/s"),
        met: times >= target,
    }
}

async fn open(url: &str) -> Limiter {
    let builder = Limiter::builder(url).timeout(Duration::from_secs(10));
    builder.open().await.expect("a store")
}

/// A task a bucket, each asking for one decision after the other.
async fn rate(limiter: &Limiter) -> f64 {
    let start = Instant::now();
    let tasks: Vec<_> = (0..BUCKETS)
        .map(|number| {
            let name = format!("figures {number}");
            let bucket = limiter.bucket(&name, "1000000/s burst 1000000000").expect("a policy");
            tokio::spawn(async move {
                for _ in 0..DECISIONS {
                    bucket.acquire().await.expect("the store answers").spend();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    (BUCKETS * DECISIONS) as f64 / start.elapsed().as_secs_f64()
}
