//! Paceline's figures, each measured beside its target. Run it with
//! `cargo run --release -p paceline-bench`; a word picks the figures whose name holds it.
//! Machines are noisy: ratios are of measurements taken in turn within one run, and the median
//! of many rounds is shown.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a measuring program prints and fails loudly"
)]

mod buckets;
mod cluster;
mod crowd;
mod fleet;
mod host;
mod latency;
mod memory;
mod middleware;
mod outage;
mod process;
mod script;
mod teach;

/// One measured figure.
struct Figure {
    what: String,
    target: String,
    measured: String,
    met: bool,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &words[..]
        && first == host::WORKER
    {
        return host::worker(rest);
    }
    if let [first, rest @ ..] = &words[..]
        && first == fleet::worker::WORKER
    {
        return fleet::worker::worker(rest);
    }
    if let [first, rest @ ..] = &words[..]
        && first == teach::worker::WORKER
    {
        return teach::worker::worker(rest);
    }
    if let [first, rest @ ..] = &words[..]
        && first == teach::RECORD
    {
        return teach::record(rest);
    }
    let word = words.first().map(String::as_str).unwrap_or_default();
    type Measure = fn() -> Figure;
    let measures: [(&str, Measure); 36] = [
        ("memory, try_acquire and spend", || {
            memory::handle("memory, try_acquire and spend", 150.0)
        }),
        ("memory, the decision alone", || memory::decision("memory, the decision alone", 150.0)),
        ("middleware, tower, by profile", || {
            middleware::tower("middleware, tower, by profile", true, 2_000.0)
        }),
        ("middleware, tower, one bucket", || {
            middleware::tower("middleware, tower, one bucket", false, 2_000.0)
        }),
        ("middleware, reqwest, by profile", || {
            middleware::reqwest("middleware, reqwest, by profile", 2_000.0)
        }),
        ("host, one process", || host::one_process("host, one process", 4.0)),
        ("host, opening and one decision", || {
            host::opening("host, opening and one decision", 1_000.0)
        }),
        ("host, four processes, one bucket", || {
            host::four_processes("host, four processes, one bucket", true, 200_000.0)
        }),
        ("host, four processes, four buckets", || {
            host::four_processes("host, four processes, four buckets", false, 200_000.0)
        }),
        ("script, one quota", || {
            script::ratio("script, one quota", "1000000/s burst 1000000000", 3.0)
        }),
        ("script, two quotas", || {
            let policy = "1000000/s burst 1000000000, 60000000/m burst 1000000000";
            script::ratio("script, two quotas", policy, 4.0)
        }),
        ("script, bucket and window", || {
            let policy = "1000000/s burst 1000000000, window 1000000000/m";
            script::ratio("script, bucket and window", policy, 4.0)
        }),
        ("script, strict window of 64, full", || {
            script::ratio("script, full window, refusing", "window 64/d", 4.0)
        }),
        ("Redis memory, two token buckets", || {
            script::memory("Redis memory, two token buckets", "50/s burst 10, 1000/h", 300)
        }),
        ("fleet, 50 per 1 s, sliding, host", || fleet::fast(false, false)),
        ("fleet, 50 per 1 s, sliding, redis", || fleet::fast(false, true)),
        ("fleet, 50 per 1 s, fixed, host", || fleet::fast(true, false)),
        ("fleet, 50 per 1 s, fixed, redis", || fleet::fast(true, true)),
        ("fleet, 1000 per 10 s, sliding, host", || fleet::slow(false, false)),
        ("fleet, 1000 per 10 s, sliding, redis", || fleet::slow(false, true)),
        ("fleet, 1000 per 10 s, fixed, host", || fleet::slow(true, false)),
        ("fleet, 1000 per 10 s, fixed, redis", || fleet::slow(true, true)),
        ("fleet, 100 processes, redis", fleet::many),
        ("uncontended acquire over redis", || {
            latency::against_ping("uncontended acquire over redis", 1.3)
        }),
        ("wake-ups, host", || latency::wake_ups("wake-ups, host", false, 2.0)),
        ("wake-ups, redis", || latency::wake_ups("wake-ups, redis", true, 2.0)),
        ("a million buckets", || buckets::million("a million buckets in redis", 300.0, 0.7)),
        ("crowd, memory", || crowd::local("crowd of 1000, memory", false, 2_000_000.0)),
        ("crowd, host", || crowd::local("crowd of 1000, host", true, 2_000_000.0)),
        ("crowd, redis", || crowd::redis("crowd of 1000, redis", 10.0, 1_000_000.0)),
        ("outage, Sentinel failover", || outage::failover("outage, Sentinel failover", 2.0)),
        ("outage, all slots of a Cluster move", || {
            outage::reshard("outage, all slots of a Cluster move")
        }),
        ("outage, server stopped for 10 s", || {
            let slack = std::time::Duration::from_millis(50);
            outage::stopped("outage, server stopped for 10 s", slack, 2)
        }),
        ("outage, scripts flushed", || outage::flush("outage, scripts flushed", 3)),
        ("cluster of three, 1000 buckets", || {
            cluster::against_one("cluster of three, 1000 buckets", 1.0)
        }),
        ("Redis memory, bucket and window", || {
            script::memory(
                "Redis memory, bucket and window",
                "50/s burst 10, window 1000/m guard 50ms",
                300,
            )
        }),
    ];
    for (name, measure) in measures {
        if !name.contains(word) {
            continue;
        }
        print(measure());
    }
    teach::figures(word).for_each(print);
}

fn print(Figure { what, target, measured, met }: Figure) {
    let met = if met { "met" } else { "MISSED" };
    println!("{what:<40} {measured:<50} target {target:<20} {met}");
}

/// What the figures of async code run in.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The middle of the values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
