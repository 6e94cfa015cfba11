//! What the provider saw, by phase, and whether the fleet obeyed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use paceline::Policy;
use serde_json::{Value, json};

use super::Plan;
use super::phase::{Act, Phase};
use super::provider::Record;
use crate::output::{micros, span};

/// A change reaches those who already sleep for a place within this: they go only on a sight of
/// their bucket younger than 100 ms, and a busy machine may take a moment more.
const HEEDED_WITHIN: Duration = Duration::from_millis(250);

/// The whole report.
#[derive(Debug)]
pub(crate) struct Report {
    head: Value,
    rows: Vec<Row>,
    total: Row,
    /// What went wrong, in words; nothing where the fleet obeyed.
    pub(crate) faults: Vec<String>,
}

/// One phase, or all of them.
#[derive(Debug)]
struct Row {
    name: &'static str,
    span: Duration,
    calls: u64,
    refused: u64,
    /// Calls that passed, of those the provider would have let pass.
    used: f64,
    waits: Waits,
    operations: u64,
    /// What was asked of the fleet and what it did, in words.
    obeyed: String,
}

/// How long permits were waited for, shortest first.
#[derive(Debug)]
struct Waits(Vec<Duration>);

impl Report {
    pub(super) fn new(
        plan: &Plan,
        full: &Policy,
        half: &Policy,
        limit: u32,
        interval: Duration,
        phases: &[Phase],
        records: &[Record],
    ) -> Self {
        let per_second = f64::from(limit) / interval.as_secs_f64();
        let mut rows: Vec<Row> =
            phases.iter().map(|phase| Row::new(phase, per_second, records)).collect();
        let whole = Phase {
            name: "in all",
            act: Act::Nothing,
            from: phases.first().map(|it| it.from).unwrap_or_default(),
            until: Duration::MAX,
        };
        let mut total = Row::new(&whole, per_second, records);
        total.span = rows.iter().map(|row| row.span).sum();
        total.used = total.passed() / (per_second * total.span.as_secs_f64());

        let mut faults = Vec::new();
        if total.refused > 0 {
            faults.push(format!("the provider refused {} calls (429)", total.refused));
        }
        let seen: BTreeSet<u64> = records.iter().map(|record| record.worker).collect();
        if seen.len() < usize::from(plan.processes) {
            faults.push(format!("only {} of {} workers called", seen.len(), plan.processes));
        }
        for (phase, row) in phases.iter().zip(&mut rows) {
            match obeyed(phase, per_second, records) {
                Ok(how) => row.obeyed = how,
                Err(fault) => {
                    row.obeyed = "NO".to_owned();
                    faults.push(fault);
                }
            }
        }
        let head = json!({
            "provider": plan.kind.name(),
            "limit": limit,
            "interval_us": micros(interval),
            "policy": full.as_str(),
            "policy_halved": half.as_str(),
            "processes": plan.processes,
            "callers_per_process": plan.callers,
        });
        Self { head, rows, total, faults }
    }

    pub(crate) fn json(&self) -> Value {
        let mut value = self.head.clone();
        value["phases"] = self.rows.iter().map(Row::json).collect();
        value["total"] = self.total.json();
        value["faults"] = json!(self.faults);
        value
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        *table.style_mut() = presets::UTF8_FULL_CONDENSED;
        table.set_header([
            "phase",
            "time",
            "calls",
            "429s",
            "quota used",
            "wait p50",
            "p99",
            "longest",
            "store ops/call",
            "obeyed",
        ]);
        for row in self.rows.iter().chain([&self.total]) {
            table.add_row(row.cells());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "provider   {}, {} calls in {}\npolicy     {}\nhalved     {}\n{}",
            self.head["provider"].as_str().unwrap_or_default(),
            self.head["limit"],
            span(Duration::from_micros(self.head["interval_us"].as_u64().unwrap_or(0))),
            self.head["policy"].as_str().unwrap_or_default(),
            self.head["policy_halved"].as_str().unwrap_or_default(),
            table.trim_fmt()
        )
    }
}

/// What a phase asked of the fleet and how it obeyed, or in what it did not.
fn obeyed(phase: &Phase, per_second: f64, records: &[Record]) -> Result<String, String> {
    let after = |record: &Record| span(record.at - phase.from);
    let within: Vec<&Record> = records.iter().filter(|it| phase.holds(it.at)).collect();
    let heeded = Phase { from: phase.from + HEEDED_WITHIN, ..*phase };
    let late: Vec<_> = within.iter().filter(|record| heeded.holds(record.at)).collect();
    match phase.act {
        Act::Nothing => Ok(String::new()),
        Act::Suspend => match (late.last(), within.last()) {
            (Some(last), _) => Err(format!(
                "{} calls came during the suspension, the last {} after it began",
                late.len(),
                after(last)
            )),
            (None, Some(last)) => Ok(format!("yes: last call after {}", after(last))),
            (None, None) => Ok("yes: no call".to_owned()),
        },
        Act::Halve => {
            #[allow(clippy::cast_precision_loss, reason = "far below 2^53 calls")]
            let calls = late.len() as f64;
            let (half, seconds) = (per_second / 2.0, heeded.span().as_secs_f64());
            // A few late ones had left before.
            if calls > half * seconds * 1.05 + 5.0 {
                return Err(format!("{calls} calls in {seconds:.1} s under {half}/s"));
            }
            Ok(format!("yes: {:.1}/s of {half}/s", calls / seconds))
        }
        Act::Resume => match within.first() {
            Some(first) => Ok(format!("yes: first call after {}", after(first))),
            None => Err("no call came after the resume".to_owned()),
        },
    }
}

