//! `paceline list`: the buckets of a store.

use clap::Args;
use comfy_table::{Table, presets};

use super::status;
use crate::exit::{Exit, Failure};
use crate::output::{self, span};
use crate::run::Context;

/// List the buckets, one name a line.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Show each with its policy, what is left and its suspension
    #[arg(long, short)]
    long: bool,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let names = limiter.list().await?;
        if !self.long {
            if context.json {
                output::json(&names)?;
            } else if !names.is_empty() {
                output::line(&names.join("\n"))?;
            }
            return Ok(Exit::DONE);
        }
        let mut buckets = Vec::new();
        for name in &names {
            // One that has evaporated meanwhile is left out.
            buckets.extend(limiter.status(name).await?);
        }
        if context.json {
            output::json(&buckets.iter().map(status::as_json).collect::<Vec<_>>())?;
        } else if !buckets.is_empty() {
            let mut table = Table::new();
            *table.style_mut() = presets::NOTHING;
            table.set_header(["BUCKET", "POLICY", "LEFT", "SUSPENDED"]);
            for bucket in &buckets {
                let left = bucket.quotas.iter().map(|quota| quota.remaining).min();
                table.add_row([
                    bucket.name.clone(),
                    bucket.policy.clone().unwrap_or_default(),
                    left.map(|left| left.to_string()).unwrap_or_default(),
                    bucket.suspension.as_ref().map(|it| span(it.left)).unwrap_or_default(),
                ]);
            }
            output::line(&table.trim_fmt())?;
        }
        Ok(Exit::DONE)
    }
}
