//! Words of changes: the script publishes on a bucket's own key when somebody suspends, resumes or
//! sets a policy, and a connection of its own hears them. A word that is lost costs time and never
//! correctness: who waits looks again, only later.

use futures_util::StreamExt;
use redis::aio::PubSub;

use super::connection::{ATTEMPT_TIMEOUTS, Ended};
use super::{Redis, globbed};
use crate::error::Error;

/// A subscription to all buckets under the store's prefix. It ends with the connection of decisions
/// to the same server, so that it is made anew where the primary is then.
pub(crate) struct Words {
    subscribed: PubSub,
    ended: Ended,
    prefix: String,
}

/// What was told of a bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Its name.
    pub(crate) name: String,
    /// Whether it was changed, so that who waits for it looks again.
    pub(crate) changed: bool,
    /// Whether somebody was refused without a time, so that who passes says so.
    pub(crate) doubted: bool,
}

impl Redis {
    /// What is subscribed to. A user restricted by ACL may subscribe to just the pattern that the
    /// rule spells.
    pub(super) fn words_pattern(&self) -> String {
        format!("{}*", globbed(&self.prefix))
    }

    /// Subscribes, which takes several round trips, within the bound of an attempt to connect.
    pub(crate) async fn words(&self) -> Result<Words, Error> {
        let server = self.route.any()?;
        let subscribing = async {
            let (client, ended) = server.client().await?;
            let subscribed = async {
                let mut subscribed = client.get_async_pubsub().await?;
                subscribed.psubscribe(self.words_pattern()).await?;
                redis::RedisResult::Ok(subscribed)
            };
            let subscribed = subscribed.await.map_err(|error| server.no_connection(&error))?;
            Ok(Words { subscribed, ended, prefix: self.prefix.clone() })
        };
        let bound = self.timeout * ATTEMPT_TIMEOUTS;
        match tokio::time::timeout(bound, subscribing).await {
            Ok(words) => words,
            Err(_) => Err(Error::unavailable(format!(
                "{} did not answer within {bound:?}",
                server.server()
            ))),
        }
    }
}

impl Words {
    /// The next word; `None` when the connection has ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Word> {
        loop {
            let word = {
                let mut words = self.subscribed.on_message();
                tokio::select! {
                    word = words.next() => word?,
                    () = self.ended.ended() => return None,
                }
            };
            let key = word.get_channel_name();
            let name = key.strip_prefix(&self.prefix).and_then(|it| it.strip_prefix('{'));
            if let Some(name) = name.and_then(|it| it.strip_suffix('}')) {
                let what = word.get_payload_bytes();
                let changed = what != b"refused";
                let doubted = !changed || what == b"stopped";
                return Some(Word { name: name.to_owned(), changed, doubted });
            }
        }
    }
}
