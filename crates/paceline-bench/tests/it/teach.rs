//! Real processes over HTTP before a provider that refuses with little said.

use std::process::Command;

/// One call in the provider's record; moments in microseconds.
#[derive(Debug)]
struct Call {
    started_us: i64,
    arrived_us: i64,
    verdict: String,
}

fn record(run: &str, store: &str, seconds: u64) -> Vec<Call> {
    let program = env!("CARGO_BIN_EXE_figures");
    let words = ["teach-record", run, store, &seconds.to_string()];
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let call = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse().unwrap();
        Call {
            arrived_us: number(words[0]),
            started_us: number(words[1]),
            verdict: words[3].to_owned(),
        }
    };
    text.lines().map(call).collect()
}

#[test]
fn c38_one_process_is_told_to_stay_away_and_nobody_in_the_fleet_starts() {
    let span_us = 2_000_000;
    for store in ["host", "redis"] {
        let calls = record("halted", store, 2);
        let once: Vec<&Call> = calls.iter().filter(|call| call.verdict == "Once").collect();
        assert_eq!(once.len(), 1, "{store}");
        let told_us = once[0].arrived_us;
        let before = calls.iter().filter(|call| call.started_us < told_us).count();
        assert!(before > 20, "{store}: the fleet was under way with {before}");
        // 100 ms are what it takes on a machine that does nothing else, and the figure's to measure.
        let silent = told_us + span_us / 2..told_us + span_us;
        let started = calls.iter().filter(|call| silent.contains(&call.started_us)).count();
        assert_eq!(started, 0, "{store}");
        let after = calls.iter().filter(|call| call.started_us >= silent.end).count();
        assert!(after > 0, "{store}: it goes on afterwards");
    }
}

#[test]
fn c37_a_target_that_is_always_refused_does_not_stop_its_neighbours() {
    for store in ["host", "redis"] {
        let calls = record("undisturbed", store, 5);
        let refused: Vec<i64> = calls
            .iter()
            .filter(|call| call.verdict == "Retired")
            .map(|call| call.arrived_us)
            .collect();
        assert!(refused.len() >= 2, "{store}: it is refused again");
        // While the one rests, for longer each time, the others make call after call: also in the
        // first half of it, when a fleet that had been stopped would be silent.
        for two in refused.windows(2) {
            let half = two[0]..i64::midpoint(two[0], two[1]);
            let others = calls.iter().filter(|call| call.verdict == "Accepted");
            let passed = others.filter(|call| half.contains(&call.arrived_us)).count();
            assert!(passed >= 8, "{store}: {passed} calls while one rests");
        }
    }
}
