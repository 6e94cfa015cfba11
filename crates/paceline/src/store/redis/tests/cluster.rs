//! A Cluster of real servers: buckets on their nodes, slots that move under calls, primaries that
//! fail. The contract runs here, too, each test under a prefix of its own on one Cluster.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use paceline_core::Suspension;
use paceline_testkit::{RedisCluster, RedisServer, Reply, ScriptedServer};

use super::super::cluster::slot;
use super::{BOUND, SHORT, comes_back, granted, left, listed, open, policy, take};
use crate::clock::{Clock, ManualClock};
use crate::store::Store;
use crate::store::contract::{START, Tested, contract};

async fn store() -> Tested {
    static CLUSTER: LazyLock<RedisCluster> =
        LazyLock::new(|| RedisCluster::builder().replicas(0).start());
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let clock = ManualClock::at(START);
    let prefix = NEXT.fetch_add(1, Ordering::Relaxed);
    let url = format!("{}?prefix={prefix}:", CLUSTER.url()).parse().unwrap();
    let store = Store::open(&url, Clock::Manual(clock.clone()), BOUND).await.unwrap();
    Tested { store: Arc::new(store), clock, _keeps: Box::new(()) }
}

contract!();

/// Sixty names, which lie on all nodes.
fn names() -> Vec<String> {
    (0..60).map(|number| format!("bucket {number}")).collect()
}

