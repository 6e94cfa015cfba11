//! The store against real servers, broken wires and servers that answer oddly.

mod cluster;
mod examine;
mod outages;
mod replicas;
mod sentinel;

use std::sync::Arc;
use std::time::Duration;

use paceline_core::{Ask, Decision, Policy, Suspension};
use paceline_testkit::{FaultProxy, Mode, RedisServer, Reply, ScriptedServer, eventually};

use super::Redis;
use super::words::Word;
use crate::clock::{Clock, ManualClock};
use crate::error::Error;
use crate::store::Store;
use crate::store::contract::{START, Tested, contract};
use crate::store::url::StoreUrl;

/// Long enough for a loaded machine; no test waits for it unless something is broken on purpose.
const BOUND: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(200);

/// The clock moved by hand gives the script its time; expiries are the server's own, and longer
/// than a test.
async fn store() -> Tested {
    let (clock, server) = (ManualClock::at(START), RedisServer::start());
    let url = server.url().parse().unwrap();
    let store = Store::open(&url, Clock::Manual(clock.clone()), BOUND).await.unwrap();
    Tested { store: Arc::new(store), clock, _keeps: Box::new(server) }
}

contract!();

async fn open(url: &str, timeout: Duration) -> Result<Redis, Error> {
    let StoreUrl::Redis(url) = url.parse()? else { panic!("a Redis URL: {url}") };
    Redis::open(&url, Clock::System, timeout).await
}

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(text.parse().unwrap())
}

async fn take(store: &Redis, name: &str, policy: &Arc<Policy>) -> Result<Decision, Error> {
    Ok(store.take(name, policy, Ask { cost: 1.into(), wait_max_us: 0 }).await?.decision)
}

fn granted(decision: Result<Decision, Error>) -> bool {
    matches!(decision.unwrap(), Decision::Granted { wait_us: 0, .. })
}

async fn left(store: &Redis, name: &str) -> i64 {
    let look = store.look(name).await.unwrap();
    look.bucket.unwrap().view(look.now).quotas[0].remaining
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c08_a_lost_script_is_loaded_once_for_all_and_nobody_sees_an_error() {
    let server = RedisServer::start();
    let store = Arc::new(open(&server.url(), BOUND).await.unwrap());
    let policy = policy("1/d burst 5000");
    assert!(granted(take(&store, "api", &policy).await));
    for restarted in [false, true] {
        if restarted {
            // Empty, without script and buckets; what was taken is taken again.
            server.restart();
            eventually("reconnects", || {
                tokio::task::block_in_place(|| {
                    let handle = tokio::runtime::Handle::current();
                    handle.block_on(take(&store, "probe", &policy)).is_ok()
                })
            });
        }
        server.command(&["SCRIPT", "FLUSH"]);
        server.command(&["CONFIG", "RESETSTAT"]);
        let before = if restarted { 5_000 } else { 4_999 };
        let calls: Vec<_> = (0..512)
            .map(|_| {
                let (store, policy) = (Arc::clone(&store), Arc::clone(&policy));
                tokio::spawn(async move { granted(take(&store, "api", &policy).await) })
            })
            .collect();
        for call in calls {
            assert!(call.await.unwrap());
        }
        assert_eq!(left(&store, "api").await, before - 512);
        let loads = server.command_stats("script|load").unwrap().calls;
        assert!(loads <= 3, "{loads} loads");
    }
}

#[tokio::test]
async fn c09_a_lost_answer_counts_as_spent_once_and_is_never_replayed() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = open(&proxy.url(), SHORT).await.unwrap();
    let policy = policy("1/d burst 10");
    // The script is loaded, and another bucket called, while all is well.
    assert!(granted(take(&store, "other", &policy).await));
    proxy.set(Mode::SwallowReplies);
    let error = take(&store, "api", &policy).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.set(Mode::Pass);
    proxy.cut_connections();
    let direct = open(&server.url(), BOUND).await.unwrap();
    assert_eq!(left(&direct, "api").await, 9);
}

#[tokio::test]
async fn c27_a_server_that_stops_is_away_within_the_bound_and_comes_back_by_itself() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let store = open(&proxy.url(), SHORT).await.unwrap();
    let policy = policy("1000/s");
    assert!(granted(take(&store, "api", &policy).await));
    server.pause();
    for _ in 0..5 {
        let error = take(&store, "api", &policy).await.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
    server.resume();
    comes_back(&store, &policy).await;
    server.kill();
    let mut failed = 0;
    while take(&store, "api", &policy).await.is_err() {
        failed += 1;
        if failed == 20 {
            break;
        }
    }
    assert_eq!(failed, 20);
    server.restart();
    comes_back(&store, &policy).await;
    assert!(proxy.connections_now() <= 1, "{}", proxy.connections_now());
}

