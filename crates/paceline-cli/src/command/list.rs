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
        // What can be read is shown, also where a node of a Cluster is away.
        let (names, failed) = limiter.list_reachable().await;
        let exit = match failed {
            None => Ok(Exit::DONE),
            Some(error) if names.is_empty() => return Err(error.into()),
            Some(error) => Err(error.into()),
        };
        if !self.long {
            if context.json {
                output::json(&names)?;
            } else if !names.is_empty() {
                output::line(&names.join("\n"))?;
            }
            return exit;
        }
        let mut buckets = Vec::new();
        for name in &names {
            // One that has evaporated meanwhile is left out, and where something is away already,
            // what has gone since.
            match limiter.status(name).await {
                Ok(status) => buckets.extend(status),
                Err(error) if exit.is_ok() => return Err(error.into()),
                Err(_) => {}
            }
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
        exit
    }
}
