//! A primary behind real sentinels: found, followed when another takes over, and let in by
//! passwords of both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use paceline_testkit::{RedisServer, ScriptedServer, SentinelSet};

use super::{BOUND, SHORT, comes_back, granted, left, open, policy, take};

#[tokio::test]
async fn c08_c10_a_promoted_replica_is_followed_with_script_and_state() {
    let set = SentinelSet::builder().password("a b").sentinel_password("c@d").start();
    let store = open(&set.url(), SHORT).await.unwrap();
    let policy = policy("1000/d");
    for _ in 0..10 {
        assert!(granted(take(&store, "api", &policy).await));
    }
    // What was written is on the replica before its primary dies.
    set.primary().command(&["WAIT", "1", "5000"]);
    let old = set.kill_primary();
    let error = take(&store, "api", &policy).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    set.wait_for_promotion(old);
    comes_back(&store, &policy).await;
    // Each attempt that failed was made while there was nobody to count it.
    assert_eq!(left(&store, "api").await, 989);
}

#[tokio::test]
async fn a_primary_that_becomes_a_replica_is_left_for_the_new_one() {
    let set = SentinelSet::start();
    let store = open(&set.url(), BOUND).await.unwrap();
    let policy = policy("100000/d");
    assert!(granted(take(&store, "api", &policy).await));
    let old = set.fail_over();
    // Bounded: the sentinels give up long before.
    for _ in 0..100_000 {
        match take(&store, "api", &policy).await {
            Ok(_) if set.primary().port() != old => return,
            Ok(_) => {}
            Err(error) => assert!(error.is_unavailable(), "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("still with the old primary");
}

/// Sentinels that name the server whose port stands there.
fn sentinel(named: &Arc<AtomicU16>) -> ScriptedServer {
    let named = Arc::clone(named);
    ScriptedServer::start(move |words| {
        let port = named.load(Ordering::SeqCst).to_string();
        Some(match words[0].to_uppercase().as_str() {
            "SENTINEL" if port == "0" => "*-1\r\n".to_owned(),
            "SENTINEL" => {
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            }
            _ => "+OK\r\n".to_owned(),
        })
    })
}

#[tokio::test]
async fn a_primary_that_goes_on_answering_is_left_when_the_sentinels_name_another() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    let named = Arc::new(AtomicU16::new(one.port()));
    let (a, b) = (sentinel(&named), sentinel(&named));
    let url = format!("redis+sentinel://{},{}/main", a.addr(), b.addr());
    let store = open(&url, BOUND).await.unwrap();
    let policy = policy("100000/d");
    assert!(granted(take(&store, "api", &policy).await));
    assert_eq!(one.command(&["DBSIZE"]).int(), Some(1));
    named.store(other.port(), Ordering::SeqCst);
    for _ in 0..4_000 {
        assert!(granted(take(&store, "api", &policy).await));
        if other.command(&["DBSIZE"]).int() == Some(1) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("still with the first");
}

#[tokio::test]
async fn most_sentinels_are_believed_and_the_server_must_agree() {
    let server = RedisServer::start();
    let replica = RedisServer::start();
    replica.command(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    let right = Arc::new(AtomicU16::new(server.port()));
    let stale = Arc::new(AtomicU16::new(replica.port()));
    let nobody = Arc::new(AtomicU16::new(0));
    let policy = policy("5/s");
    let (a, b, c) = (sentinel(&stale), sentinel(&right), sentinel(&nobody));
    // One of them is not there at all.
    let hosts = format!("{},127.0.0.1:1,{},{}", a.addr(), b.addr(), c.addr());
    let store = open(&format!("redis+sentinel://{hosts}/main"), BOUND).await.unwrap();
    assert!(granted(take(&store, "api", &policy).await));

    // Where all name a replica nothing is decided.
    let store = open(&format!("redis+sentinel://{}/main", a.addr()), SHORT).await.unwrap();
    let error = take(&store, "api", &policy).await.unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("replica"), "{error}");

    let error = open(&format!("redis+sentinel://{}/mine", c.addr()), BOUND).await.unwrap_err();
    assert!(error.is_input() && error.to_string().contains("\"mine\""), "{error}");
}

#[tokio::test]
async fn a_sentinel_named_as_a_server_is_told_so() {
    let set = SentinelSet::start();
    let error = open(&format!("redis://127.0.0.1:{}", set.sentinel_ports()[0]), BOUND).await;
    let error = error.unwrap_err();
    assert!(error.is_incompatible() && error.to_string().contains("redis+sentinel"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_of_the_sentinels_is_told_at_the_door() {
    let guarded = RedisServer::builder().password("open sesame").start();
    let url = format!("redis+sentinel://{}/main?sentinel_password=hush", guarded.addr());
    let error = open(&url, BOUND).await.unwrap_err();
    assert!(error.is_forbidden() && error.to_string().contains("sentinel"), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}
