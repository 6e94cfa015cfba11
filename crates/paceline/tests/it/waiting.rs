//! Waiting that scales: what a crowd costs the store, who is refused at once, and who gets a place
//! that another leaves.

use std::pin::pin;
use std::time::Duration;

use paceline::testing::{ManualClock, memory};
use paceline::{Answer, Bucket, Limiter, RefusedBy};

use crate::limiter::{ms, settled};

async fn bucket(policy: &str) -> (ManualClock, Limiter, Bucket) {
    let clock = ManualClock::at(1_790_000_000_000_000);
    let limiter = memory(&clock).await.unwrap();
    let bucket = limiter.bucket("api", policy).unwrap();
    (clock, limiter, bucket)
}

#[tokio::test]
async fn a_crowd_is_served_in_order_with_a_few_operations() {
    let (clock, limiter, bucket) = bucket("100/s burst 1").await;
    bucket.acquire().await.unwrap().spend();
    let mut waiters: Vec<_> = (0..500).map(|_| Some(Box::pin(bucket.acquire()))).collect();
    let mut served = Vec::new();
    for _ in 0..600 {
        for (number, slot) in waiters.iter_mut().enumerate() {
            let Some(waiter) = slot else { continue };
            if let Some(permit) = settled_once(waiter.as_mut()).await {
                permit.unwrap().spend();
                served.push(number);
                *slot = None;
            }
        }
        clock.advance(ms(10));
    }
    assert_eq!(served, (0..500).collect::<Vec<_>>());
    let operations = limiter.stats().store_operations;
    assert!(operations <= 250, "{operations} operations for 501 calls");
}

