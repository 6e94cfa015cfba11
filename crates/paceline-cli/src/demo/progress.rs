//! What a person sees while it runs: a moving line on a terminal, a line a phase elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use super::Plan;
use crate::output;

/// The display, on stderr.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(super) fn new(plan: &Plan) -> Self {
        output::say(&format!(
            "{} worker processes of {} callers call a strict provider ({}) for {}",
            plan.processes,
            plan.callers,
            plan.kind.name(),
            output::span(plan.span),
        ));
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            // The template is ours; without it the default is shown.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar }
    }

    pub(super) fn tell(&self, phase: &str, calls: usize, refused: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(words(phase, calls, refused));
            bar.tick();
        }
    }

    pub(super) fn phase_done(&self, phase: &str, calls: usize, refused: u64) {
        if self.bar.is_none() {
            output::say(&words(phase, calls, refused));
        }
    }

    pub(super) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn words(phase: &str, calls: usize, refused: u64) -> String {
    format!("{phase:<20}  {calls:>6} calls so far, {refused} refused (429)")
}
