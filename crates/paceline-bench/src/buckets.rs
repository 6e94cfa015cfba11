//! A million buckets in one Redis: what each takes of its memory, and what decisions over all of
//! them cost against decisions over one.

use std::time::Instant;

use paceline_core::script::{self, Call};
use paceline_core::{Ask, Policy};
use paceline_testkit::RedisServer;

use crate::Figure;

const BUCKETS: usize = 1_000_000;
const POLICY: &str = "50/s burst 10, idle 1h";
const ROUNDS: usize = 9;
const CALLS: usize = 50_000;
/// Calls in one pipeline.
const PIPELINE: usize = 500;

pub(crate) fn million(what: &str, bytes_target: f64, target: f64) -> Figure {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).expect("our own URL");
    let mut calls = Calls::new(client.get_connection().expect("our own server"));
    let before = used_memory(&server);
    calls.run((0..BUCKETS).map(Some));
    let bytes = (used_memory(&server) - before) / BUCKETS as f64;
    let usage = server.command(&["MEMORY", "USAGE", "paceline:{tenant 77777}"]);
    let usage = usage.int().expect("a number");
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let one = calls.rate(|| None);
        let all = calls.rate(|| Some(fastrand::usize(..BUCKETS)));
        ratios.push(all / one);
        rates.push(all);
    }
    let (ratio, rate) = (crate::median(&mut ratios), crate::median(&mut rates));
    Figure {
        what: what.to_owned(),
        target: format!("{bytes_target} bytes, {target} times"),
        measured: format!(
            "{bytes:.0} bytes each (MEMORY USAGE {usage}), {rate:.0}/s, {ratio:.2} times one bucket's"
        ),
        met: bytes <= bytes_target && ratio >= target,
    }
}

fn used_memory(server: &RedisServer) -> f64 {
    let info = server.command(&["INFO", "memory"]);
    let text = info.text().expect("a text");
    let line = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

/// Decisions in pipelines.
struct Calls {
    connection: redis::Connection,
    sha: String,
    args: Vec<Vec<u8>>,
}

impl Calls {
    fn new(mut connection: redis::Connection) -> Self {
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(script::SOURCE).query(&mut connection);
        let policy: Policy = POLICY.parse().expect("a policy");
        let ask = Ask { cost: 1.into(), wait_max_us: 1_000_000 };
        let args = Call::Take { policy: &policy, ask }.args(None);
        let args = args.into_iter().map(|arg| arg.into_owned()).collect();
        Self { connection, sha: load.expect("the script loads"), args }
    }

    /// One decision for each tenant, or for the one bucket of all.
    fn run(&mut self, tenants: impl Iterator<Item = Option<usize>>) {
        let tenants: Vec<_> = tenants.collect();
        for tenants in tenants.chunks(PIPELINE) {
            let mut pipe = redis::pipe();
            for tenant in tenants {
                // Names of equal length, so that only the number of buckets differs.
                let key = format!("paceline:{{tenant {:05}}}", tenant.unwrap_or(BUCKETS));
                pipe.cmd("EVALSHA").arg(&self.sha).arg(1).arg(key).arg(&self.args).ignore();
            }
            pipe.query::<()>(&mut self.connection).expect("the calls are answered");
        }
    }

    fn rate(&mut self, tenant: impl Fn() -> Option<usize>) -> f64 {
        let tenants: Vec<_> = (0..CALLS).map(|_| tenant()).collect();
        let start = Instant::now();
        self.run(tenants.into_iter());
        CALLS as f64 / start.elapsed().as_secs_f64()
    }
}
