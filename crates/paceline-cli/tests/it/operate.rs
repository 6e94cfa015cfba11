//! What operators do: look, list, set, suspend, resume, delete.

use paceline_testkit::{RedisServer, scratch_dir};
use serde_json::json;

use crate::program::{Answer, Program, paceline};

/// Each store that outlives a process, one after the other.
fn on_each_store(test: impl Fn(&dyn Fn(&[&str]) -> Program)) {
    let server = RedisServer::start();
    let folder = scratch_dir("operate");
    for store in [server.url(), format!("host:{}", folder.path().display())] {
        test(&|arguments| paceline(arguments).store(&store));
    }
}

#[test]
fn a_bucket_is_shown_with_all_there_is_to_see() {
    on_each_store(|paceline| {
        paceline(&["status", "api"]).ends_with(66).says(&["no bucket \"api\"", "paceline list"]);
        paceline(&["acquire", "api", "--quota", "10/d, window 5/h"]).ends_with(0);
        let text = paceline(&["status", "api"]).ends_with(0);
        assert!(text.text().starts_with("bucket     api\npolicy     10/d, window 5/h\n"));
        assert!(text.text().contains("quota 1    9 of 10 left  (10/d)\n"), "{}", text.text());
        assert!(text.text().contains("quota 2    4 of 5 left  (window 5/h)\n"));
        assert!(text.text().contains("expires    in 2h 2"), "{}", text.text());

        let status = paceline(&["status", "api", "--json"]).ends_with(0).json().remove(0);
        let expires = status["expires_in_us"].as_u64().unwrap();
        assert!(expires > 8_500_000_000 && expires <= 8_640_000_000, "{expires}");
        let want = json!({
            "bucket": "api",
            "policy": "10/d, window 5/h",
            "pinned": false,
            "quotas": [
                {"quota": "10/d", "remaining": 9, "capacity": 10},
                {"quota": "window 5/h", "remaining": 4, "capacity": 5},
            ],
            "booked_ahead_us": 0,
            "suspension": null,
            "expires_in_us": expires,
        });
        assert_eq!(status, want);
    });
}

#[test]
fn buckets_are_listed_by_name() {
    on_each_store(|paceline| {
        assert_eq!(paceline(&["list"]).ends_with(0).text(), "");
        assert_eq!(paceline(&["list", "--json"]).ends_with(0).json(), [json!([])]);
        for name in ["stripe:acct_1", "a b", "ä{}/*"] {
            paceline(&["acquire", name, "--quota", "5/d"]).ends_with(0);
        }
        assert_eq!(paceline(&["list"]).ends_with(0).text(), "a b\nstripe:acct_1\nä{}/*\n");
        let names = json!(["a b", "stripe:acct_1", "ä{}/*"]);
        assert_eq!(paceline(&["list", "--json"]).ends_with(0).json(), [names]);
        let long = paceline(&["list", "--long"]).ends_with(0);
        assert_eq!(long.text().lines().count(), 4, "{}", long.text());
        assert!(long.text().contains("5/d"), "{}", long.text());
        let long = paceline(&["list", "--long", "--json"]).ends_with(0).json().remove(0);
        assert_eq!(long[0]["bucket"], "a b");
        assert_eq!(long[0]["quotas"][0]["remaining"], 4);
    });
}

