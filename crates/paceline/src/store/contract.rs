//! What every store promises, as one suite. A store's tests say `contract!()` beside a function
//! `store()` that opens an empty one on a clock moved by hand, and get a test of each.

use std::sync::Arc;
use std::time::Duration;

use paceline_core::{
    Ask, Booking, Bucket, Cause, Cost, Decision, Group, Lowered, Policy, Probing, Refused,
    Remaining, Standing, Suspension, Unit,
};
use serde_json::{Value, json};

use crate::clock::ManualClock;
use crate::store::Store;

/// When the suite's clocks start.
pub(crate) const START: i64 = 1_790_000_000_123_456;

/// An empty store under test, and what must live as long.
pub(crate) struct Tested {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: ManualClock,
    /// A folder or a server, dropped with this.
    pub(crate) _keeps: Box<dyn std::any::Any + Send>,
}

/// The suite, for the store that `super::store()` opens.
macro_rules! contract {
    () => {
        mod contract {
            $crate::store::contract::contract! {
                every_trace_of_the_vectors_passes
                a_bucket_is_made_by_the_first_call_that_is_granted
                what_only_looks_makes_no_bucket
                c23_parallel_first_calls_get_the_burst_and_no_more
                c21_a_refusal_takes_nothing
                c22_all_quotas_or_none
                c22_a_call_passes_in_all_its_units_or_in_none
                c20_the_quota_that_is_too_small_for_its_unit_is_named
                amounts_go_to_quotas_by_unit_also_where_another_policy_is_stored
                what_was_estimated_too_much_goes_back_in_each_unit
                c19_c20_what_can_never_pass_is_said_at_once_and_takes_nothing
                c16_an_equal_policy_changes_nothing
                c17_a_new_policy_binds_every_caller_on_its_next_call
                a_suspension_stops_everybody_and_only_resume_ends_it_early
                one_call_goes_first_whoever_asks_and_the_others_in_order_when_it_has_passed
                a_first_call_that_is_refused_suspends_again
                an_operators_suspension_is_not_broken_through
                c38_a_first_call_that_vanishes_holds_the_others_for_the_patience
                a_first_call_that_was_not_made_leaves_it_to_another
                a_name_without_a_bucket_can_be_suspended
                a_call_that_was_answered_leaves_its_window_an_interval_later
                what_a_provider_says_is_left_lowers_the_bucket_for_everybody
                c37_bare_refusals_of_several_stop_the_bucket_and_one_who_passes_clears_them
                a_limit_is_learned_only_where_nobody_else_has_set_one
                a_booking_stands_until_it_is_void_and_can_be_given_back
                c29_odd_names_are_buckets_of_their_own
                a_deleted_bucket_starts_anew
                a_pinned_policy_outlives_the_idle_bucket
            }
        }
    };
    ($($test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::store::contract::$test(super::store().await).await;
            }
        )*
    };
}
pub(crate) use contract;

impl Tested {
    async fn take(
        &self,
        name: &str,
        policy: &Arc<Policy>,
        cost: impl Into<Cost>,
        wait_max_us: i64,
    ) -> Decision {
        let ask = Ask { cost: cost.into(), wait_max_us };
        self.store.take(name, policy, ask).await.unwrap().decision
    }

    /// Takes `cost` now; whether it was granted.
    async fn takes(&self, name: &str, policy: &Arc<Policy>, cost: impl Into<Cost>) -> bool {
        matches!(self.take(name, policy, cost, 0).await, Decision::Granted { wait_us: 0, .. })
    }

    async fn booked(&self, name: &str, policy: &Arc<Policy>, wait_max_us: i64) -> Booking {
        match self.take(name, policy, 1, wait_max_us).await {
            Decision::Granted { booking, .. } => booking,
            other => panic!("{other:?}"),
        }
    }

    async fn standing(&self, name: &str, policy: &Arc<Policy>, booking: Booking) -> Standing {
        let looked = self.store.batch(name, policy, &[]).await.unwrap();
        assert!(looked.batch.runs.is_empty() && looked.batch.stopped.is_none());
        looked.batch.sight.standing(&booking)
    }

    async fn bucket(&self, name: &str) -> Option<Bucket> {
        self.store.look(name).await.unwrap().bucket
    }

