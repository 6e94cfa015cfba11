//! Verbs, waiting, deadlines and cancellation, on a memory store under a clock moved by hand. A
//! task that waits is driven by polling it, so nothing here depends on the machine's speed.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use paceline::testing::{ManualClock, memory};
use paceline::{Answer, Bucket, Error, GrantedBy, Limiter, Permit, RefusedBy};

const START: i64 = 1_790_000_000_123_456;

async fn bucket(policy: &str) -> (ManualClock, Limiter, Bucket) {
    let clock = ManualClock::at(START);
    let limiter = memory(&clock).await.unwrap();
    let bucket = limiter.bucket("api", policy).unwrap();
    (clock, limiter, bucket)
}

async fn is_granted(bucket: &Bucket) -> bool {
    match bucket.try_acquire().await.unwrap() {
        Answer::Granted(permit) => {
            permit.spend();
            true
        }
        Answer::Refused(_) => false,
    }
}

/// Whether a future is done after everything that can happen now has happened.
pub(crate) async fn settled<T>(
    mut future: Pin<&mut (impl Future<Output = T> + ?Sized)>,
) -> Option<T> {
    for _ in 0..20 {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(value) = polled {
            return Some(value);
        }
        tokio::task::yield_now().await;
    }
    None
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test]
async fn a_refusal_says_when_to_come_back_and_which_quota_refused() {
    let (clock, _, bucket) = bucket("5/s, 1/10s burst 2").await;
    assert!(is_granted(&bucket).await && is_granted(&bucket).await);
    let Answer::Refused(refusal) = bucket.try_acquire().await.unwrap() else { panic!("refused") };
    assert_eq!(refusal.retry_after(), Duration::from_secs(10));
    let quota = RefusedBy::Quota { number: 2, text: "1/10s burst 2".to_owned() };
    assert_eq!(refusal.cause(), &quota);
    assert!(refusal.to_string().contains("quota 2 (1/10s burst 2)"), "{refusal}");
    clock.advance(refusal.retry_after() - Duration::from_micros(1));
    assert!(!is_granted(&bucket).await);
    clock.advance(Duration::from_micros(1));
    assert!(is_granted(&bucket).await);
}

#[tokio::test]
async fn dropping_a_permit_returns_its_place() {
    let (_, limiter, bucket) = bucket("1/h").await;
    let permit = bucket.acquire().await.unwrap();
    assert_eq!(permit.granted_by(), GrantedBy::Store);
    drop(permit);
    assert_eq!(limiter.stats().given_back, 1);
    assert!(is_granted(&bucket).await);
    assert!(!is_granted(&bucket).await, "a spent permit gives nothing back");
}

#[tokio::test]
async fn a_program_that_forgets_to_spend_its_permits_is_held_to_the_limit_all_the_same() {
    let (_, _, bucket) = bucket("1/d burst 5").await;
    let mut calls = 0;
    while let Answer::Granted(permit) = bucket.try_acquire().await.unwrap() {
        calls += 1;
        drop(permit);
        assert!(calls < 1_000, "no limit holds");
    }
    // The first 16 gave their place back.
    assert_eq!(calls, 16 + 5);
}

#[tokio::test]
async fn acquire_waits_for_the_token_and_not_a_moment_less() {
    let (clock, _, bucket) = bucket("1/s").await;
    bucket.acquire().await.unwrap().spend();
    let mut waiting = pin!(bucket.acquire());
    assert!(settled(waiting.as_mut()).await.is_none());
    clock.advance(ms(999));
    assert!(settled(waiting.as_mut()).await.is_none());
    clock.advance(ms(1));
    let permit = settled(waiting).await.expect("its moment has come").unwrap();
    assert_eq!(permit.waited(), Duration::from_secs(1));
    permit.spend();
}

#[tokio::test]
async fn sleepers_that_wake_too_late_ask_anew_and_do_not_go_out_in_a_bunch() {
    let (clock, _, bucket) = bucket("10/s burst 1").await;
    bucket.acquire().await.unwrap().spend();
    let mut waiters: Vec<_> = (0..5).map(|_| Box::pin(bucket.acquire())).collect();
    for waiter in &mut waiters {
        assert!(settled(waiter.as_mut()).await.is_none());
    }
    // As when the process was stopped: all five moments have passed meanwhile.
    clock.advance(Duration::from_secs(2));
    let mut granted = 0;
    for waiter in &mut waiters {
        if let Some(permit) = settled(waiter.as_mut()).await {
            permit.unwrap().spend();
            granted += 1;
        }
    }
    assert_eq!(granted, 1, "what a burst of 1 lets through at once");
}

