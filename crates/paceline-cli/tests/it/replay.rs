//! `paceline replay`: holds each store to the traces every implementation reproduces.

use std::path::{Path, PathBuf};

use paceline_testkit::{RedisServer, scratch_dir};

use crate::program::paceline;

fn vectors() -> [PathBuf; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../paceline-core/vectors");
    ["hand.jsonl", "random.jsonl"].map(|file| folder.join(file))
}

#[test]
fn every_store_reproduces_the_vectors_and_keeps_no_scratch_bucket() {
    let server = RedisServer::start();
    let folder = scratch_dir("replay");
    let host = format!("host:{}", folder.path().display());
    for store in [&server.url(), &host, "memory:"] {
        let [hand, random] = vectors();
        let arguments = ["replay".as_ref(), hand.as_os_str(), random.as_os_str()];
        let answer = paceline(arguments).store(store).ends_with(0);
        assert_eq!(answer.text(), "66 traces, 2576 operations, 0 mismatches\n", "{store}");
        assert_eq!(paceline(["list"]).store(store).ends_with(0).text(), "", "{store}");
    }
}

#[test]
fn the_first_mismatch_is_shown_whole() {
    let folder = scratch_dir("replay");
    let file = folder.path().join("wrong.jsonl");
    let trace = r#"{"name": "first", "policy": "1/s", "ops": [
        {"now_us": 5, "op": "take", "cost": 1, "wait_max_us": 0, "want": {"granted": {"wait_us": 0}}},
        {"now_us": 6, "op": "take", "cost": 1, "wait_max_us": 0, "want": {"granted": {"wait_us": 0}}},
        {"now_us": 7, "op": "take", "cost": 2, "wait_max_us": 0, "want": {"never": {"cost_max": 2}}}
    ]}"#;
    std::fs::write(&file, format!("{}\n\n", trace.replace('\n', " "))).unwrap();
    let arguments = ["replay".as_ref(), file.as_os_str()];
    let text = paceline(arguments).ends_with(1);
    assert!(text.text().starts_with("1 traces, 3 operations, 2 mismatches\nfirst mismatch: {"));

    let json = paceline([&arguments[..], &["--json".as_ref()]].concat()).ends_with(1).json();
    assert_eq!(json[0]["mismatches"], 2);
    let first = &json[0]["first_mismatch"];
    assert_eq!((&first["trace"], &first["operation"]), (&"first".into(), &2.into()));
    assert_eq!(first["got"]["denied"]["retry_after_us"], 999_999);
    assert_eq!(first["want"]["granted"]["wait_us"], 0);
}

#[test]
fn what_is_no_trace_is_told_with_file_and_line() {
    let folder = scratch_dir("replay");
    let file = folder.path().join("bad.jsonl");
    let good = r#"{"name": "a", "policy": "1/s", "ops": []}"#;
    for bad in [
        "{",
        "[]",
        r#"{"name": "a", "policy": "1/x", "ops": []}"#,
        r#"{"name": "a", "policy": "1/s", "ops": [{"now_us": 1, "op": "fly", "want": {}}]}"#,
        r#"{"name": "a", "policy": "1/s", "ops": [{"now_us": 1, "op": "take", "want": {}}]}"#,
    ] {
        std::fs::write(&file, format!("{good}\n{bad}\n")).unwrap();
        let answer = paceline(["replay".as_ref(), file.as_os_str()]).ends_with(2);
        answer.says(&["bad.jsonl:2 is no trace"]);
    }
    paceline(["replay", "/no/such/file"]).ends_with(66).says(&["/no/such/file"]);
}
