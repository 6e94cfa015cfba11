//! What is not allowed, and stores that do not answer: each with an exit code and with words that
//! say what is allowed.

use paceline_testkit::{RedisServer, ScriptedServer, scratch_dir};

use crate::program::paceline;

#[test]
fn a_bad_policy_is_refused_with_the_value_and_what_is_allowed() {
    for (policy, words) in [
        ("", "LIMIT/INTERVAL"),
        ("fast", "fast"),
        ("50", "50"),
        ("50/", "50/"),
        ("50/parsec", "parsec"),
        ("-5/s", "-5"),
        ("1.5/s", "1.5"),
        ("5/0s", "0s"),
        ("5/s burst 0", "burst"),
        ("5/s burst -1", "-1"),
        ("5/3651d", "3650d"),
        ("5/s guard 9999999999d", "9999999999d"),
        ("5/s,", ","),
        ("1/s,1/s,1/s,1/s,1/s,1/s,1/s,1/s,1/s", "1 to 8 quotas"),
        ("99999999999999999999/s", "99999999999999999999"),
    ] {
        let answer = paceline(["acquire", "api", "--quota", policy]).ends_with(2);
        answer.says(&["--quota", words]);
        paceline(["set", "api", policy]).ends_with(2);
    }
}

#[test]
fn bad_numbers_and_spans_are_refused() {
    for (flag, value, words) in [
        ("--cost", "0", "from 1 to 4294967295"),
        ("--cost", "-1", "from 1 to 4294967295"),
        ("--cost", "4294967296", "from 1 to 4294967295"),
        ("--cost", "many", "from 1 to 4294967295"),
        ("--cost", "nan", "from 1 to 4294967295"),
        ("--cost", "words=5", "requests, tokens, input-tokens"),
        ("--cost", "1,tokens=", "1,tokens=4000"),
        ("--cost", "0,tokens=0", "from 1 to 4294967295"),
        ("--quota", "5/s of words", "requests, tokens, input-tokens"),
        ("--count", "0", "from 1 to 18446744073709551615"),
        ("--count", "-1", "from 1 to 18446744073709551615"),
        ("--max-wait", "5", "from 0us to 3650d"),
        ("--max-wait", "-5s", "from 0us to 3650d"),
        ("--max-wait", "soon", "from 0us to 3650d"),
        ("--max-wait", "3651d", "from 0us to 3650d"),
        ("--timeout", "x", "a whole number and a unit"),
        ("--timeout", "-1s", "a whole number and a unit"),
        ("--timeout", "0s", "from 1ms to 3650d"),
        ("--timeout", "999us", "from 1ms to 3650d"),
        ("--when-away", "panic", "local/N"),
        ("--quota", "-1/s", "a whole number from 0"),
    ] {
        // One that begins with a hyphen is a value as any other, with or without `=`.
        for arguments in [vec![flag, value], vec![&format!("{flag}={value}")]] {
            let mut arguments = [&["acquire", "api"], &arguments[..]].concat();
            if flag != "--quota" {
                arguments.extend(["--quota", "5/s"]);
            }
            paceline(arguments).ends_with(2).says(&[flag, value, words]);
        }
    }
    for span in ["0s", "-1s", "3651d", "1y", ""] {
        paceline(["suspend", "api", "--for", span]).ends_with(2).says(&["--for", span, "3650d"]);
    }
    paceline(["set", "api", "-1/s"]).ends_with(2).says(&["\"-1/s\"", "a whole number from 0"]);
    // A flag behind the policy, or in front of it, is none.
    paceline(["set", "api", "--no-pin", "5/s", "--json"]).ends_with(0);
    for value in ["-1", "0", "201"] {
        paceline(["demo", "--processes", value]).ends_with(2).says(&[value, "from 1 to 200"]);
        paceline(["demo", "--callers", value]).ends_with(2).says(&[value, "from 1 to 200"]);
    }
    paceline(["demo", "--seconds", "-1"]).ends_with(2).says(&["--seconds", "from 5 to 3600"]);
    let reason = "x".repeat(257);
    paceline(["suspend", "api", "--for", "1s", "--reason", &reason]).ends_with(2).says(&["256"]);
    paceline(["suspend", "api", "--for", "1s", "--reason", "a\nb"]).ends_with(2);
}

#[test]
fn a_bad_name_is_refused_by_every_command_and_an_odd_one_by_none() {
    let long = "x".repeat(257);
    for name in ["", "a\nb", "\u{7f}", &long] {
        for arguments in [
            &["acquire", name, "--quota", "5/s"][..],
            &["pace", name, "--quota", "5/s"],
            &["exec", name, "--quota", "5/s", "--", "true"],
            &["status", name],
            &["set", name, "5/s"],
            &["suspend", name, "--for", "1s"],
            &["resume", name],
            &["delete", name],
        ] {
            paceline(arguments).ends_with(2).says(&["256 bytes"]);
        }
    }
    // Legal, and each a bucket of its own.
    let server = RedisServer::start();
    let folder = scratch_dir("input");
    for store in [server.url(), format!("host:{}", folder.path().display())] {
        let longest = "ü".repeat(128);
        let mut names = vec![
            "a",
            "A",
            "a b",
            "a:b",
            "a/b",
            "a%2Fb",
            "{a}",
            "a}",
            "..",
            ".",
            "../a",
            "a*",
            "日本語",
            "-",
            " ",
            "é",
            "e\u{301}",
            &longest,
        ];
        for name in &names {
            let arguments = ["acquire", "--quota", "1/d", "--no-wait", "--", name];
            paceline(arguments).store(&store).ends_with(0);
        }
        names.sort_unstable();
        let listed = paceline(["list"]).store(&store).ends_with(0);
        assert_eq!(listed.text().lines().collect::<Vec<_>>(), names, "{store}");
    }
}