#[tokio::test]
async fn c26_a_deadline_that_cannot_be_met_refuses_at_once_and_takes_nothing() {
    let (clock, _, bucket) = bucket("1/10s").await;
    bucket.acquire().await.unwrap().spend();
    let mut asked = pin!(bucket.acquire_within(Duration::from_secs(5)));
    let answer = settled(asked.as_mut()).await.expect("at once").unwrap();
    let Answer::Refused(refusal) = answer else { panic!("refused") };
    assert_eq!(refusal.retry_after(), Duration::from_secs(10));
    clock.advance(Duration::from_secs(10));
    assert!(is_granted(&bucket).await);
    // One that can be met waits; far behind the short time anybody books ahead.
    let mut met = pin!(bucket.acquire_within(Duration::from_secs(10)));
    assert!(settled(met.as_mut()).await.is_none());
    let mut permit = None;
    for _ in 0..100 {
        clock.advance(ms(101));
        permit = settled(met.as_mut()).await;
        if permit.is_some() {
            break;
        }
    }
    permit.expect("met").unwrap().permit().unwrap().spend();
}

#[tokio::test]
async fn c25_a_dropped_waiter_leaves_its_place_to_the_next() {
    let (clock, _, bucket) = bucket("1/s").await;
    bucket.acquire().await.unwrap().spend();
    let mut first = Box::pin(bucket.acquire());
    assert!(settled(first.as_mut()).await.is_none());
    let mut second = pin!(bucket.acquire());
    clock.advance(ms(500));
    assert!(settled(second.as_mut()).await.is_none());
    drop(first);
    assert!(settled(second.as_mut()).await.is_none());
    clock.advance(ms(500));
    let mut done = settled(second.as_mut()).await;
    for _ in 0..10 {
        if done.is_some() {
            break;
        }
        clock.advance(ms(100));
        done = settled(second.as_mut()).await;
    }
    done.expect("at the latest two seconds in").unwrap().spend();
}

#[tokio::test]
async fn c25_places_booked_ahead_move_up_when_an_earlier_one_is_dropped() {
    let (clock, _, bucket) = bucket("10/s burst 1").await;
    bucket.acquire().await.unwrap().spend();
    let mut waiters: Vec<_> = (0..4).map(|_| Some(Box::pin(bucket.acquire()))).collect();
    for waiter in waiters.iter_mut().flatten() {
        assert!(settled(waiter.as_mut()).await.is_none());
    }
    waiters[0] = None;
    for waiter in waiters.iter_mut().flatten() {
        clock.advance(ms(100));
        settled(waiter.as_mut()).await.expect("one place earlier").unwrap().spend();
    }
    // And the last place went back to the bucket.
    clock.advance(ms(100));
    assert!(is_granted(&bucket).await);
}

#[tokio::test]
async fn c25_ten_thousand_random_cancellations_lose_no_token_and_mint_none() {
    let mut rng = fastrand::Rng::with_seed(25);
    let (clock, _, bucket) = bucket("10/s burst 3").await;
    type Waiting<'a> = Pin<Box<dyn Future<Output = Result<Permit, Error>> + 'a>>;
    let mut waiting: Vec<Waiting<'_>> = Vec::new();
    let mut spent: Vec<i64> = Vec::new();
    for _ in 0..10_000 {
        match rng.u32(0..4) {
            0 if waiting.len() < 8 => waiting.push(Box::pin(bucket.acquire())),
            1 if !waiting.is_empty() => drop(waiting.swap_remove(rng.usize(0..waiting.len()))),
            _ => clock.advance(ms(rng.u64(0..60))),
        }
        // A task that never yields is starved by its runtime.
        tokio::task::yield_now().await;
        let mut still = Vec::new();
        for mut waiter in waiting {
            match poll_fn(|context| Poll::Ready(waiter.as_mut().poll(context))).await {
                Poll::Ready(permit) if rng.bool() => {
                    permit.unwrap().spend();
                    spent.push(clock.now());
                }
                // Dropped in the very moment it fell due.
                Poll::Ready(permit) => drop(permit.unwrap()),
                Poll::Pending => still.push(waiter),
            }
        }
        waiting = still;
    }
    assert!(spent.len() > 500, "{}", spent.len());
    for (first, from) in spent.iter().enumerate() {
        for (more, until) in spent[first..].iter().enumerate() {
            let most = 3 + (until - from) * 10 / 1_000_000;
            assert!(
                i64::try_from(more).unwrap() < most,
                "{} calls in {} us",
                more + 1,
                until - from
            );
        }
    }
    // Everybody gone: within a second of the bucket's own time it is whole again.
    drop(waiting);
    clock.advance(Duration::from_secs(2));
    for _ in 0..3 {
        assert!(is_granted(&bucket).await);
    }
}

