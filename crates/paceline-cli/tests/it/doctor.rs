//! What the doctor says of real servers, healthy and not. What it measures is told and never judged
//! here: the program's timeout is long, so no machine is too slow.

use paceline_testkit::{
    Mode, RedisCluster, RedisServer, RedisServerBuilder, ReplicaPair, SentinelSet, eventually,
    free_port, scratch_dir,
};
use serde_json::{Value, json};

use crate::program::paceline;

/// A server that keeps what it has: nothing is to be said of it.
fn healthy() -> RedisServerBuilder {
    RedisServer::builder().config("appendonly", "yes")
}

/// What the doctor says as JSON, with this exit code.
#[track_caller]
fn examined(store: &str, code: i32) -> Value {
    let answer = paceline(["doctor", "--json"]).store(store).ends_with(code);
    let found = answer.json().remove(0);
    let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    found
}

/// The findings of this severity that hold the word.
fn found<'a>(examined: &'a Value, severity: &str, word: &str) -> Vec<&'a Value> {
    let findings = examined["findings"].as_array().unwrap().iter();
    findings
        .filter(|it| it["severity"] == severity && it["what"].as_str().unwrap().contains(word))
        .collect()
}

#[track_caller]
fn finds(examined: &Value, severity: &str, word: &str) {
    assert_eq!(found(examined, severity, word).len(), 1, "{severity} {word:?} in {examined:#}");
}

fn fact<'a>(examined: &'a Value, about: &str) -> Option<&'a str> {
    let facts = examined["facts"].as_array().unwrap();
    facts.iter().find(|fact| fact["about"] == about)?["is"].as_str()
}

#[test]
fn a_healthy_server_is_told_to_be_so_and_left_as_it_was() {
    let server = healthy().start();
    let text = paceline(["doctor"]).store(&server.url()).ends_with(0);
    for word in [
        "store          redis://127.0.0.1:",
        "topology       one server",
        "version        Redis ",
        "mode           standalone",
        "role           primary",
        "clock          ",
        "latency        p50 ",
        "decisions a second, 64 at a time",
        "eviction       noeviction",
        "persistence    append-only file",
        "script         not loaded",
        "rights         all that are needed",
        "nothing is wrong, and no risk was found",
    ] {
        assert!(text.text().contains(word), "{word:?} is missing in {}", text.text());
    }
    assert_eq!(text.stderr, "");
    assert_eq!(server.command(&["DBSIZE"]).int(), Some(0));

    let json = examined(&server.url(), 0);
    assert_eq!(json["worst"], json!(null));
    assert_eq!(json["findings"], json!([]));
    assert_eq!(json["store"], json!(format!("redis://{}/0", server.addr())));
    assert_eq!(fact(&json, "script"), Some("loaded"));
    assert_eq!(json["facts"][0]["server"], json!(null));
    let version = json["facts"].as_array().unwrap().iter().find(|it| it["about"] == "version");
    assert_eq!(version.unwrap()["server"], json!(server.addr().to_string()));
}

#[test]
fn a_server_that_may_forget_buckets_is_a_risk() {
    let server = RedisServer::builder()
        .config("maxmemory-policy", "volatile-lru")
        .config("maxmemory", "100mb")
        .start();
    let json = examined(&server.url(), 1);
    assert_eq!(json["worst"], "risk");
    finds(&json, "risk", "volatile-lru");
    finds(&json, "note", "a restart of the server forgets all buckets");
    let text = paceline(["doctor"]).store(&server.url()).ends_with(1);
    let at = |word: &str| text.text().find(word).unwrap_or_else(|| panic!("{}", text.text()));
    assert!(at("RISK   127.0.0.1:") < at("NOTE   127.0.0.1:"), "the worst first");
    assert!(text.text().contains("do: CONFIG SET maxmemory-policy noeviction"));
    // The library's own warning of the same would say it twice.
    assert_eq!(text.stderr, "");
}