/// Calls until one succeeds; a store that never comes back ends the test.
async fn comes_back(store: &Redis, policy: &Arc<Policy>) {
    for _ in 0..400 {
        if take(store, "api", policy).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the store did not come back");
}

#[tokio::test]
async fn a_server_that_is_away_when_the_store_is_opened_is_used_when_it_comes() {
    let server = RedisServer::start();
    server.kill();
    let store = open(&server.url(), SHORT).await.unwrap();
    let policy = policy("5/s");
    assert!(take(&store, "api", &policy).await.unwrap_err().is_unavailable());
    server.restart();
    comes_back(&store, &policy).await;
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_the_door_and_never_shown() {
    let server = RedisServer::builder().password("open sesame").start();
    let right = open(&server.url(), BOUND).await.unwrap();
    assert!(granted(take(&right, "api", &policy("5/s")).await));
    let port = server.port();
    for url in
        [format!("redis://:hush@127.0.0.1:{port}"), format!("redis://me:hush@127.0.0.1:{port}")]
    {
        let error = open(&url, BOUND).await.unwrap_err();
        assert!(error.is_forbidden(), "{error}");
        assert!(!error.to_string().contains("hush"), "{error}");
    }
    // Without any, the server answers the first command with NOAUTH.
    let bare = match open(&format!("redis://127.0.0.1:{port}"), BOUND).await {
        Ok(store) => take(&store, "api", &policy("5/s")).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(bare.is_forbidden(), "{bare}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused_at_the_door_and_never_taken_for_away() {
    let server = RedisServer::builder().config("databases", "4").start();
    assert!(open(&format!("{}/3", server.url()), BOUND).await.is_ok());
    for number in [4, 99, 65_535] {
        let url = format!("{}/{number}", server.url());
        let error = open(&url, BOUND).await.unwrap_err();
        assert!(error.is_forbidden(), "{error}");
        for words in [&*url, "does not have", "cannot be told", "check the number"] {
            assert!(error.to_string().contains(words), "{words:?} is missing in {error}");
        }
        // What lets calls through without the store is for a store that is away.
        let builder = crate::Limiter::builder(&url).timeout(BOUND);
        let opened = builder.when_away(crate::WhenAway::Allow).open().await;
        assert!(opened.unwrap_err().is_forbidden());
    }
    // Nor is one that the user may not choose.
    server.command(&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "+@all", "-select"]);
    let error =
        open(&format!("redis://worker:secret@{}/3", server.addr()), BOUND).await.unwrap_err();
    assert!(error.is_forbidden() && error.to_string().contains("select"), "{error}");
}

#[tokio::test]
async fn c05_a_server_too_old_is_named_once_and_clearly() {
    let old = ScriptedServer::start(|words| {
        Some(match words[0].to_uppercase().as_str() {
            "INFO" => "$26\r\nredis_version:5.0.7\r\nx:y\r\n\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        })
    });
    let error = open(&old.url(), BOUND).await.unwrap_err();
    assert!(error.is_incompatible(), "{error}");
    let message = error.to_string();
    assert!(message.contains("5.0.7") && message.contains("6.2 or newer"), "{message}");
}

#[tokio::test]
async fn a_server_without_a_redis_version_is_taken_as_it_is() {
    let other = ScriptedServer::start(|words| {
        Some(match words[0].to_uppercase().as_str() {
            "INFO" => "-NOPERM no\r\n".to_owned(),
            "EVALSHA" => "*5\r\n:1\r\n:0\r\n:7\r\n:7\r\n:7\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        })
    });
    let store = open(&other.url(), BOUND).await.unwrap();
    assert!(granted(take(&store, "api", &policy("5/s")).await));
}

#[tokio::test]
async fn p8_no_odd_answer_is_ever_a_grant() {
    for (answer, unavailable) in [
        ("$-1\r\n", false),
        ("*-1\r\n", false),
        ("*0\r\n", false),
        (":1\r\n", false),
        ("+OK\r\n", false),
        ("*1\r\n:1\r\n", false),
        ("*5\r\n:1\r\n:0\r\n:7\r\n:7\r\n$1\r\n7\r\n", false),
        ("*3\r\n:9\r\n:0\r\n:0\r\n", false),
        ("*3\r\n:2\r\n:5\r\n:99\r\n", false),
        ("-ERR Error running script\r\n", false),
        ("-PACELINE state version 2 is newer\r\n", false),
        ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", true),
        ("-READONLY You can't write against a read only replica.\r\n", true),
        ("-LOADING Redis is loading the dataset in memory\r\n", true),
        ("-MASTERDOWN Link with MASTER is down\r\n", true),
        ("-BUSY Redis is busy running a script.\r\n", true),
        ("-NOSCRIPT No matching script.\r\n", true),
    ] {
        let odd = ScriptedServer::start(move |words| {
            Some(match words[0].to_uppercase().as_str() {
                "EVALSHA" => answer.to_owned(),
                "INFO" => "$0\r\n\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            })
        });
        let store = open(&odd.url(), BOUND).await.unwrap();
        let error = take(&store, "api", &policy("5/s")).await.unwrap_err();
        assert_eq!(error.is_unavailable(), unavailable, "{answer:?}: {error}");
        assert_eq!(error.is_incompatible(), !unavailable, "{answer:?}: {error}");
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_named_and_left_alone() {
    let server = RedisServer::start();
    server.command(&["SET", "paceline:{api}", "mine"]);
    let store = open(&server.url(), BOUND).await.unwrap();
    let error = take(&store, "api", &policy("5/s")).await.unwrap_err();
    assert!(error.is_incompatible() && error.to_string().contains("paceline:{api}"), "{error}");
    assert_eq!(server.command(&["GET", "paceline:{api}"]), Reply::Text("mine".to_owned()));
}

#[tokio::test]
async fn a_hash_that_is_no_bucket_gets_the_same_words_and_nothing_of_the_kind_is_deleted() {
    let server = RedisServer::start();
    server.command(&["SET", "paceline:{text}", "mine"]);
    server.command(&["HSET", "paceline:{hash}", "name", "Ada", "made", "1815"]);
    server.command(&["HSET", "paceline:{numbers}", "", "empty", "x 1", "y"]);
    let store = open(&server.url(), BOUND).await.unwrap();
    let before = server.command(&["HGETALL", "paceline:{hash}"]);
    for name in ["text", "hash", "numbers"] {
        for error in [
            take(&store, name, &policy("5/s")).await.unwrap_err(),
            store.batch(name, &policy("5/s"), &[]).await.unwrap_err(),
            store.look(name).await.unwrap_err(),
            store.set(name, &policy("5/s"), true).await.unwrap_err(),
            store.suspend(name, 1_000_000, 0, Suspension::default()).await.unwrap_err(),
            store.resume(name).await.unwrap_err(),
            store.delete(name).await.unwrap_err(),
        ] {
            assert!(error.is_incompatible(), "{error}");
            let key = format!("\"paceline:{{{name}}}\"");
            for words in [&*key, "not a bucket", "delete or rename it", "?prefix="] {
                assert!(error.to_string().contains(words), "{words:?} is missing in {error}");
            }
        }
    }
    assert_eq!(server.command(&["HGETALL", "paceline:{hash}"]), before);
    assert_eq!(server.command(&["DBSIZE"]).int(), Some(3));
    // A number alone is no clock's name.
    server.command(&["HSET", "paceline:{visits}", "1234", "x"]);
    let error = store.delete("visits").await.unwrap_err();
    assert!(error.to_string().contains("?prefix="), "{error}");

    // Ours are deleted, without a policy and of a newer version, too.
    store.suspend("bare", 60_000_000, 0, Suspension::default()).await.unwrap();
    assert!(store.delete("bare").await.unwrap());
    assert!(granted(take(&store, "api", &policy("5/s")).await));
    server.command(&["HSET", "paceline:{api}", "3 whatever", "0"]);
    server.command(&["HDEL", "paceline:{api}", "1 3000000 b 1 200000 5 1000000"]);
    assert!(store.delete("api").await.unwrap());
    assert!(!store.delete("api").await.unwrap());
}

#[tokio::test]
async fn a_state_of_a_newer_version_is_refused_with_what_to_do() {
    let server = RedisServer::start();
    let store = open(&server.url(), BOUND).await.unwrap();
    assert!(granted(take(&store, "api", &policy("5/s")).await));
    // As a newer process leaves it.
    server.command(&["HSET", "paceline:{api}", "3 whatever", "0"]);
    server.command(&["HDEL", "paceline:{api}", "1 3000000 b 1 200000 5 1000000"]);
    let error = take(&store, "api", &policy("5/s")).await.unwrap_err();
    assert!(error.is_incompatible() && error.to_string().contains("upgrade"), "{error}");
}

#[tokio::test]
async fn c11_p4_every_path_leaves_an_expiry_and_repairs_one_that_is_missing() {
    let server = RedisServer::start();
    let store = open(&server.url(), BOUND).await.unwrap();
    let (slow, fast) = (policy("1/15s burst 3"), policy("5/m"));
    let key = "paceline:{api}";
    let expires = |least: i64| {
        let ttl = server.command(&["PTTL", key]).int().unwrap();
        assert!(ttl >= least, "{ttl} ms, at least {least}");
        server.command(&["PERSIST", key]);
    };
    let ask = Ask { cost: 3.into(), wait_max_us: 0 };
    let Decision::Granted { booking, .. } = store.take("api", &slow, ask).await.unwrap().decision
    else {
        panic!("granted");
    };
    expires(44_000);
    assert!(!granted(take(&store, "api", &slow).await));
    expires(44_000);
    store.suspend("api", 60_000_000, 0, Suspension::default()).await.unwrap();
    expires(100_000);
    assert!(!granted(take(&store, "api", &slow).await));
    expires(100_000);
    store.resume("api").await.unwrap();
    expires(44_000);
    store.give_back("api", booking).await.unwrap();
    expires(1_000);
    store.set("api", &fast, false).await.unwrap();
    expires(1_000);
    store.set("api", &fast, false).await.unwrap();
    expires(1_000);
    store.set("api", &fast, true).await.unwrap();
    expires(300_000_000_000);
    store.suspend("unused", 60_000_000, 0, Suspension::default()).await.unwrap();
    let ttl = server.command(&["PTTL", "paceline:{unused}"]).int().unwrap();
    assert!(ttl >= 59_000, "{ttl}");
}

#[tokio::test]
async fn a_person_can_read_the_hash_and_it_is_small() {
    let server = RedisServer::start();
    let store = open(&server.url(), BOUND).await.unwrap();
    let two = policy("50/s burst 10, 1000/h");
    assert!(granted(take(&store, "github", &two).await));
    let Reply::List(fields) = server.command(&["HGETALL", "paceline:{github}"]) else {
        panic!("a hash");
    };
    let texts: Vec<&str> = fields.iter().filter_map(Reply::text).collect();
    let named: Vec<&str> = texts.iter().copied().step_by(2).collect();
    assert_eq!(
        named,
        ["policy", "made", "1 3000000 b 1 20000 10 1000000 b 1 3600000 1000 3600000000", "legend",]
    );
    assert_eq!(texts[1], "50/s burst 10, 1000/h");
    let bytes = server.command(&["MEMORY", "USAGE", "paceline:{github}"]).int().unwrap();
    assert!(bytes <= 300, "{bytes} bytes");
}

#[tokio::test]
async fn c29_odd_names_are_their_own_keys_and_listed_as_they_are() {
    let server = RedisServer::start();
    server.command(&["SET", "paceline:other", "x"]);
    server.command(&["SET", "unrelated", "x"]);
    let url = format!("{}?prefix=p%2A%5Bx%5D:", server.url());
    let store = open(&url, BOUND).await.unwrap();
    let plain = open(&server.url(), BOUND).await.unwrap();
    let once = policy("1/h");
    let long = "x".repeat(256);
    let mut names = ["a:b", "a", "a}b", "{a}", "}", "a b", "A", "日本", "*", &long];
    for name in names {
        assert!(granted(take(&store, name, &once).await), "{name}");
        assert!(!granted(take(&store, name, &once).await), "{name}");
    }
    names.sort_unstable();
    assert_eq!(listed(&store).await, names);
    assert_eq!(listed(&plain).await, Vec::<String>::new());
    for name in names {
        assert!(store.delete(name).await.unwrap());
    }
    assert_eq!(listed(&store).await, Vec::<String>::new());
}

#[tokio::test]
async fn another_processes_policy_is_told_with_the_decision() {
    let server = RedisServer::start();
    let store = open(&server.url(), BOUND).await.unwrap();
    let (mine, set) = (policy("100/m"), policy("10/m, window 50/h"));
    store.set("api", &set, true).await.unwrap();
    let ask = Ask { cost: 11.into(), wait_max_us: 0 };
    let taken = store.take("api", &mine, ask).await.unwrap();
    assert_eq!(taken.decision, Decision::Never { cost_max: 10, quota: 1 });
    assert_eq!(taken.policy, Some(set));
}

/// All names; every server has to answer.
async fn listed(store: &Redis) -> Vec<String> {
    match store.list().await {
        (names, None) => names,
        (_, Some(error)) => panic!("{error}"),
    }
}

/// What OPERATING.md says a worker needs, word by word.
fn rights() -> Vec<&'static str> {
    let text = include_str!("../../../../../OPERATING.md");
    let line = text.lines().find(|line| line.starts_with("ACL SETUSER worker ")).unwrap();
    line.split(' ').collect()
}

/// Every operation of the store, on a bucket of that name.
async fn does_everything(store: &Redis, name: &str) {
    let policy = policy("5/s, window 10/m guard 1s");
    let ask = Ask { cost: 2.into(), wait_max_us: 0 };
    let mut words = store.words().await.unwrap();
    let Decision::Granted { booking, .. } = store.take(name, &policy, ask).await.unwrap().decision
    else {
        panic!("granted");
    };
    store.batch(name, &policy, &[]).await.unwrap();
    assert!(store.answered(name, booking).await.unwrap());
    assert!(granted(take(store, name, &policy).await));
    let Decision::Granted { booking, .. } = store.take(name, &policy, ask).await.unwrap().decision
    else {
        panic!("granted");
    };
    assert!(store.give_back(name, booking).await.unwrap());
    store.suspend(name, 1_000_000, 0, Suspension::default()).await.unwrap();
    // In a Cluster words of another bucket's changes may still be under way.
    while words.next().await.expect("the subscription stands").name != name {}
    assert!(store.resume(name).await.unwrap());
    assert!(store.set(name, &self::policy("7/s"), false).await.unwrap());
    assert!(store.look(name).await.unwrap().bucket.is_some());
    assert!(listed(store).await.iter().any(|listed| listed == name));
    assert!(store.delete(name).await.unwrap());
}

#[tokio::test]
async fn a_user_restricted_to_the_prefix_and_the_commands_needed_can_do_everything() {
    let server = RedisServer::start();
    assert_eq!(server.command(&rights()), Reply::Text("OK".to_owned()));
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    let store = open(&url, BOUND).await.unwrap();
    does_everything(&store, "api").await;
    let outside = open(&format!("{url}?prefix=elsewhere:"), BOUND).await.unwrap();
    let error = take(&outside, "api", &policy("5/s")).await.unwrap_err();
    assert!(error.is_forbidden(), "{error}");
}

#[tokio::test]
async fn a_word_of_every_change_reaches_who_listens() {
    let server = RedisServer::start();
    let store = open(&format!("{}?prefix=a*:", server.url()), BOUND).await.unwrap();
    let mut words = store.words().await.unwrap();
    let policy = policy("5/s");
    take(&store, "api", &policy).await.unwrap();
    assert!(!store.resume("api").await.unwrap());
    store.suspend("ap{i}", 1_000_000, 0, Suspension::default()).await.unwrap();
    store.resume("ap{i}").await.unwrap();
    store.set("api", &super::tests::policy("7/s"), false).await.unwrap();
    store.set("api", &super::tests::policy("7/s"), false).await.unwrap();
    store.delete("api").await.unwrap();
    // Who is refused without a time, and who by that stops the bucket.
    for by in [1, 2] {
        store.refused("bare", by, 1_000_000, 0, Suspension::default()).await.unwrap();
    }
    // Another fleet's bucket is none of ours.
    let other = open(&server.url(), BOUND).await.unwrap();
    other.suspend("api", 1_000_000, 0, Suspension::default()).await.unwrap();
    store.suspend("last", 1_000_000, 0, Suspension::default()).await.unwrap();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|word: &Word| word.name != "last") {
        heard.push(words.next().await.unwrap());
    }
    let told = heard.iter().map(|word| (word.name.as_str(), word.changed, word.doubted));
    let changed = |name| (name, true, false);
    let [one, two] = [("bare", false, true), ("bare", true, true)];
    let wanted = ["ap{i}", "ap{i}", "api", "api"].map(changed).into_iter();
    let wanted = wanted.chain([one, two, changed("last")]);
    assert_eq!(told.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    drop(server);
    assert_eq!(words.next().await, None);
}
