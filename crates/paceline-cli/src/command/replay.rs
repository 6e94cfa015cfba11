//! `paceline replay`: holds a store to traces, at the traces' own times.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use paceline::testing::{self, Ask, Cause, Decision, ManualClock};
use paceline::{Limiter, Policy};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Context;
use crate::signal;

/// Hold a store to trace files.
///
/// Runs them against a scratch bucket and compares each answer.
///
/// A file holds one JSON trace a line: {"name", "policy", "ops": [{"now_us", "op", …, "want"}]}
/// with the operations take (cost, wait_max_us), suspend (for_us), resume and set (policy).
/// Decisions are made at the traces' own times. Ends with 0 only without mismatches, else with 1
/// and the first mismatch whole.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replay {
    /// Trace files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Trace {
    name: String,
    policy: String,
    ops: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    now_us: i64,
    #[serde(flatten)]
    op: Op,
    want: Value,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Op {
    Take { cost: u32, wait_max_us: i64 },
    Suspend { for_us: i64 },
    Resume,
    Set { policy: String },
}

/// What has been run so far.
#[derive(Debug, Default)]
struct Sum {
    traces: u64,
    operations: u64,
    mismatches: u64,
    first: Option<Value>,
}

impl Replay {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let clock = ManualClock::at(0);
        let limiter = context.store.builder().manual_clock(clock.clone()).open().await?;
        // A name of its own, so that it meets no bucket in use and no other replay.
        let name = format!("paceline replay {:016x}", fastrand::u64(..));
        let mut sum = Sum::default();
        let work = async {
            for file in &self.files {
                replay(&limiter, &clock, &name, file, &mut sum).await?;
            }
            Ok(())
        };
        let done = signal::or_interrupted(&limiter, work).await;
        let deleted = limiter.delete(&name).await;
        done?;
        deleted?;
        let Sum { traces, operations, mismatches, first } = sum;
        if context.json {
            output::json(&json!({
                "traces": traces,
                "operations": operations,
                "mismatches": mismatches,
                "first_mismatch": first,
            }))?;
        } else {
            output::line(&format!(
                "{traces} traces, {operations} operations, {mismatches} mismatches"
            ))?;
            if let Some(first) = first {
                output::line(&format!("first mismatch: {first:#}"))?;
            }
        }
        Ok(if mismatches == 0 { Exit::DONE } else { Exit::FAILED })
    }
}

async fn replay(
    limiter: &Limiter,
    clock: &ManualClock,
    name: &str,
    file: &Path,
    sum: &mut Sum,
) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        Failure::new(Exit::NO_INPUT, format!("cannot read {}: {error}", file.display()))
    };
    for (index, line) in BufReader::new(File::open(file).map_err(cannot)?).lines().enumerate() {
        let line = line.map_err(cannot)?;
        if line.trim().is_empty() {
            continue;
        }
        let refused = |why: String| {
            let place = format!("{}:{}", file.display(), index + 1);
            Failure::new(Exit::USAGE, format!("{place} is no trace: {why}"))
        };
        let trace: Trace =
            serde_json::from_str(&line).map_err(|error| refused(error.to_string()))?;
        let policy = |text: &str| {
            text.parse::<Policy>().map(Arc::new).map_err(|error| refused(error.to_string()))
        };
        let mut own = policy(&trace.policy)?;
        limiter.delete(name).await?;
        sum.traces += 1;
        for (number, step) in trace.ops.iter().enumerate() {
            clock.set(step.now_us);
            if number == 0 {
                // The bucket is made at the first operation's time. Pinned, since a trace knows
                // nothing of buckets that evaporate.
                limiter.pin_policy(name, (*own).clone()).await?;
            }
            let got = match &step.op {
                Op::Take { cost, wait_max_us } => {
                    let ask = Ask { cost: (*cost).into(), wait_max_us: *wait_max_us };
                    answer(testing::decide(limiter, name, &own, ask).await?)
                }
                Op::Suspend { for_us } => {
                    let left = testing::suspend(limiter, name, *for_us).await?;
                    json!({"suspended": {"left_us": output::micros(left)}})
                }
                Op::Resume => {
                    limiter.resume(name).await?;
                    json!({"resumed": {}})
                }
                Op::Set { policy: text } => {
                    own = policy(text)?;
                    limiter.pin_policy(name, (*own).clone()).await?;
                    json!({"set": {}})
                }
            };
            sum.operations += 1;
            if got != step.want {
                sum.mismatches += 1;
                sum.first.get_or_insert_with(|| {
                    json!({
                        "file": file.display().to_string(),
                        "line": index + 1,
                        "trace": trace.name,
                        "policy": trace.policy,
                        "operation": number + 1,
                        "now_us": step.now_us,
                        "op": format!("{:?}", step.op),
                        "want": step.want,
                        "got": got,
                    })
                });
            }
        }
    }
    Ok(())
}

/// A decision in the traces' form.
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
