//! Calls dropped while Redis has not answered yet: what was granted to nobody goes back.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use paceline::Limiter;
use paceline_testkit::{FaultProxy, Mode, RedisServer};

#[tokio::test]
async fn c25_a_call_dropped_before_its_answer_gives_back_what_it_was_granted() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let builder = Limiter::builder(&proxy.url()).timeout(Duration::from_secs(20));
    let limiter = builder.open().await.unwrap();
    let bucket = limiter.bucket("api", "1/d burst 10").unwrap();
    bucket.acquire().await.unwrap().spend();

    proxy.set(Mode::Stall);
    let mut waiting = Box::pin(bucket.acquire());
    for _ in 0..20 {
        // Between two looks the connection's own task sends what was asked.
        let polled = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    drop(waiting);
    proxy.set(Mode::Pass);
    limiter.settled().await;
    let status = limiter.status("api").await.unwrap().unwrap();
    assert_eq!(status.quotas[0].remaining, 9, "{status:?}");
    assert_eq!(limiter.stats().given_back, 1);
}

#[tokio::test]
async fn a_permit_dropped_has_gone_back_once_the_limiter_is_settled() {
    let server = RedisServer::start();
    let builder = Limiter::builder(&server.url()).timeout(Duration::from_secs(20));
    let limiter = builder.open().await.unwrap();
    let bucket = limiter.bucket("api", "1/d burst 10").unwrap();
    let permits = [bucket.acquire().await.unwrap(), bucket.acquire().await.unwrap()];
    assert_eq!(limiter.status("api").await.unwrap().unwrap().quotas[0].remaining, 8);
    drop(permits);
    limiter.settled().await;
    assert_eq!(limiter.status("api").await.unwrap().unwrap().quotas[0].remaining, 10);
}
