//! `paceline demo`: the main job, shown.

use std::time::Duration;

use clap::Args;
use paceline::Policy;
use paceline_sim::Kind;

use crate::demo::worker::Worker;
use crate::demo::{self, Plan};
use crate::exit::{Exit, Failure};
use crate::number::whole;
use crate::output;
use crate::provider::kinds;
use crate::run::Context;

/// Show a fleet keeping one pace.
///
/// Starts a strict provider and worker processes that share one bucket, changes the limit,
/// suspends and resumes, and ends with a table of what the provider saw.
///
/// Ends with 0 only where the provider never answered 429 and every worker obeyed.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Worker processes
    #[arg(long, value_name = "N", default_value_t = 8, allow_hyphen_values = true, value_parser = whole::<u16>(1..=200))]
    processes: u16,

    /// Callers in each of them
    #[arg(long, value_name = "N", default_value_t = 4, allow_hyphen_values = true, value_parser = whole::<u16>(1..=200))]
    callers: u16,

    /// How long it runs once all workers are there
    #[arg(long, value_name = "S", default_value_t = 20, allow_hyphen_values = true, value_parser = whole::<u16>(5..=3_600))]
    seconds: u16,

    /// How the provider counts
    #[arg(long, value_name = "KIND", default_value_t = Kind::Sliding, value_parser = kinds(demo::KINDS))]
    provider: Kind,

    /// Another policy than the one that suits the provider, to see it fail
    #[arg(long, hide = true, allow_hyphen_values = true)]
    policy: Option<Policy>,
}

/// One worker of a demo.
#[derive(Debug, Args)]
pub(crate) struct DemoWorker {
    #[command(flatten)]
    worker: Worker,
}

impl Demo {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let store = &context.store.store;
        if store.starts_with("memory:") {
            return Err(Failure::new(
                Exit::USAGE,
                "the demo's workers are processes of their own and share nothing through memory:; \
                 use host: or redis://",
            ));
        }
        let limiter = context.store.open().await?;
        let plan = Plan {
            kind: self.provider,
            processes: self.processes,
            callers: self.callers,
            span: Duration::from_secs(self.seconds.into()),
            policy: self.policy,
            timeout: context.store.timeout,
        };
        let report = demo::run(&plan, &limiter, store).await?;
        if context.json {
            output::json(&report.json())?;
        } else {
            output::line(&report.table())?;
        }
        if report.faults.is_empty() {
            return Ok(Exit::DONE);
        }
        Err(Failure::new(Exit::FAILED, report.faults.join("; ")))
    }
}

impl DemoWorker {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        self.worker.run(&limiter).await
    }
}
