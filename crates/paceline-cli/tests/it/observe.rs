//! `paceline observe`, and `exec --suspend-on`: what scripts tell the fleet of answers.

use paceline_testkit::{RedisServer, scratch_dir};

use crate::program::paceline;

#[test]
fn a_stated_time_suspends_the_bucket_for_everybody() {
    let server = RedisServer::start();
    let observe = ["observe", "api", "--status", "429", "--header", "Retry-After: 30", "--json"];
    let told = paceline(observe).store(&server.url()).ends_with(0).json();
    assert_eq!(told[0]["observed"], "suspended");
    assert_eq!(told[0]["left_us"], 30_000_000);
    assert_eq!(told[0]["guessed"], false);
    let refused = ["acquire", "api", "--quota", "50/s", "--max-wait", "1s"];
    paceline(refused).store(&server.url()).ends_with(75).says(&["suspended"]);
    let status = paceline(["status", "api", "--json"]).store(&server.url()).ends_with(0).json();
    assert_eq!(status[0]["suspension"]["reason"], "429, retry-after: 30");
}

#[test]
fn headers_come_from_a_file_as_curl_writes_it_and_the_last_answer_counts() {
    let folder = scratch_dir("observe");
    let path = folder.path().join("headers");
    let text = "HTTP/1.1 302 Found\r\nRetry-After: 99\r\n\r\nHTTP/2 403\r\n\
                x-ratelimit-limit: 5000\r\nx-ratelimit-remaining: 0\r\n\
                x-ratelimit-reset: 1800\r\n\r\n";
    std::fs::write(&path, text).unwrap();
    let store = format!("host:{}/store", folder.path().display());
    let path = path.to_str().unwrap();
    let observe = [
        "observe",
        "gh",
        "--status",
        "403",
        "--headers-from",
        path,
        "--profile",
        "github",
        "--json",
    ];
    let told = paceline(observe).store(&store).ends_with(0).json();
    assert_eq!(told[0]["observed"], "suspended");
    assert_eq!(told[0]["left_us"], 1_800_000_000);
}

#[test]
fn a_refusal_without_a_time_ends_with_75_and_stops_nobody() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    paceline(["observe", "api", "--status", "429"])
        .store(&store)
        .ends_with(75)
        .says(&["without a time", "rest for"]);
    paceline(["observe", "api", "--status", "200"]).store(&store).ends_with(0);
    let status = paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
    assert!(status[0]["suspension"].is_null(), "{status:?}");
}

#[test]
fn one_call_goes_first_at_the_end_unless_it_is_not_wanted() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    let observe = ["observe", "api", "--status", "429", "--header", "Retry-After: 30"];
    let plain = [&observe[..], &["--no-probe"]].concat();
    let status = |json: bool| {
        let flag: &[&str] = if json { &["--json"] } else { &[] };
        paceline([&["status", "api"], flag].concat()).store(&store).ends_with(0)
    };
    paceline(plain).store(&store).ends_with(0);
    assert!(status(true).json()[0]["suspension"]["probe"].is_null());
    assert!(!status(false).text().contains("goes first"));
    paceline(["resume", "api"]).store(&store).ends_with(0);
    paceline(observe).store(&store).ends_with(0);
    assert_eq!(status(true).json()[0]["suspension"]["probe"], "ahead");
    let text = status(false);
    assert!(text.text().contains(" more, then one call goes first"), "{}", text.text());
}

#[test]
fn a_command_that_goes_first_and_ends_well_lets_the_others_follow() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    let exec = |script: &str| {
        let words = ["exec", "api", "--quota", "50/s", "--suspend-on", "7=50ms", "--", "sh", "-c"];
        let words = words.map(str::to_owned).into_iter().chain([script.to_owned()]);
        paceline(words).store(&store)
    };
    exec("exit 7").ends_with(7);
    // It waits, goes first and is refused again; then one goes first and is not.
    exec("exit 7").ends_with(7).says(&["suspended for"]);
    let paceline = env!("CARGO_BIN_EXE_paceline");
    let seen = exec(&format!("{paceline} --timeout 10s --store {store} status api --json"));
    let seen = seen.ends_with(0).json();
    // Unless this machine took longer than the five seconds the others wait.
    let probe = &seen[0]["suspension"];
    assert!(probe.is_null() || probe["probe"] == "under way", "{seen:?}");
    let status = self::paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
    assert!(status[0]["suspension"].is_null(), "{status:?}");
}

#[test]
fn odd_input_is_told_with_what_is_allowed() {
    for (arguments, code, says) in [
        (&["--status", "42"][..], 2, "100 to 999"),
        (&["--status", "429", "--header", "nonsense"], 2, "NAME: VALUE"),
        (&["--status", "429", "--profile", "nobody"], 66, "paceline profiles"),
        (&["--status", "429", "--headers-from", "/no/such/file"], 66, "/no/such/file"),
    ] {
        let arguments = [&["observe", "api"], arguments].concat();
        paceline(arguments).ends_with(code).says(&[says]);
    }
}

