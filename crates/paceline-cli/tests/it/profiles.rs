//! What `paceline profiles` tells of providers, built in and one's own.

use paceline_testkit::scratch_dir;
use serde_json::json;

use crate::program::paceline;

const OWN: &str = r#"
[[profile]]
name = "ours"
title = "Our own service"
hosts = ["api.example.com"]
counts = "a fixed minute"

[[profile.bucket]]
name = "ours"
policy = "window 600/m guard 60ms"
date = "2026-12-01"
source = "https://example.com/limits"
grade = "documented"
"#;

#[test]
fn all_are_listed_a_line_each() {
    let answer = paceline(["profiles"]).ends_with(0);
    assert_eq!(answer.stderr, "");
    let lines: Vec<&str> = answer.text().lines().map(str::trim_start).collect();
    assert!(lines[0].starts_with("NAME") && lines[0].ends_with("HOST"), "{}", lines[0]);
    for words in [
        ["github ", "GitHub REST", "strict 5000/h (+4)", "api.github.com"],
        ["nominatim ", "Nominatim", "strict 1/s", "nominatim.openstreetmap.org"],
        ["generic ", "Everybody else", "strict 1/s", "-"],
    ] {
        let line = lines.iter().find(|line| line.starts_with(words[0])).unwrap();
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let all = paceline(["profiles", "--json"]).ends_with(0).json().remove(0);
    assert_eq!(all.as_array().unwrap().len(), lines.len() - 1);
}

#[test]
fn one_is_shown_in_full_with_its_sources() {
    let answer = paceline(["profiles", "github"]).ends_with(0);
    for words in [
        "GitHub REST (github)",
        "hosts      api.github.com\n",
        "quota      strict 5000/h",
        "bucket     github:search:{account}",
        "for        /search/**; calls with an account; answers that name it: \"search\"",
        "source     documented, 2026-12-01, https://docs.github.com/",
        "penalty    Going on while refused may ban the integration",
        "refusal    403, 429 with a body of secondary rate limit or abuse detection: rate, stop for \
         60s and longer each time",
    ] {
        assert!(answer.text().contains(words), "{words:?} is missing in {}", answer.text());
    }
    assert!(answer.text().lines().all(|line| line == line.trim_end()));

    let profile = paceline(["profiles", "airtable", "--json"]).ends_with(0).json().remove(0);
    assert_eq!(profile["name"], "airtable");
    assert_eq!(profile["buckets"][0]["policy"], "strict 5/s");
    assert_eq!(profile["buckets"][0]["path"], "/v0/{base}/**");
    assert_eq!(profile["refusals"][0]["wait_us"], 30_000_000);
    assert_eq!(profile["wait_max_us"], json!(86_400_000_000_i64));
}

#[test]
fn a_file_of_one_s_own_adds_and_replaces() {
    let folder = scratch_dir("profiles");
    let path = folder.path().join("own.toml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, OWN).unwrap();
    let answer = paceline(["profiles", "ours", "--file", file]).ends_with(0);
    assert!(answer.text().contains("quota      window 600/m guard 60ms"), "{}", answer.text());
    std::fs::write(&path, OWN.replace("\"ours\"", "\"stripe\"")).unwrap();
    let answer = paceline(["profiles", "stripe", "--file", file]).ends_with(0);
    assert!(answer.text().starts_with("Our own service (stripe)"), "{}", answer.text());
    // The others are there as before.
    paceline(["profiles", "github", "--file", file]).ends_with(0);
}

#[test]
fn what_is_wrong_is_said_with_file_profile_field_and_value() {
    let folder = scratch_dir("profiles");
    let path = folder.path().join("own.toml");
    let file = path.to_str().unwrap();
    std::fs::write(&path, OWN.replace("window 600/m guard 60ms", "600 a minute")).unwrap();
    paceline(["profiles", "--file", file]).ends_with(2).says(&[
        "own.toml: profile \"ours\": bucket 1: policy: \"600 a minute\"",
        "LIMIT/INTERVAL",
    ]);
    std::fs::write(&path, "[[profile]").unwrap();
    paceline(["profiles", "--file", file]).ends_with(2).says(&["own.toml: no TOML"]);
    paceline(["profiles", "--file", "/nowhere/at/all.toml"]).ends_with(66).says(&["all.toml"]);
    paceline(["profiles", "nobody"]).ends_with(66).says(&["no profile \"nobody\"", "github, "]);
}

#[test]
fn no_store_is_needed() {
    paceline(["profiles", "slack"]).store("redis://127.0.0.1:1").ends_with(0);
}
