//! The memory store: one decision in process that nobody contends for.

use std::sync::Arc;
use std::time::Instant;

use paceline::testing::{Ask, Decision, decide};
use paceline::{Limiter, Policy};

use crate::Figure;

const POLICY: &str = "1000000/s burst 1000000000";
const ROUNDS: usize = 41;
const CALLS: u32 = 50_000;

/// `try_acquire` and `spend`, through the public handle.
pub(crate) fn handle(what: &str, target_ns: f64) -> Figure {
    let ns = rounds(async |limiter, calls| {
        let bucket = limiter.bucket("figures", POLICY).expect("a policy");
        for _ in 0..calls {
            let answer = bucket.try_acquire().await.expect("the store answers");
            answer.permit().expect("there is room").spend();
        }
    });
    figure(what, ns, target_ns)
}

/// The decision alone, as the handle asks it of the store.
pub(crate) fn decision(what: &str, target_ns: f64) -> Figure {
    let policy: Arc<Policy> = Arc::new(POLICY.parse().expect("a policy"));
    let ask = Ask { cost: 1.into(), wait_max_us: 0 };
    let ns = rounds(async |limiter, calls| {
        for _ in 0..calls {
            let decision = decide(limiter, "figures", &policy, ask).await;
            assert!(matches!(decision, Ok(Decision::Granted { .. })));
        }
    });
    figure(what, ns, target_ns)
}

fn rounds(call: impl AsyncFn(&Limiter, u32)) -> f64 {
    crate::runtime().block_on(async {
        let limiter = Limiter::open("memory:").await.expect("a memory store");
        let mut ns = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            call(&limiter, CALLS).await;
            ns.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
        }
        crate::median(&mut ns)
    })
}

fn figure(what: &str, ns: f64, target_ns: f64) -> Figure {
    Figure {
        what: what.to_owned(),
        target: format!("at most {target_ns} ns"),
        measured: format!("{ns:.0} ns"),
        met: ns <= target_ns,
    }
}