/// A user with all that the product uses but these, and its URL.
fn restricted(server: &RedisServer, but: &[&str]) -> String {
    let rights = "on >secret ~paceline:* &paceline:* +evalsha +script|load +hmget +hget +hset +hdel \
                  +hgetall +pexpire +time +unlink +scan +publish +psubscribe +ping +info +role";
    let mut words = vec!["ACL", "SETUSER", "worker", "reset"];
    words.extend(rights.split_whitespace().filter(|right| !but.contains(right)));
    assert_eq!(server.command(&words).text(), Some("OK"));
    format!("redis://worker:secret@{}", server.addr())
}

#[test]
fn rights_that_are_missing_are_named_with_the_line_that_grants_them() {
    let server = healthy().start();
    // What decisions need and no more: neither CONFIG nor anything else is asked for.
    let json = examined(&restricted(&server, &[]), 0);
    assert_eq!(json["findings"], json!([]));

    let json = examined(&restricted(&server, &["+hset", "+publish"]), 77);
    finds(&json, "wrong", "user \"worker\" lacks +hset +publish: no decision can be made");
    assert_eq!(json["findings"][0]["advice"], "ACL SETUSER worker +hset +publish");
    assert!(!json.to_string().contains("secret"), "{json}");
    // A call would end with the same.
    let url = restricted(&server, &["+hset", "+publish"]);
    paceline(["acquire", "api", "--quota", "5/s"]).store(&url).ends_with(77);
    // What it says is enough.
    server.command(&["ACL", "SETUSER", "worker", "+hset", "+publish"]);
    assert_eq!(examined(&url, 0)["worst"], json!(null));

    let json = examined(&restricted(&server, &["~paceline:*", "&paceline:*"]), 77);
    assert_eq!(json["findings"][0]["advice"], "ACL SETUSER worker ~paceline:* &paceline:*");

    let few = restricted(&server, &["+info", "+role", "+scan", "+unlink", "+psubscribe"]);
    let json = examined(&few, 0);
    assert_eq!(json["worst"], "note");
    finds(&json, "note", "buckets cannot be listed");
    assert_eq!(fact(&json, "version"), None);
    assert!(fact(&json, "decisions").is_some());
}

#[test]
fn a_store_that_refuses_us_or_is_away_ends_as_a_call_would() {
    let server = RedisServer::builder().password("open sesame").start();
    let json = examined(&format!("redis://:hush@{}", server.addr()), 77);
    finds(&json, "wrong", "does not let us in");
    assert!(!json.to_string().contains("hush"), "{json}");

    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let json = examined(&nobody, 69);
    finds(&json, "wrong", "is away");
    let text = paceline(["doctor"]).store(&nobody).ends_with(69);
    assert!(text.text().contains("WRONG  127.0.0.1:"), "{}", text.text());
    assert_eq!(text.stderr, "");

    paceline(["doctor"]).store("redis://h?nope=1").ends_with(2).says(&["nope"]);
}

#[test]
fn a_replica_is_wrong_and_says_whose_it_is() {
    let pair = ReplicaPair::start();
    let json = examined(&pair.replica().url(), 69);
    finds(&json, "wrong", &format!("it is a replica of {}", pair.link().addr()));
    assert_eq!(fact(&json, "role"), Some("replica"));
    assert_eq!(fact(&json, "decisions"), None);

    let json = examined(&format!("{}?replicas=1", pair.primary().url()), 0);
    assert!(fact(&json, "replica").unwrap().contains("online"), "{json:#}");
    let json = examined(&format!("{}?replicas=2", pair.primary().url()), 69);
    finds(&json, "wrong", "?replicas=2 asks for more replicas than there are (1 online)");
}

#[test]
fn a_host_folder_and_a_memory_store_say_who_shares_them() {
    let folder = scratch_dir("doctor");
    let store = format!("host:{}", folder.path().display());
    paceline(["acquire", "api", "--quota", "5/d"]).store(&store).ends_with(0);
    let json = examined(&store, 0);
    assert_eq!(json["store"], json!(store));
    assert_eq!(fact(&json, "folder"), folder.path().to_str());
    assert_eq!((fact(&json, "buckets"), fact(&json, "writable")), (Some("1"), Some("yes")));
    assert!(fact(&json, "decisions").unwrap().ends_with("decisions a second"));
    let names = paceline(["list"]).store(&store).ends_with(0);
    assert_eq!(names.text(), "api\n", "the probe is gone");

    let json = examined("memory:", 0);
    assert_eq!(json["worst"], "note");
    finds(&json, "note", "no other process keeps the pace with it");
}