#[tokio::test]
async fn c20_a_cost_that_can_never_pass_ends_the_wait_at_once_also_when_the_limit_is_lowered() {
    let (clock, limiter, bucket) = bucket("10/s").await;
    let error = bucket.cost(11).acquire().await.unwrap_err();
    assert!(error.is_never() && error.to_string().contains("10/s"), "{error}");
    assert!(bucket.cost(11).try_acquire().await.unwrap_err().is_never());
    let zero = bucket.cost(0).acquire().await.unwrap_err();
    assert!(zero.is_input(), "{zero}");
    bucket.cost(10).acquire().await.unwrap().spend();
    let waiter = bucket.cost(10);
    let mut waiting = pin!(waiter.acquire());
    assert!(settled(waiting.as_mut()).await.is_none());
    limiter.set_policy("api", "5/s").await.unwrap();
    let mut ended = None;
    for _ in 0..30 {
        clock.advance(ms(100));
        ended = settled(waiting.as_mut()).await;
        if ended.is_some() {
            break;
        }
    }
    assert!(ended.expect("it ends").unwrap_err().is_never());
}

#[tokio::test]
async fn a_suspension_reaches_who_already_sleeps_and_a_resume_wakes_them() {
    let (clock, limiter, bucket) = bucket("1/s").await;
    bucket.acquire().await.unwrap().spend();
    let mut waiting = pin!(bucket.acquire());
    assert!(settled(waiting.as_mut()).await.is_none());
    clock.advance(ms(500));
    let left = limiter.suspend("api", Duration::from_secs(3_600), "429").await.unwrap();
    assert_eq!(left, Duration::from_secs(3_600));
    for _ in 0..40 {
        clock.advance(ms(100));
        assert!(settled(waiting.as_mut()).await.is_none());
    }
    let Answer::Refused(refusal) = bucket.try_acquire().await.unwrap() else { panic!("refused") };
    assert_eq!(refusal.cause(), &RefusedBy::Suspension);
    assert!(limiter.resume("api").await.unwrap());
    // Half a second of the bucket's own time was left, and a quarter until it looks again.
    let mut done = None;
    for _ in 0..10 {
        clock.advance(ms(100));
        done = settled(waiting.as_mut()).await;
        if done.is_some() {
            break;
        }
    }
    done.expect("resumed").unwrap().spend();
}

#[tokio::test]
async fn a_name_nobody_has_called_can_be_suspended() {
    let (_, limiter, bucket) = bucket("5/s").await;
    limiter.suspend("api", Duration::from_secs(60), "maintenance").await.unwrap();
    let status = limiter.status("api").await.unwrap().unwrap();
    assert_eq!(status.policy, None);
    assert_eq!(status.suspension.unwrap().reason, "maintenance");
    assert!(!is_granted(&bucket).await);
}

#[tokio::test]
async fn c17_a_policy_set_anywhere_binds_the_next_call() {
    let (_, limiter, bucket) = bucket("100/m").await;
    assert!(is_granted(&bucket).await);
    assert!(limiter.set_policy("api", "10/m").await.unwrap());
    assert!(!limiter.set_policy("api", "10/m").await.unwrap(), "an equal one changes nothing");
    assert!(is_granted(&bucket).await);
    let status = bucket.status().await.unwrap().unwrap();
    assert_eq!(status.policy.as_deref(), Some("10/m"));
    assert_eq!((status.quotas[0].remaining, status.quotas[0].capacity), (9, 10));
    limiter.set_policy("api", "0/m").await.unwrap();
    assert!(bucket.try_acquire().await.unwrap_err().is_never());
}

