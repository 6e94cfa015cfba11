//! The script's cost inside Redis: time per call by the server's own account (`INFO
//! commandstats`), against a script that only reads the time and returns it. Both run in turn in
//! one run, many rounds, and the median of the rounds' ratios is the figure.

use paceline_core::script::{self, Call};
use paceline_core::{Ask, Policy};
use paceline_testkit::RedisServer;

use crate::Figure;

/// The script to compare with.
const TIME_ONLY: &str = "return redis.call('TIME')";
const ROUNDS: usize = 15;
const CALLS: usize = 4_000;

/// Measures one policy.
pub(crate) fn ratio(what: &str, policy: &str, target: f64) -> Figure {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("our own URL");
    let mut connection = client.get_connection().expect("our own server");
    let policy: Policy = policy.parse().expect("a policy");
    let ask = Ask { cost: 1.into(), wait_max_us: 0 };
    let args: Vec<Vec<u8>> = Call::Take { policy: &policy, ask }
        .args(None)
        .into_iter()
        .map(|arg| arg.into_owned())
        .collect();
    let mut ratios = Vec::new();
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        let base = per_call(&server, &mut connection, TIME_ONLY, &[]);
        let decision = per_call(&server, &mut connection, script::SOURCE, &args);
        ratios.push(decision / base);
        ours.push(decision);
    }
    let (ratio, us) = (crate::median(&mut ratios), crate::median(&mut ours));
    Figure {
        what: what.to_owned(),
        target: format!("at most {target:.1} times"),
        measured: format!("{ratio:.2} times ({us:.2} us a call)"),
        met: ratio <= target,
    }
}

/// Microseconds a call by the server's account.
fn per_call(
    server: &RedisServer,
    connection: &mut redis::Connection,
    source: &str,
    args: &[Vec<u8>],
) -> f64 {
    let sha: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(source).query(connection).expect("the script loads");
    server.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..CALLS / 100 {
        let mut pipe = redis::pipe();
        for _ in 0..100 {
            pipe.cmd("EVALSHA").arg(&sha).arg(1).arg("paceline:{bench}").arg(args).ignore();
        }
        pipe.query::<()>(connection).expect("the calls are answered");
    }
    server.command_stats("evalsha").expect("it was called").usec_per_call
}

/// What one bucket takes of Redis' memory.
pub(crate) fn memory(what: &str, policy: &str, target: i64) -> Figure {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("our own URL");
    let mut connection = client.get_connection().expect("our own server");
    let policy: Policy = policy.parse().expect("a policy");
    let mut most = 0;
    for _ in 0..3 {
        let call =
            Call::Take { policy: &policy, ask: Ask { cost: 1.into(), wait_max_us: 1_000_000 } };
        let mut eval = redis::cmd("EVAL");
        eval.arg(script::SOURCE).arg(1).arg("paceline:{github}");
        for arg in call.args(None) {
            eval.arg(&*arg);
        }
        eval.query::<redis::Value>(&mut connection).expect("a decision");
        let usage = server.command(&["MEMORY", "USAGE", "paceline:{github}"]);
        most = most.max(usage.int().expect("a number"));
    }
    Figure {
        what: what.to_owned(),
        target: format!("at most {target} bytes"),
        measured: format!("{most} bytes"),
        met: most <= target,
    }
}
