//! `paceline simulate`: a table, a chart or JSON of a run in virtual time, and no exit code for
//! 429s, since to see them is what it is for.

use paceline_sim::Kind;
use paceline_testkit::scratch_dir;

use crate::program::{Program, paceline};

const GOOD: [&str; 4] = ["--quota", "strict 50/s", "--provider", "sliding 50/s"];

/// A simulation of five seconds with these arguments besides.
fn simulate(arguments: &[&str]) -> Program {
    let all = [&["simulate", "--seconds", "5", "--seed", "7"][..], arguments].concat();
    paceline(all).store("redis://nobody.asks.this")
}

#[test]
fn what_is_not_allowed_is_refused_with_the_value_and_what_is() {
    for (flag, value, words) in [
        ("--quota", "fast", &["\"fast\"", "LIMIT/INTERVAL"][..]),
        ("--provider", "rolling 5/s", &["\"rolling\"", "sliding, fixed"]),
        ("--provider", "sliding", &["\"sliding\"", "KIND LIMIT/INTERVAL"]),
        ("--provider", "sliding 0/s", &["\"0\"", "1 to 1000000000"]),
        ("--provider", "fixed 5/s capacity 2", &["capacity 2", "only bucket and leaky"]),
        ("--provider", "fixed 5/s ban soon", &["\"soon\"", "ms, s, m, h, d"]),
        ("--quota", "-1/s", &["\"-1\"", "a whole number from 0"]),
        ("--provider", "-1/s", &["\"-1/s\"", "sliding, fixed"]),
        ("--processes", "0", &["0", "from 1 to 1000"]),
        ("--callers", "10001", &["10001", "from 1 to 10000"]),
        ("--seconds", "86401", &["86401", "from 1 to 86400"]),
        ("--seconds", "-1", &["-1", "from 1 to 86400"]),
        ("--seconds", "nan", &["nan", "from 1 to 86400"]),
        ("--jitter", "5", &["\"5\"", "unit"]),
        ("--delay", "-5ms", &["\"-5ms\"", "unit"]),
        ("--delay", "125ms", &["'125ms'", "250ms", "less than 125ms"]),
        ("--delay", "3650d", &["'3650d'", "250ms", "less than 125ms"]),
        ("--answer", "soon", &["\"soon\"", "unit"]),
        ("--demand", "much", &["\"much\"", "saturated, on-off"]),
        ("--demand", "0/s", &["\"0/s\"", "saturated, on-off"]),
        ("--demand", "-1/s", &["\"-1/s\"", "saturated, on-off"]),
        ("--seed", "x", &["x", "from 0 to 18446744073709551615"]),
        ("--seed", "-5", &["-5", "from 0 to 18446744073709551615"]),
        ("--seed", "99999999999999999999", &["99999999999999999999", "from 0 to 1844"]),
        ("--chart", "pie", &["pie", "unicode, ascii, none"]),
    ] {
        // One that begins with a hyphen is a value as any other, with or without `=`.
        for arguments in [vec![flag, value], vec![&format!("{flag}={value}")]] {
            let mut all = [&["simulate"], &arguments[..]].concat();
            // Each flag once: the good ones that are not under test.
            for pair in GOOD.chunks(2).filter(|pair| pair[0] != flag) {
                all.extend(pair);
            }
            paceline(all).store("host:").ends_with(2).says(words).says(&[flag]);
        }
    }
    paceline(["simulate", "--quota", "5/s"]).ends_with(2).says(&["--provider"]);
    for (store, words) in [("memory:", "memory:"), ("postgres://u:hush@h", "\"postgres\"")] {
        let answer = simulate(&GOOD).store(store).ends_with(2);
        answer.says(&[words, "--store redis"]);
        assert!(!answer.stderr.contains("hush"), "{}", answer.stderr);
    }
}

