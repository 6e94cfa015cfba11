//! Listening for changes made elsewhere, where the store tells of them. One task a limiter, started
//! when first somebody has to wait. While nobody is heard, waiters look more often.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::limiter::Shared;
use crate::line::Line;

/// Between two attempts to subscribe; it doubles up to the longest: where the server is away, and
/// where it does not allow it.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);
const PAUSE_LONGEST_REFUSED: Duration = Duration::from_secs(30);

impl Shared {
    /// Sees to it that changes are listened for.
    pub(crate) fn listen(self: &Arc<Self>, runtime: &Handle) {
        if self.store.tells() && !self.listening.swap(true, Ordering::Relaxed) {
            let listening = Listening { shared: Arc::downgrade(self) };
            runtime.spawn(listen(listening, self.returning.subscribe()));
        }
    }

    fn heard(&self, told: bool) {
        self.told.store(told, Ordering::Relaxed);
    }

    /// The lines in use: all, or those of one name.
    fn lines_in_use(&self, name: Option<&str>) -> Vec<Arc<Line>> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        match name {
            Some(name) => lines.get(name).and_then(Weak::upgrade).into_iter().collect(),
            None => lines.values().filter_map(Weak::upgrade).collect(),
        }
    }
}

/// The task that listens. When it ends, whatever ends it, nobody is told any more.
struct Listening {
    shared: Weak<Shared>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.heard(false);
            shared.listening.store(false, Ordering::Relaxed);
        }
    }
}

/// Listens until the limiter is gone, which the end of `alive` tells.
async fn listen(listening: Listening, mut alive: watch::Receiver<usize>) {
    let (mut pause, mut longest) = (PAUSE_FIRST, PAUSE_LONGEST);
    loop {
        let Some(shared) = listening.shared.upgrade() else { return };
        match shared.store.words().await {
            Ok(mut words) => {
                tracing::debug!("hears of changes");
                pause = PAUSE_FIRST;
                shared.heard(true);
                drop(shared);
                loop {
                    let word = tokio::select! {
                        word = words.next() => word,
                        () = gone(&mut alive) => return,
                    };
                    let Some(shared) = listening.shared.upgrade() else { return };
                    if word.is_none() {
                        shared.heard(false);
                    }
                    let name = word.as_ref().map(|word| word.name.as_str());
                    for line in shared.lines_in_use(name) {
                        // What was told when nobody listened is not known.
                        if word.as_ref().is_none_or(|word| word.doubted) {
                            line.doubt();
                        }
                        if word.as_ref().is_none_or(|word| word.changed) {
                            line.changed();
                        }
                    }
                    if word.is_none() {
                        break;
                    }
                }
                tracing::debug!("hears no changes any more");
            }
            Err(error) => {
                drop(shared);
                longest =
                    if error.is_unavailable() { PAUSE_LONGEST } else { PAUSE_LONGEST_REFUSED };
                tracing::debug!(%error, "hears of no changes; waiters look more often");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 2.0)) => {}
            () = gone(&mut alive) => return,
        }
        pause = (pause * 2).min(longest);
    }
}

/// Ends when the limiter has gone.
async fn gone(alive: &mut watch::Receiver<usize>) {
    while alive.changed().await.is_ok() {}
}