/// One look at a waiter, and a turn for the task that drives.
async fn settled_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    tokio::task::yield_now().await;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(done) => std::task::Poll::Ready(Some(done)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn c26_a_deadline_that_cannot_be_met_is_refused_at_once_behind_a_queue_too() {
    let (_, limiter, bucket) = bucket("1/s").await;
    bucket.acquire().await.unwrap().spend();
    let mut ahead: Vec<_> = (0..5).map(|_| Box::pin(bucket.acquire())).collect();
    for waiter in &mut ahead {
        assert!(settled(waiter.as_mut()).await.is_none());
    }
    let before = limiter.stats().store_operations;
    let mut asked = pin!(bucket.acquire_within(Duration::from_secs(4)));
    let Answer::Refused(refusal) = settled(asked.as_mut()).await.expect("at once").unwrap() else {
        panic!("five are before it, one a second");
    };
    assert_eq!(refusal.retry_after(), Duration::from_secs(6));
    assert!(matches!(refusal.cause(), RefusedBy::Quota { number: 1, .. }), "{refusal}");
    assert_eq!(limiter.stats().store_operations, before, "nobody needs to be asked");
    let mut longer = pin!(bucket.acquire_within(Duration::from_secs(7)));
    assert!(settled(longer.as_mut()).await.is_none());
}

#[tokio::test]
async fn a_deadline_that_may_be_met_is_not_refused_by_a_guess() {
    // All ten leave the window at once, so all who wait go at once.
    let (clock, _, bucket) = bucket("window 10/s, 1000/s").await;
    bucket.cost(10).acquire().await.unwrap().spend();
    let within = Duration::from_millis(1_050);
    let mut waiters: Vec<_> = (0..10).map(|_| Box::pin(bucket.acquire_within(within))).collect();
    for waiter in &mut waiters {
        assert!(settled(waiter.as_mut()).await.is_none());
    }
    clock.advance(ms(930));
    for waiter in &mut waiters {
        assert!(settled(waiter.as_mut()).await.is_none());
    }
    clock.advance(ms(75));
    for waiter in &mut waiters {
        settled(waiter.as_mut()).await.expect("due").unwrap().permit().unwrap().spend();
    }
}

#[tokio::test]
async fn one_waiter_too_many_is_told_so_at_once() {
    let clock = ManualClock::at(1_790_000_000_000_000);
    let builder = Limiter::builder("memory:").manual_clock(clock.clone()).max_waiters(2);
    let limiter = builder.open().await.unwrap();
    let bucket = limiter.bucket("api", "1/s").unwrap();
    bucket.acquire().await.unwrap().spend();
    let (mut first, second) = (Box::pin(bucket.acquire()), Box::pin(bucket.acquire()));
    let mut second = second;
    assert!(settled(first.as_mut()).await.is_none());
    assert!(settled(second.as_mut()).await.is_none());
    let error = bucket.acquire().await.unwrap_err();
    assert!(error.is_crowded() && error.to_string().contains("2 calls wait already"), "{error}");
    let Answer::Refused(refusal) = bucket.acquire_within(Duration::from_secs(60)).await.unwrap()
    else {
        panic!("refused");
    };
    assert_eq!(refusal.cause(), &RefusedBy::Crowd { waiters_max: 2 });
    assert_eq!(limiter.stats().refused_crowded, 2);
    // Who asks without waiting is not a waiter, and who leaves makes room.
    assert!(!bucket.try_acquire().await.unwrap().is_granted());
    drop(first);
    let mut third = pin!(bucket.acquire());
    assert!(settled(third.as_mut()).await.is_none());
}

#[tokio::test]
async fn c38_a_suspension_and_its_end_reach_every_waiter_within_100_ms() {
    let (clock, limiter, bucket) = bucket("10/s burst 1").await;
    bucket.acquire().await.unwrap().spend();
    let mut waiters: Vec<_> = (0..8).map(|_| Box::pin(bucket.acquire())).collect();
    for waiter in &mut waiters {
        assert!(settled(waiter.as_mut()).await.is_none());
    }
    // Another process suspends, 1 ms before the first is due: nobody looks at it before that.
    clock.advance(ms(99));
    limiter.suspend("api", Duration::from_secs(3_600), "429").await.unwrap();
    let mut went = 0;
    for elapsed in 0..200 {
        clock.advance(ms(1));
        let mut still = Vec::new();
        for mut waiter in waiters {
            match settled(waiter.as_mut()).await {
                Some(permit) => {
                    permit.unwrap().spend();
                    assert!(elapsed < 100, "a call starts {elapsed} ms into a suspension");
                    went += 1;
                }
                None => still.push(waiter),
            }
        }
        waiters = still;
    }
    assert!(went <= 1, "{went} were due before it was known");
    limiter.resume("api").await.unwrap();
    clock.advance(ms(100));
    // Whoever was due when the bucket's clock stopped is due now, and no two at once.
    let mut released = 0;
    for waiter in &mut waiters {
        if let Some(permit) = settled(waiter.as_mut()).await {
            permit.unwrap().spend();
            released += 1;
        }
    }
    assert_eq!(released, 1);
}

#[tokio::test]
async fn a_permit_dropped_while_others_wait_goes_to_the_next_of_them() {
    let (clock, limiter, bucket) = bucket("1/s").await;
    let permit = bucket.acquire().await.unwrap();
    let (mut next, mut last) = (Box::pin(bucket.acquire()), Box::pin(bucket.acquire()));
    assert!(settled(next.as_mut()).await.is_none());
    assert!(settled(last.as_mut()).await.is_none());
    drop(permit);
    settled(next.as_mut()).await.expect("its place").unwrap().spend();
    clock.advance(ms(1_000));
    let mut went = settled(last.as_mut()).await;
    for _ in 0..11 {
        if went.is_some() {
            break;
        }
        clock.advance(ms(100));
        went = settled(last.as_mut()).await;
    }
    went.expect("the place that was the other's").unwrap().spend();
    assert_eq!(limiter.stats().granted, 3);
}

#[test]
fn waiters_outlive_the_runtime_that_drove_for_them() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let limiter = second.block_on(Limiter::open("memory:")).unwrap();
    let bucket = limiter.bucket("api", "20/s burst 1").unwrap();
    second.block_on(bucket.acquire()).unwrap().spend();
    // The first who waits brings its runtime to drive on.
    let waits = bucket.clone();
    let ahead = first.spawn(async move { waits.acquire().await.map(paceline::Permit::spend) });
    let waits = bucket.clone();
    let behind = second.spawn(async move { waits.acquire().await.map(paceline::Permit::spend) });
    first.shutdown_background();
    drop(ahead);
    let outcome =
        second.block_on(async { tokio::time::timeout(Duration::from_secs(20), behind).await });
    outcome.expect("it is served").unwrap().unwrap();
}