impl Row {
    fn new(phase: &Phase, per_second: f64, records: &[Record]) -> Self {
        let within: Vec<&Record> = records.iter().filter(|it| phase.holds(it.at)).collect();
        let passed = within.iter().filter(|record| record.allowed).count() as u64;
        let mut waits: Vec<Duration> = within.iter().map(|record| record.waited).collect();
        waits.sort_unstable();
        // What each worker had asked by its last call of the phase, less that before the phase.
        let mut operations = BTreeMap::new();
        for record in records.iter().filter(|record| record.at < phase.until) {
            let asked = operations.entry(record.worker).or_insert((0, 0));
            asked.1 = asked.1.max(record.operations);
            if record.at < phase.from {
                asked.0 = asked.1;
            }
        }
        let mut row = Self {
            name: phase.name,
            span: phase.span(),
            calls: within.len() as u64,
            refused: within.len() as u64 - passed,
            used: 0.0,
            waits: Waits(waits),
            operations: operations.values().map(|(before, after)| after - before).sum(),
            obeyed: String::new(),
        };
        row.used = row.passed() / (per_second * row.span.as_secs_f64());
        row
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 calls")]
    fn passed(&self) -> f64 {
        (self.calls - self.refused) as f64
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 calls")]
    fn operations_per_call(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.operations as f64 / self.calls as f64)
    }

    fn cells(&self) -> [String; 10] {
        let wait = |part| self.waits.percentile(part).map(span).unwrap_or_default();
        [
            self.name.to_owned(),
            span(self.span),
            self.calls.to_string(),
            self.refused.to_string(),
            format!("{:.1} %", self.used * 100.0),
            wait(50),
            wait(99),
            wait(100),
            self.operations_per_call().map(|it| format!("{it:.2}")).unwrap_or_default(),
            self.obeyed.clone(),
        ]
    }

    fn json(&self) -> Value {
        let wait = |part| self.waits.percentile(part).map(micros);
        json!({
            "phase": self.name,
            "span_us": micros(self.span),
            "calls": self.calls,
            "refused": self.refused,
            "quota_used": self.used,
            "wait_p50_us": wait(50),
            "wait_p99_us": wait(99),
            "wait_longest_us": wait(100),
            "store_operations_per_call": self.operations_per_call(),
            "obeyed": self.obeyed,
        })
    }
}

impl Waits {
    /// The wait that `part` of a hundred did not exceed.
    fn percentile(&self, part: usize) -> Option<Duration> {
        let rank = (self.0.len() * part).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paceline_sim::Kind;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_percentile_is_a_wait_that_happened() {
        let waits = |count: u64| Waits((1..=count).map(ms).collect());
        for (count, part, want) in [
            (1, 50, Some(1)),
            (2, 50, Some(1)),
            (100, 99, Some(99)),
            (3, 100, Some(3)),
            (0, 50, None),
        ] {
            assert_eq!(waits(count).percentile(part), want.map(ms), "{part} of {count}");
        }
    }

    /// A report on calls at these moments in milliseconds, refused or not.
    fn report(act: Act, calls: &[(u64, bool)]) -> Report {
        let plan = Plan {
            kind: Kind::Sliding,
            processes: 1,
            callers: 1,
            span: ms(2_000),
            policy: None,
            timeout: ms(250),
        };
        let policy: Policy = "100/s".parse().unwrap();
        let records: Vec<Record> = calls
            .iter()
            .enumerate()
            .map(|(index, (at, allowed))| Record {
                at: ms(*at),
                allowed: *allowed,
                worker: 0,
                waited: ms(1),
                operations: 3 * (index as u64 + 1),
            })
            .collect();
        let phases = [
            Phase { name: "first", act: Act::Nothing, from: ms(0), until: ms(1_000) },
            Phase { name: "second", act, from: ms(1_000), until: ms(2_000) },
        ];
        Report::new(&plan, &policy, &policy, 100, ms(1_000), &phases, &records)
    }

    #[test]
    fn calls_are_told_by_phase_with_the_share_of_the_quota_they_used() {
        let calls: Vec<_> = (0..90).map(|n| (n * 10, true)).chain([(1_500, true)]).collect();
        let report = report(Act::Nothing, &calls);
        assert_eq!(report.faults, [""; 0]);
        let value = report.json();
        assert_eq!(value["phases"][0]["calls"], 90);
        assert_eq!(value["phases"][0]["quota_used"], 0.9);
        assert_eq!(value["phases"][1]["calls"], 1);
        assert_eq!(value["phases"][1]["store_operations_per_call"], 3.0);
        assert_eq!(value["total"]["calls"], 91);
        assert!(report.table().contains("90.0 %"), "{}", report.table());
    }

    #[test]
    fn a_refusal_or_a_call_at_the_wrong_time_is_a_fault_in_words() {
        let fault = |act, calls: &[(u64, bool)]| report(act, calls).faults.join("; ");
        assert!(fault(Act::Nothing, &[(5, true), (9, false)]).contains("refused 1 calls"));
        assert_eq!(fault(Act::Suspend, &[(5, true), (1_249, true)]), "");
        assert!(fault(Act::Suspend, &[(5, true), (1_251, true)]).contains("suspension"));
        let many: Vec<_> = (1_400..1_500).map(|at| (at, true)).collect();
        assert!(fault(Act::Halve, &many).contains("under 50/s"));
        assert_eq!(fault(Act::Halve, &many[..30]), "");
        assert!(fault(Act::Resume, &[(5, true)]).contains("after the resume"));
        assert!(fault(Act::Nothing, &[]).contains("only 0 of 1 workers"));
    }
}