#[test]
fn a_command_that_ends_with_a_chosen_code_suspends_the_bucket_and_keeps_its_code() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    let exec = |code: &str| {
        let script = format!("exit {code}");
        let words = ["exec", "api", "--quota", "50/s", "--suspend-on", "7=30s", "--", "sh", "-c"];
        words.map(str::to_owned).into_iter().chain([script])
    };
    paceline(exec("3")).store(&store).ends_with(3);
    let status = paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
    assert!(status[0]["suspension"].is_null());
    paceline(exec("7")).store(&store).ends_with(7).says(&["suspended for", "sh ended with 7"]);
    let status = paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
    assert_eq!(status[0]["suspension"]["reason"], "sh ended with 7");
    // As a shell tells a signal, and once each.
    paceline(["delete", "api"]).store(&store).ends_with(0);
    let ends = |on: &[&str]| {
        let on = on.iter().flat_map(|on| ["--suspend-on", on]);
        let words = ["exec", "api", "--quota", "50/s"].into_iter().chain(on);
        paceline(words.chain(["--", "sh", "-c", "kill -TERM $$"])).store(&store)
    };
    ends(&["137=30s"]).ends_with(143);
    let status = paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
    assert!(status[0]["suspension"].is_null());
    ends(&["7=1s", "143=30s"]).ends_with(143).says(&["suspended for", "sh ended with 143"]);
    let status = paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
    assert_eq!(status[0]["suspension"]["reason"], "sh ended with 143");
    ends(&["7=1s", "143=30s", "7=2s"]).ends_with(2).says(&["the code 7 is given twice"]);
    for bad in ["x=1s", "0=1s", "7", "7=0s", "256=1s"] {
        let words = ["exec", "api", "--quota", "50/s", "--suspend-on", bad, "--", "true"];
        paceline(words).ends_with(2).says(&[bad]);
    }
}

#[test]
fn c37_a_script_that_is_refused_again_and_again_stops_nobody_and_two_targets_do() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    let observe = |status: &str, target: &str| {
        paceline(["observe", "api", "--status", status, "--target", target, "--json"]).store(&store)
    };
    for _ in 0..3 {
        observe("429", "/retired").ends_with(75);
    }
    observe("200", "/models").ends_with(0);
    observe("429", "/models").ends_with(75);
    let told = observe("429", "/retired").ends_with(0).json();
    assert_eq!((&told[0]["observed"], &told[0]["guessed"]), (&"suspended".into(), &true.into()));
}

#[test]
fn what_an_answer_says_is_left_and_its_limit_reach_the_bucket() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    paceline(["acquire", "api", "--quota", "window 100/h"]).store(&store).ends_with(0);
    let observe = [
        "observe",
        "api",
        "--status",
        "200",
        "-H",
        r#"RateLimit-Policy: "calls";q=60;w=3600"#,
        "-H",
        r#"RateLimit: "calls";r=40;t=1800"#,
    ];
    let left = || {
        let status = paceline(["status", "api", "--json"]).store(&store).ends_with(0).json();
        (status[0]["policy"].clone(), status[0]["quotas"][0]["remaining"].clone())
    };
    let told = paceline(observe).store(&store).ends_with(0);
    told.says(&["bucket \"api\": quota 1 (window 100/h): 40 left, was 99"]);
    assert_eq!(told.text(), "");
    assert_eq!(left(), ("window 100/h".into(), 40.into()));
    // Nothing new in it.
    assert_eq!(paceline(observe).store(&store).ends_with(0).stderr, "");
    let told = paceline(observe.into_iter().chain(["--adapt"])).store(&store).ends_with(0);
    told.says(&["bucket \"api\": policy is now window 60/h, idle 1h, was window 100/h"]);
    assert_eq!(left().0, "window 60/h, idle 1h");
}

#[test]
fn what_became_of_the_bucket_is_in_the_json_and_headers_or_a_body_come_from_stdin() {
    let folder = scratch_dir("observe");
    let store = format!("host:{}", folder.path().display());
    paceline(["acquire", "api", "--quota", "window 100/h"]).store(&store).ends_with(0);
    let observe = |more: &[&str], input: &str| {
        let words = [&["observe", "api", "--status", "200", "--json"], more].concat();
        paceline(words).store(&store).input(input).ends_with(0).json()[0].clone()
    };
    let headers = "HTTP/2 200\r\nRateLimit-Policy: \"calls\";q=60;w=3600\r\n\
                   RateLimit: \"calls\";r=40;t=1800\r\n\r\n";
    let lower = serde_json::json!({
        "observed": "nothing",
        "remaining": [{ "number": 1, "quota": "window 100/h", "remaining": 40, "was": 99 }],
    });
    assert_eq!(observe(&["--headers-from", "-"], headers), lower);
    let nothing = serde_json::json!({ "observed": "nothing" });
    assert_eq!(observe(&["--headers-from", "-"], headers), nothing);
    assert_eq!(observe(&["--body", "-"], "fine"), nothing);
    let policy = observe(&["--headers-from", "-", "--adapt"], headers);
    assert_eq!(policy["policy"], "window 60/h, idle 1h");
    paceline(["observe", "api", "--status", "200", "--headers-from", "-", "--body", "-"])
        .ends_with(2)
        .says(&["only one of them"]);
}