#[test]
fn a_bad_store_is_refused_with_what_is_allowed_and_without_its_password() {
    for store in [
        "nonsense",
        "http://user:hush@host",
        "memory:x",
        "host:relative",
        "redis://user:hush@host/x",
        "redis://user:hush@host?nope=1",
        "redis://user:hush@host?prefix=",
        "redis+sentinel://user:hush@host",
        "redis-cluster://user:hush@host/3",
    ] {
        let answer = paceline(["list", "--store", store]).ends_with(2);
        answer.says(&["store"]);
        assert!(!answer.stderr.contains("hush"), "{}", answer.stderr);
    }
    paceline(["list", "--store", "host:/proc/nowhere"]).ends_with(69).says(&["/proc/nowhere"]);
}

#[test]
fn the_environment_names_the_store_and_a_flag_wins() {
    let server = RedisServer::start();
    let url = server.url();
    paceline(["set", "api", "5/s"]).store(&url).ends_with(0);
    assert_eq!(paceline(["list"]).store(&url).ends_with(0).text(), "api\n");
    let flag = ["list", "--store", "memory:"];
    assert_eq!(paceline(flag).store(&url).ends_with(0).text(), "");
    // An empty variable is one that is not set: this machine's own folder.
    let home = scratch_dir("home");
    let here = paceline(["list"]).store("").env("HOME", home.path().to_str().unwrap());
    assert_eq!(here.env("XDG_STATE_HOME", "").ends_with(0).text(), "");
}

#[test]
fn p8_a_store_that_is_away_is_told_and_never_taken_for_a_permit() {
    let away = ["acquire", "api", "--quota", "5/s", "--store", "redis://127.0.0.1:1"];
    let answer = paceline(away).ends_with(69);
    answer.says(&["127.0.0.1:1", "away"]);
    for command in [&["status", "api"][..], &["list"], &["set", "api", "5/s"]] {
        paceline(command).store("redis://127.0.0.1:1").ends_with(69);
    }
    let chosen = |what: &str| {
        let arguments = [&away[..], &["--json", "--when-away", what]].concat();
        paceline(arguments).ends_with(0).json().remove(0)
    };
    assert_eq!(chosen("allow")["granted_by"], "allowed");
    assert_eq!(chosen("local/2")["granted_by"], "local");
}

#[test]
fn a_store_that_does_not_let_us_in_or_is_too_old_or_holds_something_else_is_told_apart() {
    let server = RedisServer::builder().password("hush-hush").start();
    let wrong = format!("redis://:wrong-one@127.0.0.1:{}", server.port());
    let answer = paceline(["list"]).store(&wrong).ends_with(77);
    assert!(!answer.stderr.contains("wrong-one"), "{}", answer.stderr);
    answer.says(&["does not let us in"]);
    paceline(["list"]).store(&server.url()).ends_with(0);

    let nowhere = format!("{}/99", server.url());
    for away in ["refuse", "allow"] {
        let acquire = ["acquire", "api", "--quota", "5/s", "--when-away", away];
        paceline(acquire).store(&nowhere).ends_with(77).says(&["/99", "check the number"]);
    }

    let old = ScriptedServer::start(|words| {
        let is_info = words.first().is_some_and(|word| word.eq_ignore_ascii_case("info"));
        let info = "# Server\r\nredis_version:5.0.7\r\n";
        let reply = format!("${}\r\n{info}\r\n", info.len());
        Some(if is_info { reply } else { "+OK\r\n".to_owned() })
    });
    let answer = paceline(["list"]).store(&old.url()).ends_with(76);
    answer.says(&["5.0.7", "too old", "6.2"]);

    let server = RedisServer::start();
    server.command(&["SET", "paceline:{api}", "mine"]);
    let arguments = ["acquire", "api", "--quota", "5/s"];
    paceline(arguments).store(&server.url()).ends_with(76).says(&["paceline:{api}"]);
    server.command(&["HSET", "paceline:{hash}", "name", "Ada"]);
    for command in [
        &["acquire", "hash", "--quota", "5/s"][..],
        &["status", "hash"],
        &["set", "hash", "5/s"],
        &["suspend", "hash", "--for", "1s"],
        &["resume", "hash"],
        &["delete", "hash"],
        &["delete", "api"],
    ] {
        let words = [&format!("paceline:{{{}}}", command[1]), "delete or rename it", "?prefix="];
        paceline(command).store(&server.url()).ends_with(76).says(&words);
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), Some(2));
}

#[test]
fn a_cost_that_the_policy_does_not_count_is_told_with_what_it_counts() {
    let tokens = "30000/m of tokens";
    let both = "500/m, 30000/m of tokens";
    for (command, after) in [("acquire", &[][..]), ("exec", &["--", "echo", "ran"]), ("pace", &[])]
    {
        let run = |quota: &str, cost: &[&str]| {
            let words = [&[command, "api", "--quota", quota], cost, after].concat();
            let answer = paceline(words).input("ran\n").ends_with(2);
            assert_eq!(answer.text(), "", "{command}");
            answer
        };
        run(tokens, &[]).says(&[tokens, "--cost tokens=…"]);
        run(both, &["--cost", "output-tokens=5"]).says(&["counts output-tokens", both]);
    }
    paceline(["acquire", "api", "--quota", "strict 30000/m of tokens"])
        .ends_with(2)
        .says(&["window 30000/m of tokens"]);
}