#[tokio::test]
async fn buckets_lie_on_all_nodes_and_are_listed_and_deleted_there() {
    let cluster = RedisCluster::builder().replicas(0).password("p:w").start();
    let store = open(&cluster.url(), BOUND).await.unwrap();
    let once = policy("1/h");
    let mut names = names();
    names.extend(["a}b", "{a}", "}", "{}"].map(str::to_owned));
    for name in &names {
        assert!(granted(take(&store, name, &once).await), "{name}");
        assert!(!granted(take(&store, name, &once).await), "{name}");
        let key = format!("paceline:{{{name}}}");
        let told = cluster.nodes()[0].command(&["CLUSTER", "KEYSLOT", &key]);
        assert_eq!(told.int(), Some(i64::from(slot(key.as_bytes()))), "{key}");
    }
    for node in cluster.nodes() {
        assert!(node.command(&["DBSIZE"]).int().unwrap() > 5);
        assert_eq!(node.command_stats("keys"), None);
    }
    names.sort_unstable();
    assert_eq!(listed(&store).await, names);
    for name in &names {
        assert!(store.delete(name).await.unwrap(), "{name}");
    }
    assert_eq!(listed(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn c10_a_slot_on_the_move_is_followed_and_no_call_counts_twice_or_fails() {
    let cluster = RedisCluster::builder().replicas(0).start();
    let store = open(&cluster.url(), BOUND).await.unwrap();
    let policy = policy("1/d burst 1000");
    let key = "paceline:{api}";
    let slot = cluster.slot_of(key);
    assert!(granted(take(&store, "api", &policy).await));
    let mut taken = 1;
    for round in 0..3 {
        let from = cluster.owner(slot);
        let to = (from + 1) % 3;
        for step in 0..4 {
            match step {
                0 => cluster.begin_move(slot, to),
                1 => assert_eq!(cluster.migrate_keys(slot), 1),
                2 => cluster.finish_move(slot),
                _ => {}
            }
            // The target may have lost its scripts as well.
            cluster.nodes()[to].command(&["SCRIPT", "FLUSH"]);
            for _ in 0..3 {
                assert!(granted(take(&store, "api", &policy).await), "round {round}, step {step}");
                taken += 1;
            }
            assert_eq!(left(&store, "api").await, 1_000 - taken, "round {round}, step {step}");
        }
    }
    // A bucket that begins on the node that takes its slot over is found there afterwards.
    store.delete("api").await.unwrap();
    let to = (cluster.owner(slot) + 1) % 3;
    cluster.begin_move(slot, to);
    assert!(granted(take(&store, "api", &policy).await));
    assert_eq!(cluster.nodes()[to].command(&["DBSIZE"]).int(), Some(1));
    cluster.finish_move(slot);
    assert_eq!(left(&store, "api").await, 999);
}

#[tokio::test]
async fn a_primary_that_hands_over_costs_no_call() {
    let cluster = RedisCluster::start();
    let store = open(&cluster.url(), BOUND).await.unwrap();
    let policy = policy("1/d burst 1000");
    assert!(granted(take(&store, "api", &policy).await));
    let old = cluster.owner(cluster.slot_of("paceline:{api}"));
    cluster.fail_over(old);
    for _ in 0..9 {
        assert!(granted(take(&store, "api", &policy).await));
    }
    assert_eq!(left(&store, "api").await, 990);
}

#[tokio::test]
async fn c08_c10_a_replica_that_takes_over_is_found() {
    let cluster = RedisCluster::start();
    let store = open(&cluster.url(), SHORT).await.unwrap();
    let policy = policy("1/d burst 1000");
    for name in names() {
        assert!(granted(take(&store, &name, &policy).await), "{name}");
    }
    let victim = cluster.owner(cluster.slot_of("paceline:{api}"));
    assert!(granted(take(&store, "api", &policy).await));
    cluster.nodes()[victim].command(&["WAIT", "1", "5000"]);
    cluster.kill(victim);
    let error = take(&store, "api", &policy).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    cluster.wait_for_promotion(victim);
    comes_back(&store, &policy).await;
    assert_eq!(left(&store, "api").await, 998);
}

#[tokio::test]
async fn a_cluster_without_its_majority_decides_nothing() {
    let cluster = RedisCluster::builder().replicas(0).start();
    let store = open(&cluster.url(), SHORT).await.unwrap();
    let policy = policy("100000/s");
    assert!(granted(take(&store, "api", &policy).await));
    let owner = cluster.owner(cluster.slot_of("paceline:{api}"));
    for node in (0..3).filter(|node| *node != owner) {
        cluster.kill(node);
    }
    // Until the one that is left has noticed, it decides.
    for _ in 0..2_000 {
        if let Err(error) = take(&store, "api", &policy).await {
            assert!(error.is_unavailable(), "{error}");
            assert!(error.to_string().contains("CLUSTERDOWN"), "{error}");
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("goes on without a majority");
}

#[tokio::test]
async fn what_the_nodes_that_are_there_have_is_listed_with_what_is_missing() {
    let cluster = RedisCluster::builder().replicas(0).config("cluster-require-full-coverage", "no");
    let cluster = cluster.start();
    let store = open(&cluster.url(), SHORT).await.unwrap();
    for name in names() {
        assert!(granted(take(&store, &name, &policy("1/h")).await), "{name}");
    }
    cluster.kill(0);
    let (left, failed) = store.list().await;
    assert!(!left.is_empty() && left.len() < names().len(), "{left:?}");
    assert!(failed.is_some_and(|error| error.is_unavailable()));
}

#[tokio::test]
async fn a_word_of_a_change_on_one_node_is_heard_from_another() {
    let cluster = RedisCluster::builder().replicas(0).start();
    let store = open(&cluster.url(), BOUND).await.unwrap();
    let mut words = store.words().await.unwrap();
    for name in names() {
        store.suspend(&name, 1_000_000, 0, Suspension::default()).await.unwrap();
        assert_eq!(words.next().await.map(|word| word.name).as_ref(), Some(&name));
    }
}

#[tokio::test]
async fn a_cluster_named_as_one_server_and_the_reverse_are_told_so() {
    let cluster = RedisCluster::builder().replicas(0).start();
    let one = open(&cluster.nodes()[0].url(), BOUND).await.unwrap();
    let mut told = 0;
    for name in names() {
        if let Err(error) = take(&one, &name, &policy("5/s")).await {
            assert!(error.is_unavailable(), "{error}");
            assert!(error.to_string().contains("redis-cluster://"), "{error}");
            told += 1;
        }
    }
    assert!(told > 10);
    let server = RedisServer::start();
    let url = format!("redis-cluster://{}", server.addr());
    let error = open(&url, BOUND).await.unwrap_err();
    assert!(error.is_incompatible() && error.to_string().contains("redis://"), "{error}");
}

#[tokio::test]
async fn a_node_that_sends_calls_round_in_circles_is_left_in_the_end() {
    // One that sends every call on to itself, or says that a slot is between two nodes for ever.
    for word in ["MOVED", "ASK", "TRYAGAIN"] {
        let port = Arc::new(OnceLock::new());
        let itself = Arc::clone(&port);
        let node = ScriptedServer::start(move |words| {
            let port = itself.get().copied().unwrap_or(1);
            Some(match words[0].to_uppercase().as_str() {
                "CLUSTER" => {
                    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n")
                }
                "EVALSHA" if word == "TRYAGAIN" => "-TRYAGAIN soon\r\n".to_owned(),
                "EVALSHA" => format!("-{word} 7 127.0.0.1:{port}\r\n"),
                "INFO" => "$0\r\n\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            })
        });
        port.set(node.addr().port()).unwrap();
        let store = open(&format!("redis-cluster://{}", node.addr()), BOUND).await.unwrap();
        let error = take(&store, "api", &policy("5/s")).await.unwrap_err();
        assert!(error.is_unavailable(), "{word}: {error}");
    }
}

#[tokio::test]
async fn a_user_of_a_cluster_restricted_to_the_prefix_can_do_everything() {
    let cluster = RedisCluster::builder().replicas(0).start();
    for node in cluster.nodes() {
        let words = [super::rights(), vec!["+cluster|slots"]].concat();
        assert_eq!(node.command(&words), Reply::Text("OK".to_owned()));
    }
    let url = cluster.url().replace("://", "://worker:secret@");
    let store = open(&url, BOUND).await.unwrap();
    for name in names() {
        super::does_everything(&store, &name).await;
    }
}
