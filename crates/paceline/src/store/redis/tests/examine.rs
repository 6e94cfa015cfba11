//! Looking at servers that stop, answer oddly or forget what they said: something is found, once,
//! and nothing fails for it.

use paceline_testkit::{RedisServer, ScriptedServer};

use super::super::Redis;
use super::{BOUND, SHORT, open};
use crate::examination::{Examination, Severity};

async fn examined(store: &Redis) -> Examination {
    let mut found = Examination::of("");
    store.examine(&mut found).await;
    found
}

#[tokio::test]
async fn a_server_that_stops_is_told_once_and_what_was_seen_before_stays() {
    let server = RedisServer::start();
    let store = open(&server.url(), SHORT).await.unwrap();
    server.pause();
    let found = examined(&store).await;
    let wrong: Vec<_> = found.findings.iter().filter(|it| it.severity == Severity::Wrong).collect();
    assert_eq!(wrong.len(), 1, "{found:?}");
    assert!(found.error().is_some_and(|error| error.is_unavailable()), "{found:?}");
    assert!(found.facts.iter().any(|fact| fact.about == "topology"));
    server.resume();
}

#[tokio::test]
async fn odd_answers_are_findings_and_no_failure() {
    for answer in
        ["+OK\r\n", ":1\r\n", "$-1\r\n", "*0\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", "-ERR odd\r\n"]
    {
        let odd = ScriptedServer::start(move |words| {
            Some(match words[0].to_uppercase().as_str() {
                "INFO" => "$7\r\nrole:\r\n\r\n".to_owned(),
                "ROLE" => "-ERR unknown command\r\n".to_owned(),
                _ => answer.to_owned(),
            })
        });
        let store = open(&odd.url(), BOUND).await.unwrap();
        let found = examined(&store).await;
        assert_eq!(found.worst(), Some(Severity::Wrong), "{answer:?}: {found:?}");
        assert!(found.error().is_some_and(|error| error.is_incompatible()), "{found:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_told_with_its_version() {
    let old = ScriptedServer::start(|words| {
        Some(match words[0].to_uppercase().as_str() {
            "INFO" => "$21\r\nredis_version:5.0.7\r\n\r\n".to_owned(),
            _ => "+OK\r\n".to_owned(),
        })
    });
    let found = crate::Limiter::builder(&old.url()).examine().await.unwrap();
    assert!(found.error().is_some_and(|error| error.is_incompatible()), "{found:?}");
    assert!(found.findings[0].what.contains("5.0.7"), "{found:?}");
}
