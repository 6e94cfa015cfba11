//! `paceline pace`: copies lines from stdin to stdout, one permit each.

use std::io::{self, BufRead, ErrorKind};
use std::time::Duration;

use clap::Args;
use paceline::Bucket;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::permit::{self, PermitArgs};
use crate::run::Context;
use crate::signal;

/// Pauses between two tries while the store is away, from the first to the longest.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
];

/// Copy lines from stdin to stdout, one permit each.
///
/// Any number of such pipelines on any number of machines keep one pace:
///
///   paceline pace github --quota 50/s < urls | xargs -P8 -n1 curl -sO
///
/// Each line is flushed as it is written, byte for byte. A closed pipe ends it quietly, and the
/// permit of the line that could not be written goes back. When the store goes away after the
/// first line, the line in hand waits for it. Where a line cannot be written at all, its number
/// is told, so that the rest can be run later.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Pace {
    #[command(flatten)]
    permit: PermitArgs,
}

impl Pace {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let limiter = context.store.open().await?;
        let bucket = self.permit.bucket(&limiter)?;
        let closed = stdout_closed();
        let work = async {
            tokio::select! {
                biased;
                done = self.copy(&bucket) => done,
                Ok(()) = closed => Ok(()),
            }
        };
        signal::or_interrupted(&limiter, work).await?;
        Ok(Exit::DONE)
    }

    async fn copy(&self, bucket: &Bucket) -> Result<(), Failure> {
        for number in 1_u64.. {
            // One line at a time, and only when the one before it is written: nothing is read
            // that might not be written.
            let Some(line) = next_line(number).await? else { return Ok(()) };
            let not_written = |failure: Failure| match failure {
                // The reader has gone, which is no failure.
                quiet if quiet.words.is_empty() => quiet,
                Failure { exit, words } => {
                    Failure::new(exit, format!("{words}; line {number} was not written"))
                }
            };
            let permit = self.permit(bucket, number).await.map_err(not_written)?;
            output::bytes(&line).map_err(not_written)?;
            permit.spend();
        }
        Ok(())
    }

    /// Waits for a permit. Once the store has answered, one that goes away is waited for.
    async fn permit(&self, bucket: &Bucket, number: u64) -> Result<paceline::Permit, Failure> {
        for tries in 0_usize.. {
            let answer = permit::wait_or_fail(bucket, self.permit.cost, self.permit.max_wait).await;
            match answer {
                Err(failure) if failure.exit == Exit::UNAVAILABLE && number > 1 => {
                    if tries == 0 {
                        output::say(&format!("{}; line {number} waits for it", failure.words));
                    }
                    tokio::time::sleep(PAUSES[tries.min(PAUSES.len() - 1)]).await;
                }
                answer => return answer,
            }
        }
        Err(Failure::new(Exit::UNAVAILABLE, "the store is away"))
    }
}

/// The next line of stdin with its end, whatever its bytes; `None` at the end.
async fn next_line(number: u64) -> Result<Option<Vec<u8>>, Failure> {
    let read = spawn_blocking(|| {
        let mut line = Vec::new();
        io::stdin().lock().read_until(b'\n', &mut line).map(|_| line)
    });
    let line = read.await.unwrap_or_else(|_| Err(ErrorKind::Other.into())).map_err(|error| {
        Failure::new(Exit::IO, format!("cannot read line {number} from stdin: {error}"))
    })?;
    Ok(Some(line).filter(|line| !line.is_empty()))
}

/// Told when the reader of stdout goes away, so that a long wait does not outlive its reader.
fn stdout_closed() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let stdout = io::stdout();
        loop {
            // No flag is asked for: errors and hang-ups are told in any case.
            let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
            match poll(&mut watched, None) {
                Ok(_) if watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                    let _ = sender.send(());
                    return;
                }
                Err(rustix::io::Errno::INTR) => {}
                // Something that cannot be watched; a write will tell.
                _ => return,
            }
        }
    });
    receiver
}
