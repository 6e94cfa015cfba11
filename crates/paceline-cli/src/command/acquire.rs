//! `paceline acquire`: takes permits for what a script does next.

use std::time::{Duration, Instant};

use clap::Args;
use paceline::{Answer, Bucket, GrantedBy, Permit};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::number::whole;
use crate::output;
use crate::permit::{self, PermitArgs};
use crate::run::Context;
use crate::signal;

/// Wait for a permit and take it.
///
/// Prints nothing but, with --count, the number of each permit as it is taken:
///
///   paceline acquire github --quota 5/s && curl -s https://api.github.com/zen
///   paceline acquire github --quota 5/s --count 100 | while read -r n; do ./call "$n"; done
///
/// --count N takes N permits one after another, each at its own moment; --cost N takes N at
/// one moment.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Acquire {
    #[command(flatten)]
    permit: PermitArgs,

    /// Take a permit only if there is one now
    #[arg(long, conflicts_with = "max_wait")]
    no_wait: bool,

    /// Take so many permits one after another, and print the number of each
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole(1..=u64::MAX))]
    count: Option<u64>,
}

impl Acquire {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let bucket = self.permit.bucket(&limiter)?;
        signal::or_interrupted(&limiter, self.take(&bucket, context.json)).await?;
        Ok(Exit::DONE)
    }

    async fn take(&self, bucket: &Bucket, as_json: bool) -> Result<(), Failure> {
        let start = Instant::now();
        for number in 1..=self.count.unwrap_or(1) {
            let max_wait = if self.no_wait {
                Some(Duration::ZERO)
            } else {
                self.permit.max_wait.map(|span| span.saturating_sub(start.elapsed()))
            };
            match permit::wait(bucket, self.permit.cost, max_wait).await? {
                Answer::Granted(permit) if self.count.is_none() => {
                    let words = granted(number, &permit);
                    // The exit code tells of it, whoever reads the words.
                    permit.spend();
                    if as_json {
                        output::json(&words)?;
                    }
                }
                Answer::Granted(permit) => {
                    if as_json {
                        output::json(&granted(number, &permit))?;
                    } else {
                        output::line(&number.to_string())?;
                    }
                    // Not told to anybody, it would have gone back.
                    permit.spend();
                }
                Answer::Refused(refusal) => {
                    if as_json {
                        permit::print_refused(number, &refusal);
                    }
                    return Err(refusal.into());
                }
            }
        }
        Ok(())
    }
}

fn granted(number: u64, permit: &Permit) -> serde_json::Value {
    json!({
        "granted": true,
        "number": number,
        "waited_us": output::micros(permit.waited()),
        "granted_by": match permit.granted_by() {
            GrantedBy::Local => "local",
            GrantedBy::Allowed => "allowed",
            _ => "store",
        },
    })
}
