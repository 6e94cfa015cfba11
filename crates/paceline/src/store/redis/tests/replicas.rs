//! What a failover forgets, and how that is narrowed. A replica is behind by what it has not heard
//! yet; promoted, it has never heard it. So a bucket lets through again what was taken since, and
//! not one call more. With `?replicas=1` a call is granted only when the replica has it.

use std::sync::Arc;
use std::time::Duration;

use paceline_core::Policy;
use paceline_testkit::{Mode, RedisServer, ReplicaPair};

use super::super::Redis;
use super::{BOUND, SHORT, granted, open, policy, take};
use crate::clock::{Clock, ManualClock};
use crate::store::contract::START;
use crate::store::url::StoreUrl;

/// Takes until refused; how many were granted.
async fn taken_until_refused(store: &Redis, policy: &Arc<Policy>) -> usize {
    let mut count = 0;
    while granted(take(store, "api", policy).await) {
        count += 1;
        assert!(count < 100, "no end");
    }
    count
}

#[tokio::test]
async fn a_failover_forgets_just_what_the_replica_had_not_heard() {
    for shape in ["1/d burst 10", "window 10/d"] {
        let pair = ReplicaPair::start();
        let policy = policy(shape);
        let store = open(&pair.primary().url(), BOUND).await.unwrap();
        for _ in 0..4 {
            assert!(granted(take(&store, "api", &policy).await));
        }
        pair.wait_synced();
        pair.link().set(Mode::Stall);
        for _ in 0..3 {
            assert!(granted(take(&store, "api", &policy).await));
        }
        pair.primary().kill();
        pair.promote();
        let store = open(&pair.replica().url(), BOUND).await.unwrap();
        assert_eq!(taken_until_refused(&store, &policy).await, 10 - 4, "{shape}: 3 beyond 10");
    }
}

#[tokio::test]
async fn c04_a_promoted_replica_with_another_clock_mints_one_burst_at_most_and_stalls_nothing() {
    const HOUR_US: i64 = 3_600_000_000;
    for (shape, step_us, at_once) in [
        ("5/s burst 5", -HOUR_US, 0),
        ("window 5/s", -HOUR_US, 0),
        ("5/s burst 5", HOUR_US, 5),
        ("window 5/s", HOUR_US, 5),
    ] {
        let pair = ReplicaPair::start();
        let policy = policy(shape);
        let clock = ManualClock::at(START);
        let store = at(&pair.primary().url(), &clock).await;
        assert_eq!(taken_until_refused(&store, &policy).await, 5);
        pair.wait_synced();
        pair.primary().kill();
        pair.promote();
        let clock = ManualClock::at(START + step_us);
        let store = at(&pair.replica().url(), &clock).await;
        assert_eq!(taken_until_refused(&store, &policy).await, at_once, "{shape} {step_us}");
        clock.advance(Duration::from_millis(1_001));
        assert_eq!(taken_until_refused(&store, &policy).await, 5, "{shape} {step_us}");
    }
}

/// A store whose script is told the time.
async fn at(url: &str, clock: &ManualClock) -> Redis {
    let StoreUrl::Redis(url) = url.parse().unwrap() else { panic!("a Redis URL: {url}") };
    Redis::open(&url, Clock::Manual(clock.clone()), BOUND).await.unwrap()
}

#[tokio::test]
async fn with_replicas_to_wait_for_a_failover_forgets_nothing_that_was_granted() {
    let pair = ReplicaPair::start();
    let policy = policy("1/d burst 10");
    let store = open(&format!("{}?replicas=1", pair.primary().url()), SHORT).await.unwrap();
    for _ in 0..4 {
        assert!(granted(take(&store, "api", &policy).await));
    }
    pair.link().set(Mode::Stall);
    for _ in 0..3 {
        let error = take(&store, "api", &policy).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
    pair.primary().kill();
    pair.promote();
    let store = open(&pair.replica().url(), BOUND).await.unwrap();
    let more = taken_until_refused(&store, &policy).await;
    assert_eq!(more, 10 - 4, "ten in all");
}

#[tokio::test]
async fn replicas_that_are_not_there_are_told_and_spent() {
    let server = RedisServer::start();
    let policy = policy("1/d burst 10");
    let bound = Duration::from_secs(1);
    let store = open(&format!("{}?replicas=2", server.url()), bound).await.unwrap();
    let error = take(&store, "api", &policy).await.unwrap_err();
    let told = error.to_string();
    assert!(error.is_unavailable() && told.contains("0 of 2 replicas"), "{told}");
    let plain = open(&server.url(), BOUND).await.unwrap();
    assert_eq!(taken_until_refused(&plain, &policy).await, 9);
}
