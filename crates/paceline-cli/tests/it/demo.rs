//! `paceline demo`: the fleet obeys, and where it does not the demo says so. How much of the quota
//! is used is for figures, not for tests; that nothing is refused is for both. The policies here
//! leave more room than the demo's own, since tests run beside each other on slow machines.

use paceline_testkit::{RedisServer, scratch_dir};
use serde_json::Value;

use crate::program::paceline;

/// A demo that must succeed; its report.
#[track_caller]
fn obeyed(store: &str, arguments: &[&str]) -> Value {
    let mut all = vec!["demo", "--json", "--seconds", "5", "--processes", "4"];
    all.extend(arguments);
    let answer = paceline(all).store(store).ends_with(0);
    let report = answer.json().remove(0);
    assert_eq!(report["faults"], Value::Array(Vec::new()), "{report:#}");
    assert_eq!(report["total"]["refused"], 0, "{report:#}");
    let suspended = &report["phases"][3];
    assert_eq!(suspended["phase"], "suspended", "{report:#}");
    report
}

#[test]
fn a_fleet_on_one_machine_is_never_refused_by_a_sliding_window() {
    let folder = scratch_dir("demo");
    let store = format!("host:{}", folder.path().display());
    let report =
        obeyed(&store, &["--provider", "sliding", "--policy", "strict 150/2s guard 400ms"]);
    for phase in [1, 2, 4] {
        assert!(report["phases"][phase]["calls"].as_u64().unwrap() > 0, "{report:#}");
    }
    // Its bucket is gone afterwards.
    assert_eq!(paceline(["list"]).store(&store).ends_with(0).text(), "");
}

#[test]
fn a_fleet_on_redis_is_never_refused_by_a_fixed_window() {
    let server = RedisServer::start();
    obeyed(&server.url(), &["--provider", "fixed", "--policy", "strict 150/2s guard 400ms"]);
    assert_eq!(server.command(&["DBSIZE"]).int(), Some(0));
}

#[test]
fn a_fleet_on_redis_is_never_refused_by_a_token_bucket() {
    let server = RedisServer::start();
    obeyed(&server.url(), &["--provider", "bucket", "--policy", "150/2s burst 10"]);
}

#[test]
fn a_policy_that_is_wrong_for_the_provider_fails_the_demo_with_a_table_and_words() {
    let server = RedisServer::start();
    let arguments = ["demo", "--seconds", "5", "--processes", "2", "--policy", "400/2s"];
    let answer = paceline(arguments).store(&server.url()).ends_with(1);
    answer.says(&["the provider refused", "(429)"]);
    for word in ["429s", "quota used", "store ops/call", "suspended", "half the limit"] {
        assert!(answer.text().contains(word), "{}", answer.text());
    }
}

#[test]
fn a_store_that_processes_cannot_share_is_refused() {
    paceline(["demo"]).store("memory:").ends_with(2).says(&["memory:", "host:"]);
}
