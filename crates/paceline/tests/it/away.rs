//! What a caller gets while Redis is away, by the name it chose, and what is counted.

use std::num::NonZeroU32;
use std::time::Duration;

use paceline::{Answer, Bucket, GrantedBy, Limiter, WhenAway};
use paceline_testkit::{FaultProxy, Mode, RedisServer};
use tokio::task::JoinSet;

/// Long enough for a loaded machine; a wire that refuses is noticed at once.
const BOUND: Duration = Duration::from_secs(5);

async fn open(proxy: &FaultProxy, when_away: WhenAway) -> (Limiter, Bucket) {
    let builder = Limiter::builder(&proxy.url()).when_away(when_away).timeout(BOUND);
    let limiter = builder.open().await.unwrap();
    let bucket = limiter.bucket("api", "1/d burst 8").unwrap();
    (limiter, bucket)
}

/// Cuts the wire, and refuses whoever comes again.
fn cut(proxy: &FaultProxy) {
    proxy.set(Mode::Refuse);
    proxy.cut_connections();
}

/// Tries until the store answers again.
async fn back(limiter: &Limiter) {
    for _ in 0..2_000 {
        if limiter.list().await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the store did not come back");
}

#[tokio::test]
async fn p8_refuse_lets_nobody_through_and_says_that_the_store_is_away() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let (limiter, bucket) = open(&proxy, WhenAway::Refuse).await;
    bucket.acquire().await.unwrap().spend();
    cut(&proxy);
    for _ in 0..3 {
        let error = bucket.try_acquire().await.unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("\"api\""), "{error}");
        assert!(bucket.acquire().await.unwrap_err().is_unavailable());
        assert!(bucket.acquire_within(BOUND).await.unwrap_err().is_unavailable());
    }
    assert_eq!((limiter.stats().granted, limiter.stats().refused_away), (1, 9));
    proxy.set(Mode::Pass);
    back(&limiter).await;
    assert!(bucket.try_acquire().await.unwrap().is_granted());
}

#[tokio::test]
async fn allow_lets_everybody_through_marked_and_counted_and_only_while_it_is_away() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let (limiter, bucket) = open(&proxy, WhenAway::Allow).await;
    let permit = bucket.acquire().await.unwrap();
    assert_eq!(permit.granted_by(), GrantedBy::Store);
    permit.spend();
    cut(&proxy);
    for _ in 0..20 {
        let permit = bucket.acquire().await.unwrap();
        assert_eq!(permit.granted_by(), GrantedBy::Allowed);
        permit.spend();
    }
    assert_eq!(limiter.stats().allowed_away, 20);
    // What an operator asks is not a call: there is nothing to allow.
    assert!(limiter.status("api").await.unwrap_err().is_unavailable());
    proxy.set(Mode::Pass);
    back(&limiter).await;
    assert_eq!(bucket.acquire().await.unwrap().granted_by(), GrantedBy::Store);
    assert_eq!(limiter.stats().allowed_away, 20);
}

#[tokio::test]
async fn local_keeps_this_processes_share_of_the_policy_last_known_from_an_empty_start() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let processes = NonZeroU32::new(4).unwrap();
    let (limiter, bucket) = open(&proxy, WhenAway::Local { processes }).await;
    // The fleet's policy is another than this process's own: 4 an hour for each of four processes.
    assert!(limiter.set_policy("api", "16/h").await.unwrap());
    bucket.acquire().await.unwrap().spend();
    cut(&proxy);
    let Answer::Refused(refusal) = bucket.try_acquire().await.unwrap() else {
        panic!("others may just have used all there was");
    };
    assert!(refusal.is_local() && refusal.to_string().contains("away"), "{refusal}");
    let wait = refusal.retry_after();
    assert!(wait > Duration::from_secs(850) && wait <= Duration::from_secs(900), "{wait:?}");
    assert_eq!((limiter.stats().refused_local, limiter.stats().granted_local), (1, 0));
    // A deadline before that is refused at once, too.
    let answer = bucket.acquire_within(Duration::from_secs(60)).await.unwrap();
    assert!(!answer.is_granted());
    assert_eq!(limiter.stats().refused_local, 2);
    proxy.set(Mode::Pass);
    back(&limiter).await;
    assert_eq!(bucket.acquire().await.unwrap().granted_by(), GrantedBy::Store);
}

#[tokio::test]
async fn who_waits_for_its_processes_share_is_not_counted_as_refused_each_time_it_looks() {
    let processes = NonZeroU32::new(2).unwrap();
    // Nobody listens there.
    let builder = Limiter::builder("redis://127.0.0.1:1").timeout(BOUND);
    let limiter = builder.when_away(WhenAway::Local { processes }).open().await.unwrap();
    let bucket = limiter.bucket("api", "1/d").unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..50 {
        let bucket = bucket.clone();
        waiting.spawn(async move { bucket.acquire().await.map(|_| ()) });
    }
    // Each has looked once when it has met the store that is away, and looks again every 250 ms.
    while limiter.stats().store_errors < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(waiting.try_join_next().is_none(), "all wait");
    assert_eq!((limiter.stats().refused_local, limiter.stats().granted_local), (0, 0));
    assert!(!bucket.try_acquire().await.unwrap().is_granted());
    assert_eq!(limiter.stats().refused_local, 1);
}

#[tokio::test]
async fn local_grants_its_share_marked_and_counted() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let processes = NonZeroU32::new(2).unwrap();
    let builder = Limiter::builder(&proxy.url()).when_away(WhenAway::Local { processes });
    let limiter = builder.timeout(BOUND).open().await.unwrap();
    let bucket = limiter.bucket("api", "2000/s").unwrap();
    bucket.acquire().await.unwrap().spend();
    cut(&proxy);
    for _ in 0..10 {
        let permit = bucket.acquire().await.unwrap();
        assert_eq!(permit.granted_by(), GrantedBy::Local);
        permit.spend();
    }
    assert_eq!(limiter.stats().granted_local, 10);
}