#[test]
fn a_policy_set_is_pinned_unless_told_and_binds_the_next_call() {
    on_each_store(|paceline| {
        paceline(&["acquire", "api", "--quota", "10/d"]).ends_with(0);
        let changed = paceline(&["set", "api", "1/d", "--json"]).ends_with(0).json();
        assert_eq!(
            changed,
            [json!({"bucket": "api", "policy": "1/d", "changed": true, "existed": true})]
        );
        paceline(&["acquire", "api", "--quota", "10/d", "--no-wait"]).ends_with(0);
        let refused = paceline(&["acquire", "api", "--quota", "10/d", "--no-wait"]).ends_with(75);
        refused.says(&["1/d"]);
        paceline(&["set", "api", "1/d"]).ends_with(0).says(&["already 1/d"]);
        let status = paceline(&["status", "api"]).ends_with(0);
        assert!(status.text().contains("1/d  (pinned)") && status.text().contains("never while"));

        paceline(&["set", "other", "strict 100/m", "--no-pin"]).ends_with(0).says(&["now"]);
        let other = paceline(&["status", "other", "--json"]).ends_with(0).json().remove(0);
        assert_eq!(other["pinned"], false);
        assert_eq!(other["quotas"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn a_name_without_a_bucket_is_told_to_begin_with_what_was_set_and_one_with_it_is_not() {
    on_each_store(|paceline| {
        for arguments in [&["set", "apii", "5/s"][..], &["suspend", "apj", "--for", "1h"]] {
            let words = format!("there was no bucket {:?}; it begins with this", arguments[1]);
            paceline(arguments).ends_with(0).says(&[&words]);
            let again = paceline(arguments).ends_with(0);
            assert!(!again.stderr.contains("begins"), "{}", again.stderr);
            let json = [arguments, &["--json"]].concat();
            assert_eq!(paceline(&json).ends_with(0).json()[0]["existed"], true);
            paceline(&["delete", arguments[1]]).ends_with(0);
            let answer = paceline(&json).ends_with(0);
            assert_eq!(answer.json()[0]["existed"], false);
            answer.says(&[&words]);
        }
    });
}

#[test]
fn a_limit_of_zero_is_told_to_end_waits_and_what_would_hold_them() {
    on_each_store(|paceline| {
        paceline(&["acquire", "api", "--quota", "1/d"]).ends_with(0);
        let waiting = paceline(&["acquire", "api", "--quota", "1/d"]).start();
        for policy in ["0/s", "5/s, 0/m"] {
            let words = ["lets nothing pass", "\"never\"", "75", "paceline suspend"];
            paceline(&["set", "api", policy]).ends_with(0).says(&words);
        }
        Answer::of(waiting.wait_with_output().unwrap()).says(&["never", "lets nothing pass"]);
        let other = paceline(&["set", "api", "1/s"]).ends_with(0);
        assert!(!other.stderr.contains("nothing"), "{}", other.stderr);
    });
}

#[test]
fn a_suspension_stops_all_and_a_resume_lets_them_go_on() {
    on_each_store(|paceline| {
        let suspend = ["suspend", "api", "--for", "1h", "--reason", "asked to back off"];
        paceline(&suspend).ends_with(0).says(&["\"api\"", "suspended for 1h"]);
        // The later end stays.
        let left = paceline(&["suspend", "api", "--for", "1s", "--json"]).ends_with(0).json();
        assert!(left[0]["left_us"].as_u64().unwrap() > 3_500_000_000, "{left:?}");
        let status = paceline(&["status", "api"]).ends_with(0);
        for word in ["none yet", "suspended  for ", "reason     asked to back off", ", by "] {
            assert!(status.text().contains(word), "{}", status.text());
        }
        let status = paceline(&["status", "api", "--json"]).ends_with(0).json().remove(0);
        assert_eq!(status["suspension"]["reason"], "asked to back off");
        assert_eq!(status["policy"], json!(null));
        paceline(&["acquire", "api", "--quota", "5/s", "--no-wait"]).ends_with(75);
        paceline(&["resume", "api"]).ends_with(0).says(&["resumed"]);
        let again = paceline(&["resume", "api", "--json"]).ends_with(0).json();
        assert_eq!(again, [json!({"bucket": "api", "was_suspended": false})]);
        paceline(&["acquire", "api", "--quota", "5/s", "--no-wait"]).ends_with(0);
    });
}

#[test]
fn a_bucket_deleted_is_gone_and_the_next_call_starts_a_full_one() {
    on_each_store(|paceline| {
        paceline(&["acquire", "api", "--quota", "1/d"]).ends_with(0);
        paceline(&["delete", "api", "none"]).ends_with(66).says(&["no bucket \"none\""]);
        assert_eq!(paceline(&["list"]).ends_with(0).text(), "");
        paceline(&["acquire", "api", "--quota", "1/d", "--no-wait"]).ends_with(0);
        let deleted = paceline(&["delete", "api", "--json"]).ends_with(0).json();
        assert_eq!(deleted, [json!({"bucket": "api", "existed": true})]);
    });
}

#[test]
fn every_shell_gets_completions_and_every_command_help() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = paceline(["completions", shell]).ends_with(0);
        assert!(script.text().contains("paceline") && script.text().contains("suspend"), "{shell}");
    }
    let help = paceline(["--help"]).ends_with(0);
    for word in
        ["exec", "pace", "demo", "Exit codes", "75", "69", "PACELINE_STORE", "worth reporting"]
    {
        assert!(help.text().contains(word), "{word} is missing in {}", help.text());
    }
    assert!(!help.text().contains("demo-worker"), "{}", help.text());
    for command in [
        "exec",
        "pace",
        "acquire",
        "status",
        "list",
        "set",
        "suspend",
        "resume",
        "delete",
        "doctor",
        "replay",
        "demo",
        "completions",
    ] {
        let help = paceline([command, "--help"]).ends_with(0);
        assert!(help.text().contains("Usage: paceline"), "{}", help.text());
    }
}