#[test]
fn sentinels_and_replicas_that_are_missing_or_late_are_risks() {
    let set = SentinelSet::builder().config("appendonly", "yes").replication_proxy().start();
    let json = examined(&set.url(), 0);
    assert!(fact(&json, "sentinels").unwrap().starts_with("3 of 3 name a primary"), "{json:#}");
    assert_eq!(fact(&json, "replicas"), Some("1"));
    let one = format!("redis+sentinel://127.0.0.1:{}/main", set.sentinel_ports()[0]);
    finds(&examined(&one, 0), "note", "one sentinel alone");

    // A replica that hears nothing is heard of no more.
    set.replication().unwrap().set(Mode::Stall);
    let late =
        |line: &str| line.contains(",lag=") && !line.contains(",lag=0") && !line.contains(",lag=1");
    eventually("the replica is late", || {
        let info = set.servers()[0].command(&["INFO", "replication"]);
        info.text().unwrap().lines().any(|line| late(line.trim_end()))
    });
    finds(&examined(&set.url(), 1), "risk", "lags");

    set.servers()[1].kill();
    set.replication().unwrap().cut_connections();
    eventually("the replica is missed", || {
        let info = set.servers()[0].command(&["INFO", "replication"]);
        info.text().unwrap().contains("connected_slaves:0")
    });
    set.kill_sentinel(0);
    let json = examined(&set.url(), 1);
    finds(&json, "risk", "it has no replica");
    finds(&json, "risk", "1 of 3 sentinels do not answer");

    let other = set.url().replace("/main", "/other");
    paceline(["doctor"]).store(&other).ends_with(2).says(&["other"]);
}

#[test]
fn a_replica_that_could_not_take_over_is_a_risk() {
    let set = SentinelSet::builder().config("appendonly", "yes").start();
    // Rights and settings are not replicated.
    let user = ["ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all"];
    set.primary().command(&user);
    let url = set.url().replace("://", "://worker:secret@");
    finds(&examined(&url, 1), "risk", "a replica that may take over does not let us work");
    set.replicas()[0].command(&user);
    examined(&url, 0);
    set.replicas()[0].command(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    finds(&examined(&url, 1), "risk", "volatile-lru");
}

#[test]
fn a_cluster_is_looked_at_node_by_node() {
    let cluster = RedisCluster::builder().config("appendonly", "yes").start();
    let json = examined(&cluster.url(), 0);
    assert_eq!(fact(&json, "topology"), Some("a Cluster of 3 primaries and 3 replicas"));
    assert_eq!(fact(&json, "slots"), Some("all 16384 have a node"));
    let rates = json["facts"].as_array().unwrap().iter();
    let rates = rates.filter(|it| it["about"] == "decisions").count();
    assert_eq!(rates, 3, "{json:#}");
    for node in cluster.nodes() {
        assert_eq!(node.command(&["DBSIZE"]).int(), Some(0));
    }
    // As if it were alone.
    let json = examined(&cluster.nodes()[0].url(), 69);
    finds(&json, "wrong", "it is a node of a Cluster");
}

#[test]
fn primaries_of_a_cluster_without_replicas_are_told_once_with_all_of_them() {
    let cluster = RedisCluster::builder().replicas(0).config("appendonly", "yes").start();
    let text = paceline(["doctor"]).store(&cluster.url()).ends_with(1);
    assert_eq!(text.text().matches("it has no replica").count(), 1, "{}", text.text());
    let json = examined(&cluster.url(), 1);
    assert_eq!(found(&json, "risk", "it has no replica").len(), 3, "{json:#}");
}