    /// What is left of each quota.
    async fn left(&self, name: &str) -> Vec<i64> {
        let look = self.store.look(name).await.unwrap();
        let view = look.bucket.expect("a bucket").view(look.now);
        view.quotas.iter().map(|quota| quota.remaining).collect()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

fn policy(text: &str) -> Arc<Policy> {
    Arc::new(text.parse().unwrap())
}

fn why(reason: &str) -> Suspension {
    Suspension { reason: reason.to_owned(), by: "a test".to_owned() }
}

/// The traces that bind every implementation.
const VECTORS: [&str; 2] = [
    include_str!("../../../paceline-core/vectors/hand.jsonl"),
    include_str!("../../../paceline-core/vectors/random.jsonl"),
];

pub(crate) async fn every_trace_of_the_vectors_passes(tested: Tested) {
    let mut operations = 0;
    for (number, line) in VECTORS.iter().flat_map(|file| file.lines()).enumerate() {
        let trace: Value = serde_json::from_str(line).unwrap();
        let name = format!("trace {number}");
        let text = |value: &Value| policy(value["policy"].as_str().unwrap());
        let own = text(&trace);
        let ops = trace["ops"].as_array().unwrap();
        // The bucket is made at the first operation's time; pinned, since a store that counts its
        // expiry by real time would not know how far the trace's has come.
        tested.clock.set(ops[0]["now_us"].as_i64().unwrap());
        tested.store.set(&name, &own, true).await.unwrap();
        for (index, op) in ops.iter().enumerate() {
            let number = |key: &str| op[key].as_i64().unwrap();
            tested.clock.set(number("now_us"));
            let got = match op["op"].as_str().unwrap() {
                "take" => {
                    let cost = u32::try_from(number("cost")).unwrap();
                    answer(tested.take(&name, &own, cost, number("wait_max_us")).await)
                }
                "suspend" => {
                    let left = tested.store.suspend(&name, number("for_us"), 0, why("trace")).await;
                    json!({"suspended": {"left_us": left.unwrap()}})
                }
                "resume" => {
                    tested.store.resume(&name).await.unwrap();
                    json!({"resumed": {}})
                }
                "set" => {
                    tested.store.set(&name, &text(op), true).await.unwrap();
                    json!({"set": {}})
                }
                other => panic!("unknown operation {other}"),
            };
            assert_eq!(got, op["want"], "{}, operation {index}: {op}", trace["name"]);
            operations += 1;
        }
    }
    assert!(operations > 2_500, "the vectors are there: {operations}");
}

/// A decision in the vectors' form.
fn answer(decision: Decision) -> Value {
    match decision {
        Decision::Granted { wait_us, .. } => json!({"granted": {"wait_us": wait_us}}),
        Decision::Denied { retry_after_us, cause } => {
            let cause = match cause {
                Cause::Suspended => "suspended".to_owned(),
                Cause::Quota(number) => format!("quota {number}"),
            };
            json!({"denied": {"retry_after_us": retry_after_us, "cause": cause}})
        }
        Decision::Never { cost_max, .. } => json!({"never": {"cost_max": cost_max}}),
    }
}

pub(crate) async fn a_bucket_is_made_by_the_first_call_that_is_granted(tested: Tested) {
    let two = policy("2/h");
    assert_eq!(tested.bucket("api").await, None);
    assert!(tested.takes("api", &two, 1).await);
    let bucket = tested.bucket("api").await.unwrap();
    assert_eq!(bucket.policy.as_deref(), Some(&*two));
    assert_eq!(bucket.state.clock.seen, tested.clock.now());
    assert_eq!(tested.left("api").await, [1]);
    assert!(tested.takes("api", &two, 1).await);
    let denied = tested.take("api", &two, 1, 0).await;
    let wanted = Decision::Denied { retry_after_us: 1_800_000_000, cause: Cause::Quota(1) };
    assert_eq!(denied, wanted);
}

pub(crate) async fn what_only_looks_makes_no_bucket(tested: Tested) {
    let booking = Booking { cost: 1.into(), granted_at: START, due: START, before: START };
    assert_eq!(tested.standing("api", &policy("5/s"), booking).await, Standing::Void);
    assert!(!tested.store.give_back("api", booking).await.unwrap());
    assert!(!tested.store.resume("api").await.unwrap());
    assert!(!tested.store.delete("api").await.unwrap());
    assert_eq!(tested.bucket("api").await, None);
    let never = tested.take("api", &policy("0/s"), 1, 0).await;
    assert!(matches!(never, Decision::Never { cost_max: 0, .. }), "{never:?}");
    assert_eq!(tested.bucket("api").await, None);
    assert!(tested.store.list().await.unwrap().0.is_empty());
}

pub(crate) async fn c23_parallel_first_calls_get_the_burst_and_no_more(tested: Tested) {
    let ten = policy("10/30d");
    for round in 0..10 {
        let calls: Vec<_> = (0..50)
            .map(|_| {
                let (store, ten) = (Arc::clone(&tested.store), Arc::clone(&ten));
                let ask = Ask { cost: 1.into(), wait_max_us: 0 };
                tokio::spawn(async move { store.take(&format!("api {round}"), &ten, ask).await })
            })
            .collect();
        let mut granted = 0;
        for call in calls {
            let decision = call.await.unwrap().unwrap().decision;
            granted += i32::from(matches!(decision, Decision::Granted { .. }));
        }
        assert_eq!(granted, 10, "round {round}");
    }
}

pub(crate) async fn c21_a_refusal_takes_nothing(tested: Tested) {
    let ten = policy("10/h");
    assert!(tested.takes("api", &ten, 8).await);
    let before = tested.bucket("api").await;
    for _ in 0..5 {
        assert!(!tested.takes("api", &ten, 5).await);
    }
    assert_eq!(tested.bucket("api").await, before);
    assert!(tested.takes("api", &ten, 2).await);
    // Polled faster than it refills, it still fills.
    let slow = policy("1/s");
    let mut passed = Vec::new();
    for tick in 0..7 {
        if tested.takes("slow", &slow, 1).await {
            passed.push(tick * 600);
        }
        tested.advance(Duration::from_millis(600));
    }
    assert_eq!(passed, [0, 1_200, 2_400, 3_600]);
}

pub(crate) async fn c22_all_quotas_or_none(tested: Tested) {
    for text in ["10/m, window 30/30m", "window 30/30m, 10/m"] {
        let both = policy(text);
        let mut granted = 0;
        for _ in 0..31 {
            granted += i32::from(tested.takes(text, &both, 1).await);
        }
        assert_eq!(granted, 10);
        let mut left = tested.left(text).await;
        left.sort_unstable();
        assert_eq!(left, [0, 20]);
    }
}

fn call(requests: u32, tokens: u32) -> Cost {
    Cost::requests(requests).and(Unit::Tokens, tokens)
}

pub(crate) async fn c22_a_call_passes_in_all_its_units_or_in_none(tested: Tested) {
    let texts = ["500/h, 30000/h of tokens", "window 30000/h of tokens, 500/h"];
    for (text, tokens) in texts.into_iter().zip([2, 1]) {
        let both = policy(text);
        for _ in 0..7 {
            assert!(tested.takes(text, &both, call(1, 4_000)).await);
        }
        let denied = tested.take(text, &both, call(1, 4_000), 0).await;
        assert!(
            matches!(denied, Decision::Denied { cause: Cause::Quota(it), .. } if it == tokens),
            "{text}: {denied:?}"
        );
        let mut left = tested.left(text).await;
        left.sort_unstable();
        assert_eq!(left, [493, 2_000], "{text}");
        assert!(tested.takes(text, &both, 493).await, "{text}: requests alone");
        assert!(!tested.takes(text, &both, call(1, 2_000)).await);
        assert!(tested.takes(text, &both, Cost::only(Unit::Tokens, 2_000)).await);
        assert_eq!(tested.left(text).await, [0, 0]);
        assert_eq!(tested.bucket(text).await.unwrap().policy.as_deref(), Some(&*both));
    }
}

pub(crate) async fn c20_the_quota_that_is_too_small_for_its_unit_is_named(tested: Tested) {
    let both = policy("500/h, 30000/h of tokens");
    let never = tested.take("api", &both, call(1, 30_001), i64::MAX / 4).await;
    assert_eq!(never, Decision::Never { cost_max: 30_000, quota: 2 });
    assert_eq!(tested.bucket("api").await, None);
    let never = tested.take("api", &both, call(501, 1), i64::MAX / 4).await;
    assert_eq!(never, Decision::Never { cost_max: 500, quota: 1 });
    assert!(tested.takes("api", &both, call(500, 30_000)).await);
}

pub(crate) async fn amounts_go_to_quotas_by_unit_also_where_another_policy_is_stored(
    tested: Tested,
) {
    let plain = policy("100/h");
    let both = policy("200/h of tokens, 50/h");
    tested.store.set("api", &both, false).await.unwrap();
    // Who knows of no units, alone and in a crowd.
    assert!(tested.takes("api", &plain, 3).await);
    assert_eq!(tested.left("api").await, [200, 47]);
    let ask = |cost| Ask { cost, wait_max_us: 0 };
    let groups = [Group { ask: ask(2.into()), calls: 3 }];
    let batched = tested.store.batch("api", &plain, &groups).await.unwrap();
    assert_eq!(batched.batch.runs[0].calls, 3);
    assert_eq!(batched.policy.as_deref(), Some(&*both));
    assert_eq!(tested.left("api").await, [200, 41]);
    // Who knows them in another order, and of one more.
    let other = policy("9/h, 9/h of points, 9/h of tokens");
    let cost = call(1, 60).and(Unit::Points, 7);
    let taken = tested.store.take("api", &other, ask(cost)).await.unwrap();
    assert!(matches!(taken.decision, Decision::Granted { wait_us: 0, .. }));
    assert_eq!(taken.policy.as_deref(), Some(&*both));
    assert_eq!(tested.left("api").await, [140, 40]);
    let groups = [call(1, 60), call(2, 0), call(0, 80), call(1, 1)]
        .map(|cost| Group { ask: ask(cost), calls: 1 });
    let batched = tested.store.batch("api", &other, &groups).await.unwrap();
    assert_eq!(batched.batch.runs[0].calls, 3);
    let stopped = batched.batch.stopped;
    assert!(matches!(stopped, Some(Decision::Denied { cause: Cause::Quota(1), .. })));
    assert_eq!(tested.left("api").await, [0, 37]);
    // Under a policy that counts requests only, the rest is nobody's.
    tested.store.set("api", &plain, false).await.unwrap();
    assert!(tested.takes("api", &both, call(1, u32::MAX)).await);
    let before = tested.left("api").await;
    assert!(tested.takes("api", &both, Cost::only(Unit::Tokens, 9)).await);
    assert_eq!(tested.left("api").await, before);
}

pub(crate) async fn what_was_estimated_too_much_goes_back_in_each_unit(tested: Tested) {
    let both = policy("500/h, 30000/h of tokens, window 30000/h guard 10s of tokens");
    let taken = tested.take("api", &both, call(2, 4_000), 0).await;
    let Decision::Granted { booking, .. } = taken else { panic!("{taken:?}") };
    let part = |cost: Cost| Booking { cost, ..booking };
    assert!(tested.store.give_back("api", part(Cost::only(Unit::Tokens, 1_500))).await.unwrap());
    assert_eq!(tested.left("api").await, [498, 27_500, 27_500]);
    assert!(tested.store.give_back("api", part(1.into())).await.unwrap());
    assert_eq!(tested.left("api").await, [499, 27_500, 27_500]);
    // The answer to requests moves nothing of tokens.
    assert!(!tested.store.answered("api", part(1.into())).await.unwrap());
    tested.advance(Duration::from_secs(1));
    assert!(tested.store.answered("api", part(Cost::only(Unit::Tokens, 2_500))).await.unwrap());
    // From its answer on it counts for the plain hour.
    let denied = tested.take("api", &both, call(0, 30_000), 0).await;
    let wanted = Decision::Denied { retry_after_us: 3_600_000_000, cause: Cause::Quota(3) };
    assert_eq!(denied, wanted);
}

pub(crate) async fn c19_c20_what_can_never_pass_is_said_at_once_and_takes_nothing(tested: Tested) {
    let two = policy("100/m, window 5/s");
    assert!(tested.takes("api", &two, 5).await);
    let before = tested.bucket("api").await;
    let never = tested.take("api", &two, 6, i64::MAX / 4).await;
    assert_eq!(never, Decision::Never { cost_max: 5, quota: 2 });
    assert_eq!(tested.bucket("api").await, before);
    tested.store.set("api", &policy("0/s"), false).await.unwrap();
    let never = tested.take("api", &two, 1, i64::MAX / 4).await;
    assert_eq!(never, Decision::Never { cost_max: 0, quota: 1 });
}

pub(crate) async fn c16_an_equal_policy_changes_nothing(tested: Tested) {
    let five = policy("5/m");
    for _ in 0..5 {
        tested.store.set("api", &five, false).await.unwrap();
        assert!(tested.takes("api", &five, 1).await);
    }
    assert!(!tested.store.set("api", &five, false).await.unwrap());
    assert!(!tested.takes("api", &five, 1).await);
    assert!(tested.store.set("api", &policy("10/m"), false).await.unwrap());
    assert_eq!(tested.left("api").await, [0]);
}

pub(crate) async fn c17_a_new_policy_binds_every_caller_on_its_next_call(tested: Tested) {
    let own = policy("100/m");
    let ask = Ask { cost: 1.into(), wait_max_us: 0 };
    let taken = tested.store.take("api", &own, ask).await.unwrap();
    assert_eq!(taken.policy, None, "its own");
    assert!(tested.store.set("api", &policy("10/m"), false).await.unwrap());
    let taken = tested.store.take("api", &own, ask).await.unwrap();
    assert_eq!(taken.policy.as_deref(), Some(&*policy("10/m")));
    assert_eq!(tested.left("api").await, [9]);
    tested.store.set("api", &policy("0/m"), false).await.unwrap();
    assert!(matches!(tested.take("api", &own, 1, 0).await, Decision::Never { .. }));
    tested.store.set("api", &policy("150/m"), false).await.unwrap();
    assert_eq!(tested.left("api").await, [0], "it fills from empty");
    tested.advance(Duration::from_millis(400));
    assert_eq!(tested.left("api").await, [1]);
}

pub(crate) async fn a_suspension_stops_everybody_and_only_resume_ends_it_early(tested: Tested) {
    let ten = policy("10/s");
    assert!(tested.takes("api", &ten, 1).await);
    let suspend = async |for_us: i64, reason: &str| {
        tested.store.suspend("api", for_us, 0, why(reason)).await.unwrap()
    };
    assert_eq!(suspend(5_400_000, "long").await, 5_400_000);
    assert_eq!(suspend(60_000, "short").await, 5_400_000, "the later end stays");
    let denied = tested.take("api", &ten, 1, 0).await;
    let wanted = Decision::Denied { retry_after_us: 5_400_000, cause: Cause::Suspended };
    assert_eq!(denied, wanted);
    let suspension = tested.bucket("api").await.unwrap().state.suspension;
    assert_eq!(suspension, Some(why("long")));
    assert!(tested.store.resume("api").await.unwrap());
    assert!(!tested.store.resume("api").await.unwrap());
    assert!(tested.takes("api", &ten, 1).await);
    suspend(1_000_000, "again").await;
    tested.advance(Duration::from_micros(999_999));
    assert!(!tested.takes("api", &ten, 1).await);
    tested.advance(Duration::from_micros(1));
    assert!(tested.takes("api", &ten, 1).await);
}

/// A second, and five of patience.
const SECOND: i64 = 1_000_000;
const PATIENCE: i64 = 5_000_000;

pub(crate) async fn one_call_goes_first_whoever_asks_and_the_others_in_order_when_it_has_passed(
    tested: Tested,
) {
    let ten = policy("10/s burst 1");
    assert!(tested.takes("api", &ten, 1).await);
    let mut sleepers = Vec::new();
    for _ in 0..3 {
        sleepers.push(tested.booked("api", &ten, SECOND).await);
    }
    let left = tested.store.suspend("api", SECOND, PATIENCE, why("429")).await.unwrap();
    assert_eq!(left, SECOND);
    let denied = tested.take("api", &ten, 1, 0).await;
    let told = SECOND + 400_000;
    let wanted = Decision::Denied { retry_after_us: told, cause: Cause::Suspended };
    assert_eq!(denied, wanted, "behind those with a place");
    tested.advance(Duration::from_millis(1_099));
    assert!(!tested.store.probe("api", sleepers[0]).await.unwrap().goes);
    // All at once: sleepers, and many who come.
    tested.advance(Duration::from_millis(301));
    let comers = (0..30).map(|_| {
        let (store, ten) = (Arc::clone(&tested.store), Arc::clone(&ten));
        tokio::spawn(async move {
            let ask = Ask { cost: 1.into(), wait_max_us: 0 };
            match store.take("api", &ten, ask).await.unwrap().decision {
                Decision::Granted { wait_us: 0, probe: true, .. } => 1,
                Decision::Denied { cause: Cause::Suspended, .. } => 0,
                other => panic!("{other:?}"),
            }
        })
    });
    let sleepers_ask = sleepers.iter().map(|booking| {
        let (store, booking) = (Arc::clone(&tested.store), *booking);
        tokio::spawn(async move { i32::from(store.probe("api", booking).await.unwrap().goes) })
    });
    let all: Vec<_> = comers.chain(sleepers_ask).collect();
    let mut first = 0;
    for asks in all {
        first += asks.await.unwrap();
    }
    assert_eq!(first, 1);
    let sight = tested.store.batch("api", &ten, &[]).await.unwrap().batch.sight;
    assert_eq!(sight.probing, Probing::Taken);
    // Passed: those who sleep go on where they were, in order and paced.
    assert!(tested.store.probed("api", 0).await.unwrap());
    assert!(!tested.store.probed("api", 0).await.unwrap(), "it ends once");
    for (booking, due) in sleepers.iter().zip([100_000, 200_000, 300_000]) {
        assert_eq!(tested.standing("api", &ten, *booking).await, Standing::Due(due));
    }
    assert_eq!(tested.bucket("api").await.unwrap().state.suspension, None);
}

pub(crate) async fn a_first_call_that_is_refused_suspends_again(tested: Tested) {
    let ten = policy("10/s");
    tested.store.suspend("api", SECOND, PATIENCE, why("429")).await.unwrap();
    tested.advance(Duration::from_secs(1));
    for _ in 0..3 {
        let goes = tested.take("api", &ten, 1, 0).await;
        assert!(matches!(goes, Decision::Granted { wait_us: 0, probe: true, .. }), "{goes:?}");
        assert!(!tested.takes("api", &ten, 1).await);
        let left = tested.store.suspend("api", SECOND, PATIENCE, why("again")).await.unwrap();
        assert_eq!(left, SECOND);
        // That its answer has come tells nothing any more.
        assert!(!tested.store.probed("api", 0).await.unwrap());
        tested.advance(Duration::from_micros(999_999));
        assert!(!tested.takes("api", &ten, 1).await);
        tested.advance(Duration::from_micros(1));
    }
    assert_eq!(tested.bucket("api").await.unwrap().state.suspension, Some(why("again")));
    // Who resumes lets all go.
    assert!(tested.store.resume("api").await.unwrap());
    for _ in 0..7 {
        assert!(tested.takes("api", &ten, 1).await);
    }
}

pub(crate) async fn an_operators_suspension_is_not_broken_through(tested: Tested) {
    let ten = policy("10/s");
    let suspend = async |for_us: i64, patience_us: i64| {
        tested.store.suspend("api", for_us, patience_us, why("both")).await.unwrap()
    };
    assert_eq!(suspend(10 * SECOND, 0).await, 10 * SECOND);
    assert_eq!(suspend(SECOND, PATIENCE).await, 10 * SECOND);
    tested.advance(Duration::from_secs(9));
    let denied = tested.take("api", &ten, 1, 0).await;
    let wanted = Decision::Denied { retry_after_us: SECOND, cause: Cause::Suspended };
    assert_eq!(denied, wanted);
    tested.advance(Duration::from_secs(1));
    assert!(tested.takes("api", &ten, 10).await, "all at its end");
    // Nor by who had gone first before it.
    suspend(SECOND, PATIENCE).await;
    tested.advance(Duration::from_secs(2));
    let goes = tested.take("api", &ten, 1, 0).await;
    assert!(matches!(goes, Decision::Granted { probe: true, .. }), "{goes:?}");
    assert_eq!(suspend(60 * SECOND, 0).await, 60 * SECOND);
    assert!(!tested.store.probed("api", 0).await.unwrap());
    tested.advance(Duration::from_micros(59_999_999));
    assert!(!tested.takes("api", &ten, 1).await);
}

pub(crate) async fn c38_a_first_call_that_vanishes_holds_the_others_for_the_patience(
    tested: Tested,
) {
    let ten = policy("10/s burst 1");
    tested.store.suspend("api", SECOND, PATIENCE, why("429")).await.unwrap();
    tested.advance(Duration::from_secs(1));
    let vanishes = tested.booked("api", &ten, 0).await;
    assert!(!tested.store.probe("api", vanishes).await.unwrap().goes, "it goes already");
    let waits = tested.booked("api", &ten, 10 * SECOND).await;
    assert_eq!(tested.standing("api", &ten, waits).await, Standing::Due(PATIENCE + 100_000));
    tested.advance(Duration::from_micros(4_999_999));
    assert!(!tested.takes("api", &ten, 1).await);
    tested.advance(Duration::from_millis(100) + Duration::from_micros(1));
    assert_eq!(tested.standing("api", &ten, waits).await, Standing::Due(0));
    assert!(!tested.store.probed("api", 0).await.unwrap());
}

pub(crate) async fn a_first_call_that_was_not_made_leaves_it_to_another(tested: Tested) {
    let two = policy("2/h");
    tested.store.suspend("api", SECOND, PATIENCE, why("429")).await.unwrap();
    tested.advance(Duration::from_secs(1));
    let unspent = tested.booked("api", &two, 0).await;
    tested.advance(Duration::from_secs(4));
    assert!(tested.store.give_back("api", unspent).await.unwrap());
    assert!(tested.store.probed("api", PATIENCE).await.unwrap());
    let goes = tested.take("api", &two, 2, 0).await;
    assert!(matches!(goes, Decision::Granted { probe: true, .. }), "{goes:?}");
    let sight = tested.store.batch("api", &two, &[]).await.unwrap().batch.sight;
    assert_eq!((sight.probing, sight.left), (Probing::Taken, PATIENCE));
}

pub(crate) async fn a_name_without_a_bucket_can_be_suspended(tested: Tested) {
    tested.store.suspend("api", 60_000_000, 0, why("early")).await.unwrap();
    let two = policy("2/h");
    let denied = tested.take("api", &two, 1, 0).await;
    assert!(matches!(denied, Decision::Denied { cause: Cause::Suspended, .. }), "{denied:?}");
    assert_eq!(tested.store.list().await.unwrap().0, ["api"]);
    tested.store.resume("api").await.unwrap();
    assert!(tested.takes("api", &two, 2).await);
    assert!(!tested.takes("api", &two, 1).await);
}

pub(crate) async fn what_a_provider_says_is_left_lowers_the_bucket_for_everybody(tested: Tested) {
    let own = policy("100/m burst 5, window 100/m");
    let sent = tested.booked("api", &own, 0).await;
    let said = Remaining {
        quota: 2,
        interval_us: 60_000_000,
        tokens: 30,
        resets_in_us: 20_000_000,
        blur_us: 1_000_000,
        sent: Some(sent),
        unstoppable_us: 0,
        is_shared: true,
    };
    for (tokens, lowered) in [(30, 69), (99, 0), (30, 0), (29, 1)] {
        let said = Remaining { tokens, ..said };
        let told = tested.store.lower("api", said, why("200: left")).await.unwrap();
        assert_eq!(told, Lowered { tokens: lowered, left_us: 0 });
    }
    assert_eq!(tested.left("api").await, [4, 29]);
    tested.advance(Duration::from_millis(20_001));
    assert_eq!(tested.left("api").await, [5, 99]);
    // Nothing is left, and somebody is about to go.
    let sent = tested.booked("api", &own, 0).await;
    tested.advance(Duration::from_millis(1));
    tested.booked("api", &own, 0).await;
    let said = Remaining { tokens: 0, sent: Some(sent), ..said };
    // Where entries stand for two calls each, the second is not told from the first.
    tested.booked("api", &own, 0).await;
    let told = tested.store.lower("api", said, why("200: none left")).await.unwrap();
    assert_eq!(told.left_us, 20_000_000);
    let suspension = tested.bucket("api").await.unwrap().state.suspension;
    assert_eq!(suspension, Some(why("200: none left")));
    assert_eq!(
        tested.store.lower("none", said, why("")).await.unwrap(),
        Lowered::default(),
        "no bucket is made"
    );
    assert_eq!(tested.bucket("none").await, None);
}

pub(crate) async fn c37_bare_refusals_of_several_stop_the_bucket_and_one_who_passes_clears_them(
    tested: Tested,
) {
    let own = policy("50/s");
    assert!(tested.takes("api", &own, 1).await);
    let store = &tested.store;
    let refused = async |by| store.refused("api", by, 2_000_000, 0, why("guessed")).await.unwrap();
    let one = Refused { by: 1, left_us: 0, stops: false };
    assert!(!store.passed("api").await.unwrap());
    for _ in 0..3 {
        assert_eq!(refused(7).await, one);
        assert!(tested.takes("api", &own, 1).await);
    }
    assert!(store.passed("api").await.unwrap());
    assert_eq!(refused(u32::MAX).await, one);
    assert_eq!(refused(7).await, Refused { by: 2, left_us: 2_000_000, stops: true });
    assert_eq!(refused(7).await, Refused { by: 2, left_us: 2_000_000, stops: false });
    assert!(!tested.takes("api", &own, 1).await);
    // A success that was under way lifts nothing.
    assert!(store.passed("api").await.unwrap());
    assert!(!tested.takes("api", &own, 1).await);
    assert_eq!(refused(7).await.by, 1);
    // A name without a bucket can be refused, too.
    assert!(!store.passed("new").await.unwrap());
    let new = store.refused("new", 7, 1, 0, why("")).await.unwrap();
    assert_eq!(new, one);
    assert!(tested.takes("new", &own, 1).await);
    assert!(store.passed("new").await.unwrap());
}

pub(crate) async fn a_limit_is_learned_only_where_nobody_else_has_set_one(tested: Tested) {
    let [own, learned, third] = ["50/s", "25/s", "10/s"].map(policy);
    let set_if = async |expected: &Arc<Policy>, new: &Arc<Policy>| {
        tested.store.set_if("api", expected, new).await.unwrap()
    };
    assert!(!set_if(&own, &learned).await);
    assert_eq!(tested.bucket("api").await, None);
    assert!(tested.takes("api", &own, 1).await);
    assert!(!set_if(&third, &learned).await);
    assert!(set_if(&own, &learned).await);
    assert!(!set_if(&own, &third).await);
    assert_eq!(tested.bucket("api").await.unwrap().policy, Some(learned.clone()));
    tested.store.set("api", &learned, true).await.unwrap();
    assert!(!set_if(&learned, &third).await);
}

pub(crate) async fn a_booking_stands_until_it_is_void_and_can_be_given_back(tested: Tested) {
    let one = policy("1/s");
    assert!(tested.takes("api", &one, 1).await);
    let next = tested.booked("api", &one, 1_000_000).await;
    let check = async |booking| tested.standing("api", &one, booking).await;
    assert_eq!(check(next).await, Standing::Due(1_000_000));
    tested.advance(Duration::from_millis(400));
    assert_eq!(check(next).await, Standing::Due(600_000));
    tested.store.suspend("api", 2_000_000, 0, why("check")).await.unwrap();
    assert_eq!(check(next).await, Standing::Due(2_600_000));
    tested.store.resume("api").await.unwrap();
    assert!(tested.store.give_back("api", next).await.unwrap());
    let denied = tested.take("api", &one, 1, 0).await;
    let wanted = Decision::Denied { retry_after_us: 600_000, cause: Cause::Quota(1) };
    assert_eq!(denied, wanted, "as if it had never been booked");
    let again = tested.booked("api", &one, 1_000_000).await;
    tested.store.set("api", &policy("2/s"), false).await.unwrap();
    assert_eq!(check(again).await, Standing::Void);
    assert!(!tested.store.give_back("api", again).await.unwrap());
}

pub(crate) async fn a_call_that_was_answered_leaves_its_window_an_interval_later(tested: Tested) {
    let guarded = policy("window 1/s guard 30s");
    let first = tested.booked("api", &guarded, 0).await;
    tested.advance(Duration::from_millis(300));
    assert!(tested.store.answered("api", first).await.unwrap());
    let denied = tested.take("api", &guarded, 1, 0).await;
    let wanted = Decision::Denied { retry_after_us: 1_000_000, cause: Cause::Quota(1) };
    assert_eq!(denied, wanted);
    tested.advance(Duration::from_secs(1));
    let second = tested.booked("api", &guarded, 0).await;
    // Not answered, it stays for the guard; and the first has left already.
    assert!(!tested.store.answered("api", first).await.unwrap());
    let denied = tested.take("api", &guarded, 1, 0).await;
    let wanted = Decision::Denied { retry_after_us: 31_000_000, cause: Cause::Quota(1) };
    assert_eq!(denied, wanted);
    tested.store.set("api", &policy("window 2/s guard 30s"), false).await.unwrap();
    assert!(!tested.store.answered("api", second).await.unwrap(), "void under another policy");
}

pub(crate) async fn c29_odd_names_are_buckets_of_their_own(tested: Tested) {
    let once = policy("1/h");
    let long = "x".repeat(255);
    let (long_a, long_b) = (format!("{long}a"), format!("{long}b"));
    let mut names = [
        "a:b", "a", "A", "a}b", "{a}", "}", "{}", "a b", " ", "a/b", "a%2fb", "../a", ".", "..",
        "日本", "é", "e\u{301}", "*", "[a]", "~", "\\", &long_a, &long_b,
    ];
    for name in names {
        assert!(tested.takes(name, &once, 1).await, "{name}");
        assert!(!tested.takes(name, &once, 1).await, "{name}");
    }
    names.sort_unstable();
    assert_eq!(tested.store.list().await.unwrap().0, names);
    for name in names {
        assert!(tested.store.delete(name).await.unwrap(), "{name}");
    }
    assert!(tested.store.list().await.unwrap().0.is_empty());
}

pub(crate) async fn a_deleted_bucket_starts_anew(tested: Tested) {
    let once = policy("1/h");
    for _ in 0..3 {
        let booking = tested.booked("api", &once, 0).await;
        assert!(!tested.takes("api", &once, 1).await);
        assert!(tested.store.delete("api").await.unwrap());
        assert_eq!(tested.standing("api", &once, booking).await, Standing::Void);
        assert!(!tested.store.delete("api").await.unwrap());
        assert_eq!(tested.bucket("api").await, None);
        tested.advance(Duration::from_micros(1));
    }
}

pub(crate) async fn a_pinned_policy_outlives_the_idle_bucket(tested: Tested) {
    let (own, set) = (policy("100/s"), policy("1/s"));
    tested.store.set("api", &set, true).await.unwrap();
    assert!(tested.takes("api", &own, 1).await);
    // Workers that set at start-up what an operator pinned do not unpin it.
    tested.store.set("api", &set, false).await.unwrap();
    assert!(tested.bucket("api").await.unwrap().is_pinned());
    tested.advance(Duration::from_secs(86_400 * 365));
    assert!(tested.takes("api", &own, 1).await);
    assert!(!tested.takes("api", &own, 1).await);
    assert_eq!(tested.store.list().await.unwrap().0, ["api"]);
}
