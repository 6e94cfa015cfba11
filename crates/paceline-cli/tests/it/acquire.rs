//! `paceline acquire`: permits for what a script does next.

use paceline_testkit::{RedisServer, scratch_dir};
use serde_json::json;

use crate::program::paceline;

#[test]
fn a_permit_is_taken_without_a_word() {
    let answer = paceline(["acquire", "api", "--quota", "5/s"]).ends_with(0);
    assert_eq!((answer.text(), answer.stderr.as_str()), ("", ""));
}

#[test]
fn refused_it_ends_with_75_and_says_when_to_come_back() {
    let folder = scratch_dir("acquire");
    let store = format!("host:{}", folder.path().display());
    let acquire = |more: &[&str]| {
        let arguments = [&["acquire", "api", "--quota", "2/h burst 1"], more].concat();
        paceline(arguments).store(&store)
    };
    acquire(&["--no-wait"]).ends_with(0);
    acquire(&["--no-wait"]).ends_with(75).says(&["quota 1 (2/h burst 1)", "retry after"]);
    acquire(&["--max-wait", "1s"]).ends_with(75).says(&["retry after"]);
    acquire(&["--max-wait", "1s", "--no-wait"]).ends_with(2);
}

#[test]
fn as_json_it_tells_of_each_permit_and_of_the_refusal() {
    let server = RedisServer::start();
    let arguments = ["acquire", "api", "--quota", "2/d", "--count", "3", "--no-wait", "--json"];
    let answer = paceline(arguments).store(&server.url()).ends_with(75);
    let lines = answer.json();
    for number in 1..=2 {
        let want =
            json!({"granted": true, "number": number, "waited_us": 0, "granted_by": "store"});
        assert_eq!(lines[number - 1], want);
    }
    let refused = &lines[2];
    assert_eq!(refused["granted"], false);
    assert_eq!((&refused["number"], &refused["cause"]), (&json!(3), &json!("quota 1")));
    let retry = refused["retry_after_us"].as_u64().unwrap();
    assert!(retry > 43_000_000_000 && retry <= 43_200_000_000, "{retry}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_permit_that_the_exit_code_tells_of_is_spent_also_where_nobody_reads_the_json() {
    let server = RedisServer::start();
    let acquire = || {
        let arguments = ["acquire", "api", "--quota", "1/d", "--no-wait", "--json"];
        paceline(arguments).store(&server.url())
    };
    let mut child = acquire().start();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    acquire().ends_with(75);
}

#[test]
fn a_cost_of_several_units_is_held_to_the_quota_of_each() {
    let server = RedisServer::start();
    let run = |arguments: &[&str]| paceline(arguments).store(&server.url());
    let acquire = |cost: &str| {
        let policy = "500/d, 30000/d of tokens";
        run(&["acquire", "api", "--quota", policy, "--no-wait", "--cost", cost])
    };
    acquire("tokens=20000").ends_with(0);
    acquire("0,tokens=5000").ends_with(0);
    acquire("1,tokens=20000").ends_with(75).says(&["quota 2 (30000/d of tokens)"]);
    acquire("tokens=30001").ends_with(75).says(&["a cost of 30001 tokens can never pass quota 2"]);
    acquire("9").ends_with(0);
    let status = run(&["status", "api"]).ends_with(0);
    assert!(status.text().contains("quota 1    490 of 500 left  (500/d)"), "{}", status.text());
    assert!(status.text().contains("of 30000 left  (30000/d of tokens)"), "{}", status.text());
    run(&["set", "api", "9/s, 40/d of points"]).ends_with(0);
    let status = run(&["status", "api"]).ends_with(0);
    assert!(status.text().contains("40 of 40 left  (40/d of points)"), "{}", status.text());
}

#[test]
fn a_count_prints_the_number_of_each_permit_and_a_cost_takes_more_tokens() {
    let server = RedisServer::start();
    let acquire = |more: &[&str]| {
        let arguments = [&["acquire", "api", "--quota", "10/d", "--no-wait"], more].concat();
        paceline(arguments).store(&server.url())
    };
    assert_eq!(acquire(&["--count", "3"]).ends_with(0).text(), "1\n2\n3\n");
    assert_eq!(acquire(&["--cost", "4"]).ends_with(0).text(), "");
    // Three are left: the second does not fit.
    assert_eq!(acquire(&["--count", "2", "--cost", "2"]).ends_with(75).text(), "1\n");
    acquire(&[]).ends_with(0);
    acquire(&[]).ends_with(75);
}

#[test]
fn a_suspended_bucket_refuses_by_that_name() {
    let server = RedisServer::start();
    let store = server.url();
    paceline(["suspend", "api", "--for", "1h"]).store(&store).ends_with(0);
    let arguments = ["acquire", "api", "--quota", "5/s", "--no-wait", "--json"];
    let answer = paceline(arguments).store(&store).ends_with(75);
    assert_eq!(answer.json()[0]["cause"], "suspended");
    answer.says(&["suspended", "retry after"]);
}

#[test]
fn a_limit_of_zero_lets_nothing_pass_at_once() {
    paceline(["acquire", "api", "--quota", "0/s"]).ends_with(75).says(&["0/s", "nothing"]);
}

#[test]
fn two_processes_that_start_together_share_one_bucket() {
    let folder = scratch_dir("acquire");
    let store = format!("host:{}", folder.path().display());
    let arguments = ["acquire", "api", "--quota", "100/d", "--count", "80", "--no-wait"];
    let both = [0, 1].map(|_| paceline(arguments).store(&store).start());
    let lines: usize = both
        .map(|child| child.wait_with_output().unwrap())
        .iter()
        .map(|output| output.stdout.iter().filter(|byte| **byte == b'\n').count())
        .sum();
    assert_eq!(lines, 100);
}
