//! What one caller waits: over Redis with nobody else there, against the bare round trip; and past
//! the moment its call is due.

use std::time::{Duration, Instant};

use paceline::Limiter;
use paceline_testkit::{RedisServer, scratch_dir};

use crate::Figure;

const CALLS: usize = 20_000;
const WAKE_UPS: usize = 400;

/// `acquire` and `spend` over Redis against a PING over the same kind of connection, in turn.
pub(crate) fn against_ping(what: &str, target: f64) -> Figure {
    let server = RedisServer::start();
    let (mut ours, mut pings) = crate::runtime().block_on(async {
        let limiter = Limiter::open(&server.url()).await.expect("our own server");
        let bucket = limiter.bucket("figures", "1000000/s burst 1000000000").expect("a policy");
        let client = redis::Client::open(server.url()).expect("our own URL");
        let mut connection =
            client.get_multiplexed_async_connection().await.expect("our own server");
        let ping = redis::cmd("PING");
        let (mut ours, mut pings) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let start = Instant::now();
            ping.query_async::<redis::Value>(&mut connection).await.expect("an answer");
            let between = Instant::now();
            bucket.acquire().await.expect("an answer").spend();
            ours.push(between.elapsed().as_secs_f64() * 1e6);
            pings.push((between - start).as_secs_f64() * 1e6);
        }
        (ours, pings)
    });
    let (ours, ping) = (crate::median(&mut ours), crate::median(&mut pings));
    Figure {
        what: what.to_owned(),
        target: format!("at most {target} times a PING"),
        measured: format!("p50 {ours:.1} us, {:.2} times a PING's {ping:.1} us", ours / ping),
        met: ours / ping <= target,
    }
}

/// How late a call goes. One caller takes one place after the other from a paced bucket whose
/// moments lie on a grid: no call can go before its moment, so the earliest against the grid marks
/// where the moments are, and each other is late by what it is behind that.
pub(crate) fn wake_ups(what: &str, redis: bool, target_ms: f64) -> Figure {
    const PACE: Duration = Duration::from_millis(20);
    let folder = scratch_dir("figures");
    let server = redis.then(RedisServer::start);
    let url = match &server {
        Some(server) => server.url(),
        None => format!("host:{}", folder.path().display()),
    };
    let mut late_ms = crate::runtime().block_on(async {
        let limiter = Limiter::open(&url).await.expect("a store");
        let bucket = limiter.bucket("figures", "50/s burst 1").expect("a policy");
        bucket.acquire().await.expect("the store answers").spend();
        let start = Instant::now();
        let mut off_grid = Vec::new();
        for number in 1..=WAKE_UPS {
            bucket.acquire().await.expect("the store answers").spend();
            let moment = PACE * u32::try_from(number).expect("few");
            off_grid.push(start.elapsed().as_secs_f64() * 1e3 - moment.as_secs_f64() * 1e3);
        }
        let first = off_grid.iter().copied().fold(f64::INFINITY, f64::min);
        off_grid.into_iter().map(|off| off - first).collect::<Vec<_>>()
    });
    let p50 = crate::median(&mut late_ms);
    let p99 = late_ms[late_ms.len() * 99 / 100];
    Figure {
        what: what.to_owned(),
        target: format!("p99 at most {target_ms} ms"),
        measured: format!("p50 {p50:.2} ms, p99 {p99:.2} ms late"),
        met: p99 <= target_ms,
    }
}
