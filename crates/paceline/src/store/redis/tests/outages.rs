//! Servers that are full, flushed, far away or half gone: calls end within their bound, and the
//! store comes back by itself.

use std::sync::Arc;
use std::time::Duration;

use paceline_testkit::{FaultProxy, Mode, RedisServer, ReplicaPair};

use super::{BOUND, SHORT, comes_back, granted, left, open, policy, take};

#[tokio::test]
async fn c14_a_full_server_is_told_as_unavailable_and_used_again_when_it_has_room() {
    let server = RedisServer::builder().config("maxmemory-policy", "noeviction").start();
    let store = open(&server.url(), BOUND).await.unwrap();
    let policy = policy("100000/s");
    assert!(granted(take(&store, "api", &policy).await));
    // Whatever it holds is more than it may now.
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = take(&store, "api", &policy).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("OOM"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(granted(take(&store, "api", &policy).await));
}

#[tokio::test]
async fn a_flushed_server_begins_with_full_buckets_and_no_error() {
    let server = RedisServer::start();
    let store = open(&server.url(), BOUND).await.unwrap();
    let policy = policy("1/d burst 10");
    for flushed in [false, true] {
        if flushed {
            server.command(&["FLUSHALL"]);
            server.command(&["SCRIPT", "FLUSH"]);
        }
        for _ in 0..10 {
            assert!(granted(take(&store, "api", &policy).await));
        }
        assert!(!granted(take(&store, "api", &policy).await));
    }
}

#[tokio::test]
async fn c27_a_half_open_connection_is_replaced_and_connections_stay_few() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = open(&proxy.url(), SHORT).await.unwrap();
    let policy = policy("100000/s");
    assert!(granted(take(&store, "api", &policy).await));
    for _ in 0..3 {
        proxy.set(Mode::HalfOpen);
        let error = take(&store, "api", &policy).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        comes_back(&store, &policy).await;
        proxy.set(Mode::Pass);
    }
    assert!(proxy.connections_now() <= 2, "{}", proxy.connections_now());
}

#[tokio::test]
async fn a_server_far_away_is_used_within_the_bound() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    // There and back it is two thirds of the bound, and connecting takes more than all of it.
    proxy.set(Mode::Delay(Duration::from_millis(333)));
    let store = open(&proxy.url(), Duration::from_secs(1)).await.unwrap();
    let policy = policy("1/d burst 10");
    comes_back(&store, &policy).await;
    assert!(granted(take(&store, "api", &policy).await));
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_left_without_a_storm_of_connections() {
    let pair = ReplicaPair::start();
    let proxy = FaultProxy::start(pair.primary().addr());
    let store = open(&proxy.url(), SHORT).await.unwrap();
    let policy = policy("1/d burst 1000");
    assert!(granted(take(&store, "api", &policy).await));
    pair.promote();
    let port = pair.replica().port().to_string();
    pair.primary().command(&["REPLICAOF", "127.0.0.1", &port]);
    let before = proxy.connections_total();
    for _ in 0..100 {
        let error = take(&store, "api", &policy).await.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("replica"), "{error}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let more = proxy.connections_total() - before;
    assert!(more <= 10, "{more} connections for 100 calls");
    pair.primary().command(&["REPLICAOF", "NO", "ONE"]);
    comes_back(&store, &policy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_whatever_is_cut_no_call_counts_twice() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = Arc::new(open(&proxy.url(), SHORT).await.unwrap());
    let policy = policy("1/d burst 10000");
    assert!(granted(take(&store, "api", &policy).await));
    let (mut good, mut lost) = (1, 0);
    for _ in 0..20 {
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let (store, policy) = (Arc::clone(&store), Arc::clone(&policy));
                tokio::spawn(async move { take(&store, "api", &policy).await.is_ok() })
            })
            .collect();
        proxy.cut_connections();
        for call in calls {
            if call.await.unwrap() { good += 1 } else { lost += 1 }
        }
        for _ in 0..400 {
            if take(&store, "api", &policy).await.is_ok() {
                good += 1;
                break;
            }
            lost += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Of those without an answer each may have been counted, once.
    let direct = open(&server.url(), BOUND).await.unwrap();
    let used = 10_000 - left(&direct, "api").await;
    assert!(used >= good && used <= good + lost, "{used} used, {good} granted, {lost} lost");
    assert!(good > 20 && lost > 0, "{good} granted, {lost} lost");
}