#[tokio::test]
async fn c28_clones_and_handles_share_one_bucket() {
    let (_, limiter, bucket) = bucket("5/s").await;
    let mut granted = 0;
    for _ in 0..8 {
        let clone = bucket.clone();
        let other = limiter.clone().bucket("api", "5/s").unwrap();
        for _ in 0..5 {
            granted +=
                usize::from(is_granted(&clone).await) + usize::from(is_granted(&other).await);
        }
    }
    assert_eq!(granted, 5);
}

#[tokio::test]
async fn waiters_are_served_in_the_order_of_asking_and_a_big_cost_is_not_starved() {
    let (clock, _, bucket) = bucket("10/s").await;
    bucket.cost(10).acquire().await.unwrap().spend();
    let big = bucket.cost(10);
    let mut big = Box::pin(big.acquire());
    assert!(settled(big.as_mut()).await.is_none());
    let mut small = pin!(bucket.acquire());
    assert!(settled(small.as_mut()).await.is_none());
    clock.advance(ms(1_000));
    settled(big.as_mut()).await.expect("first asked, first served").unwrap().spend();
    assert!(settled(small.as_mut()).await.is_none());
    clock.advance(ms(100));
    settled(small).await.expect("then the small one").unwrap().spend();
}

#[tokio::test]
async fn a_pinned_policy_outlives_the_idle_bucket_and_another_does_not() {
    let (clock, limiter, bucket) = bucket("5/s").await;
    limiter.pin_policy("api", "1/h").await.unwrap();
    limiter.set_policy("other", "1/s").await.unwrap();
    clock.advance(Duration::from_secs(40 * 86_400));
    assert_eq!(limiter.list().await.unwrap(), ["api"]);
    assert!(is_granted(&bucket).await && !is_granted(&bucket).await);
    assert!(limiter.delete("api").await.unwrap());
    assert!(!limiter.delete("api").await.unwrap());
    assert!(is_granted(&bucket).await && is_granted(&bucket).await);
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_with_what_is() {
    let (_, limiter, _) = bucket("5/s").await;
    for name in ["", "a\nb", &"x".repeat(257)] {
        assert!(limiter.bucket(name, "5/s").unwrap_err().is_input());
        assert!(limiter.status(name).await.unwrap_err().is_input());
    }
    assert!(limiter.bucket("a", "fast").unwrap_err().is_input());
    assert!(limiter.set_policy("a", "fast").await.unwrap_err().is_input());
    assert!(limiter.suspend("a", Duration::ZERO, "").await.unwrap_err().is_input());
    assert!(limiter.suspend("a", Duration::MAX, "").await.unwrap_err().is_input());
    assert!(limiter.suspend("a", ms(5), "line\nbreak").await.unwrap_err().is_input());
    assert!(Limiter::open("ftp://x").await.unwrap_err().is_input());
}

#[test]
fn the_blocking_face_works_without_a_runtime() {
    let limiter = paceline::blocking::Limiter::open("memory:").unwrap();
    let bucket = limiter.bucket("api", "50/s burst 1").unwrap();
    bucket.acquire().unwrap().spend();
    let waited = bucket.acquire().unwrap();
    assert!(waited.waited() > Duration::ZERO);
    waited.spend();
    assert!(!bucket.cost(1).try_acquire().unwrap().is_granted());
    assert_eq!(bucket.run(|| 7).unwrap(), 7);
    drop(bucket.acquire().unwrap());
    assert_eq!(limiter.stats().given_back, 1);
    let model = limiter.bucket("model", "500/h, 30000/h of tokens").unwrap();
    let large = model.cost(1).of(paceline::Unit::Tokens, 40_000);
    assert!(large.acquire().unwrap_err().is_never());
    large.borrowing().acquire().unwrap().spend();
    assert!(!model.try_acquire().unwrap().is_granted());
}