#[test]
fn a_quota_that_the_provider_keeps_and_one_that_it_refuses_are_told_apart_at_a_glance() {
    let kept = simulate(&GOOD).ends_with(0);
    for words in ["policy     50/s burst 1", "provider   sliding 50/s", "seed       7", "none of "]
    {
        assert!(kept.text().contains(words), "{}", kept.text());
    }
    assert!(!kept.text().contains("with 429"), "{}", kept.text());

    let twice = ["--quota", "100/s", "--provider", "sliding 50/s"];
    let refused = simulate(&twice).ends_with(0);
    assert!(refused.text().contains(" refused with 429"), "{}", refused.text());
    // No terminal, no chart, unless it is asked for.
    assert!(!refused.text().contains("what the quota allows"), "{}", refused.text());
    let drawn = simulate(&[&twice[..], &["--chart", "unicode"]].concat()).ends_with(0);
    for words in ["what the quota allows", "░", "×"] {
        assert!(drawn.text().contains(words), "{}", drawn.text());
    }
    let drawn = simulate(&[&twice[..], &["--chart", "ascii"]].concat()).ends_with(0);
    assert!(drawn.text().is_ascii() && drawn.text().contains('x'), "{}", drawn.text());
}

#[test]
fn json_is_one_report_and_the_same_for_the_same_seed() {
    let arguments = [&GOOD[..], &["--json", "--processes", "3", "--callers", "2"]].concat();
    let run = || simulate(&arguments).ends_with(0).json();
    let reports = run();
    assert_eq!(reports.len(), 1);
    let report = &reports[0];
    assert_eq!(report["provider"], "sliding 50/s", "{report:#}");
    assert_eq!((&report["seed"], &report["processes"]), (&7.into(), &3.into()));
    assert_eq!(report["simulated_us"], 5_000_000);
    assert!(report["calls"].as_u64().unwrap() > 0, "{report:#}");
    let bins = report["bins"].as_array().unwrap();
    let passed: u64 = bins.iter().map(|bin| bin["accepted"].as_u64().unwrap()).sum();
    let refused = report["refused"].as_u64().unwrap();
    assert_eq!(passed + refused, report["calls"].as_u64().unwrap(), "{report:#}");
    for field in ["p50_us", "p90_us", "p99_us", "max_us"] {
        assert!(report["waits"][field].is_u64(), "{report:#}");
    }
    assert_eq!(run(), reports);
}

#[test]
fn the_svg_is_written_and_where_it_cannot_be_that_is_found_before_the_run() {
    let folder = scratch_dir("simulate");
    let file = folder.path().join("chart.svg");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "what was there before, and longer than nothing").unwrap();
    let kept = simulate(&[&GOOD[..], &["--svg", name]].concat()).ends_with(0);
    assert!(kept.text().contains("policy"), "{}", kept.text());
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("50/s burst 1"), "{svg}");

    // A folder, and a name within what is no folder.
    for name in [folder.path().to_str().unwrap(), &format!("{name}/below.svg")] {
        let failed = simulate(&[&GOOD[..], &["--svg", name]].concat()).ends_with(74);
        failed.says(&["--svg", name, "name a file that you may write to"]);
        assert_eq!(failed.text(), "");
    }
    // Only writing tells that a device has no room.
    let failed = simulate(&[&GOOD[..], &["--svg", "/dev/full"]].concat()).ends_with(74);
    failed.says(&["--svg /dev/full", "make room"]);
    assert!(failed.text().contains("policy"), "the table is there all the same");

    // The longest delay that is allowed still gets answers.
    let far = simulate(&[&GOOD[..], &["--delay", "124999us", "--json"]].concat()).ends_with(0);
    assert!(far.json()[0]["calls"].as_u64().unwrap() > 0, "{}", far.text());
}

#[test]
fn it_is_in_the_help_and_in_completions() {
    let help = paceline(["--help"]).ends_with(0);
    assert!(help.text().contains("simulate"), "{}", help.text());
    let own = paceline(["simulate", "--help"]).ends_with(0);
    let kinds = Kind::ALL.map(|kind| format!("\n  {kind} "));
    for words in kinds.iter().map(String::as_str).chain(["--provider", "on-off"]) {
        assert!(own.text().contains(words), "{words:?} is missing in {}", own.text());
    }
    let bash = paceline(["completions", "bash"]).ends_with(0);
    assert!(bash.text().contains("simulate"));
}
