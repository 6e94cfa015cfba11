//! What is done about an answer: the fleet is stopped, told that less is left, or given another
//! policy. Whoever asked is answered before the last two, which go on in the background.

use std::sync::Arc;

use paceline_core::decide::UNPROBED_US;
use paceline_core::{Cost, Micros, Policy, Remaining, Suspension as Why};
use paceline_http::{Answer, Basis, Profile, Reading, Refusal, Suspension, read};

use super::back_off::{BackOffs, Steps};
use super::ease::{Easing, Scene};
use super::learn::{Learning, Needed, Sent};
use super::{Observed, Response};
use crate::bucket::Bucket;
use crate::clock::{micros, us};
use crate::error::Error;
use crate::limiter::author;
use crate::line::Line;
use crate::permit::{InFlight, in_background};

/// What answers have told of a bucket, in this process.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    back_offs: BackOffs,
    learning: Learning,
    easing: Easing,
}

/// An answer that was read.
pub(crate) struct Told<'a> {
    /// Its call, where that is known.
    pub(crate) call: Option<InFlight>,
    /// What that has cost, where the answer has told it.
    pub(crate) cost: Option<Cost>,
    pub(crate) status: u16,
    pub(crate) reading: &'a Reading<'a>,
    /// What was called.
    pub(crate) target: &'a str,
    pub(crate) profile: &'a Profile,
}

impl Told<'_> {
    /// Whether it was refused for its pace. What a cache kept was refused to somebody else, or long ago.
    fn refused(&self) -> bool {
        self.reading.answer.is_rate() && !self.reading.is_from_cache
    }

    fn passed(&self) -> bool {
        !self.refused() && (200..400).contains(&self.status)
    }
}

/// What the store is to be told without anybody waiting for it.
#[derive(Debug, Default)]
struct Untold {
    /// Somebody has passed, where others were refused without a time.
    passed: bool,
    /// What is left of quotas, and why.
    remaining: Vec<Remaining>,
    /// The policy that is to come behind the one known.
    policy: Option<(Arc<Policy>, Arc<Policy>)>,
}

impl Bucket {
    /// Lets what answers say change the bucket's policy: limits that a provider states become the
    /// bucket's own, and where it refuses although they are kept, the pace is eased and climbs back
    /// slowly. A policy that was pinned is never changed. For handles whose policy is a guess; the
    /// profile may forbid it ([`Profile::adapts`]).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use http::HeaderMap;
    /// use paceline::Limiter;
    /// use paceline::http::{Profiles, Response};
    ///
    /// let limiter = Limiter::open("memory:").await?;
    /// let bucket = limiter.bucket("api", "100/m")?.adaptive();
    /// bucket.acquire().await?.spend();
    /// let mut headers = HeaderMap::new();
    /// headers.insert("ratelimit-policy", r#""calls";q=60;w=60"#.parse()?);
    /// headers.insert("ratelimit", r#""calls";r=59;t=60"#.parse()?);
    /// let response = Response { status: 200, headers: &headers, body: None, target: "/" };
    /// // One answer may be of somebody else's limit.
    /// for _ in 0..2 {
    ///     bucket.observe(response, Profiles::builtin().generic()).await?;
    /// }
    /// limiter.settled().await;
    /// let policy = bucket.status().await?.and_then(|status| status.policy);
    /// assert_eq!(policy.as_deref(), Some("60/m, idle 1h"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn adaptive(self) -> Self {
        Self { adapts: true, ..self }
    }

    /// Tells the fleet what an answer said, as [`http`](crate::http) describes. Where the call's
    /// [`InFlight`] is at hand, [`observe_call`](Self::observe_call) knows more.
    ///
    /// What is left and what was learned is told in the background;
    /// [`settled`](crate::Limiter::settled) waits for it.
    ///
    /// # Errors
    /// When the fleet had to be stopped and the store did not answer. The caller should then rest on
    /// its own; nothing was lost but the telling.
    pub async fn observe(
        &self,
        response: Response<'_>,
        profile: &Profile,
    ) -> Result<Observed, Error> {
        self.hear(None, response, profile).await
    }

    /// As [`observe`](Self::observe), for the answer to a call whose permit was spent by
    /// [`in_flight`](crate::Permit::in_flight): calls that went out after it are reckoned in, an
    /// answer that is late changes nothing, and the call counts as answered.
    ///
    /// # Errors
    /// As there.
    pub async fn observe_call(
        &self,
        call: InFlight,
        response: Response<'_>,
        profile: &Profile,
    ) -> Result<Observed, Error> {
        self.hear(Some(call), response, profile).await
    }

    async fn hear(
        &self,
        call: Option<InFlight>,
        response: Response<'_>,
        profile: &Profile,
    ) -> Result<Observed, Error> {
        let Response { status, headers, body, target } = response;
        let reading = read(status, headers, body, self.line.shared.clock.now(), profile);
        self.heed(Told { call, cost: None, status, reading: &reading, target, profile }).await
    }

    /// Does what [`observe`](Self::observe) does, for an answer that was read already.
    pub(crate) async fn heed(&self, mut told: Told<'_>) -> Result<Observed, Error> {
        let call = told.call.take();
        let Told { cost, status, reading, target, profile, .. } = told;
        let refused = told.refused();
        // Of the usual answer there is nothing to hear, and nobody looks at the clock for it.
        let eased = self.adapts && self.line.is_other_policy();
        let is_usual = reading.is_silent() && !eased && !self.line.has_heard();
        let now = if is_usual { 0 } else { self.line.shared.clock.steady() };
        let sent = call.as_ref().filter(|_| !is_usual).map(|call| Sent {
            // The answer may have named another bucket than the one it waited for.
            booking: call.place_in(&self.line),
            age_us: call.age_us(now),
        });
        // The others follow one that went first, unless it was refused: the suspension that this brings
        // says when the next goes first, and its patience goes on until then.
        let call = if refused { call.map(InFlight::refused) } else { call };
        match (call, cost) {
            (None, _) => {}
            (Some(call), None) => call.answered(),
            (Some(call), Some(cost)) => call.settle(cost),
        }
        if is_usual {
            return Ok(Observed::Nothing);
        }
        let (steps, untold) = self.take_in(&told, sent, now);
        self.tell(untold, status);
        match &reading.suspension {
            // Beyond what anybody means: of a refusal the longest wait, else nothing.
            Some(suspension) if suspension.is_clamped() && !refused => Ok(Observed::Nothing),
            Some(suspension) => self.stop(status, suspension, steps, profile, refused).await,
            None if refused => self.refuse(status, target, steps, profile, reading.answer).await,
            None => Ok(Observed::Nothing),
        }
    }

    /// Remembers what the answer tells; what is to be told on.
    fn take_in(&self, answer: &Told<'_>, sent: Option<Sent>, now: Micros) -> (Steps, Untold) {
        let Told { status, reading, target, profile, .. } = *answer;
        let line = &self.line;
        let (refused, passed) = (answer.refused(), answer.passed());
        let binding = line.binding();
        let told = !line.shared.store.answers_later() && !line.shared.store.likes_crowds()
            || line.shared.is_told();
        let mut heard = line.heard();
        let Heard { back_offs, learning, easing } = &mut *heard;
        let steps = match (refused, passed) {
            (true, _) => back_offs.refused(target),
            (false, true) => {
                back_offs.passed(target);
                Steps::default()
            }
            (false, false) => Steps::default(),
        };
        let mut untold = Untold { passed: passed && line.ends_doubt(), ..Untold::default() };
        let adapts = self.adapts && profile.adapts();
        // Of an error that is none of pace nobody knows who has answered.
        let says = passed || refused;
        let mut policy = match adapts && says {
            true => {
                let needed = Needed::of(refused, line.shared.for_one_call);
                learning.policy(&self.policy, &binding, reading, needed, now)
            }
            false => None,
        };
        let tells_left = reading.limits.iter().any(|limit| limit.remaining.is_some());
        if adapts && policy.is_none() {
            // A refusal that says what is left is of a quota that others spend, too.
            let is_rate = refused && reading.answer == Answer::Refused(Refusal::Rate);
            let stated = reading.suspension.is_some();
            let scene = self.scene(&binding, now);
            if is_rate && stated && !tells_left {
                policy = easing.refused(scene, false);
            } else if passed {
                policy = easing.passed(scene, sent.map_or(0, |sent| sent.age_us));
            }
        }
        if policy.is_some() {
            learning.learns(now);
        } else if tells_left && (says || status < 500) {
            untold.remaining = learning.remaining(&binding, reading, sent, told, now);
        }
        untold.policy = policy.map(|policy| (binding, Arc::new(policy)));
        (steps, untold)
    }

    fn scene<'a>(&'a self, binding: &'a Arc<Policy>, now: Micros) -> Scene<'a> {
        Scene { own: &self.policy, binding, paused_us: self.line.paused_us(), now }
    }

    /// Tells the store in the background.
    fn tell(&self, untold: Untold, status: u16) {
        let Untold { passed, remaining, policy } = untold;
        if !passed && remaining.is_empty() && policy.is_none() {
            return;
        }
        in_background(&self.line, move |line| async move {
            let told = async {
                let (store, name) = (&line.shared.store, &line.name);
                if passed {
                    store.passed(name).await?;
                }
                if let Some((expected, policy)) = policy {
                    learn(&line, &expected, policy).await?;
                }
                for said in remaining {
                    // Only then it may suspend.
                    let why = match said.is_shared {
                        true => {
                            let left = said.tokens;
                            let reason = format!("{status}: {left} left, and as many on their way");
                            Why { reason, by: author() }
                        }
                        false => Why::default(),
                    };
                    let lowered = store.lower(name, said, why).await?;
                    if lowered.left_us > 0 {
                        line.changed();
                    }
                    if lowered.tokens > 0 {
                        let now = line.shared.clock.steady();
                        line.heard().learning.others_spend(said.quota, now);
                        tracing::debug!(
                            bucket = name,
                            quota = said.quota,
                            others = lowered.tokens,
                            left = said.tokens,
                            "others have spent of the quota"
                        );
                    }
                }
                Ok(())
            };
            if let Err(error) = told.await {
                let error = line.shared.failed(&line.name, error);
                tracing::debug!(%error, "what an answer said could not be told");
            }
        });
    }

    /// Stops the fleet for a time that was stated, or that the profile knows.
    async fn stop(
        &self,
        status: u16,
        suspension: &Suspension<'_>,
        steps: Steps,
        profile: &Profile,
        refused: bool,
    ) -> Result<Observed, Error> {
        let guessed = suspension.basis == Basis::Guessed;
        let stated = micros(suspension.wait_us);
        let longest = micros(profile.wait_max_us());
        let wait = match suspension.wait_us {
            // "At once" is no time; who obeys it calls again and again.
            0 => steps.pause(),
            _ if suspension.grows => steps.grown(stated).min(longest),
            _ => stated,
        };
        let mut reason = format!("{status}, {}: {}", suspension.source, suspension.raw);
        let clamped_from = suspension.is_clamped().then(|| micros(suspension.asked_us));
        if clamped_from.is_some() {
            reason.push_str(", cut to the longest wait");
        }
        let reason = if guessed { format!("guessed: {reason}") } else { reason };
        let (limiter, reason) = (self.limiter(), shortened(&reason));
        // Where nothing was refused nobody has to find out whether the others may follow.
        let patience_us = if refused { limiter.shared().probe_patience } else { UNPROBED_US };
        let left = limiter.stop(self.name(), wait, patience_us, &reason).await?;
        self.line.changed();
        Ok(Observed::Suspended { left, guessed, clamped_from })
    }

    /// Refused without a time: the target rests, and the fleet where others were refused, too.
    async fn refuse(
        &self,
        status: u16,
        target: &str,
        steps: Steps,
        profile: &Profile,
        answer: Answer,
    ) -> Result<Observed, Error> {
        let line = &self.line;
        let pause = steps.pause();
        // A target that is refused again and again rests ever longer. How long the fleet stops has nothing
        // to do with that; it grows where the call that goes first is refused again.
        let stop = Steps::default().pause();
        let reason = format!("guessed: {status} without a time, from several");
        let why = Why { reason, by: author() };
        let for_us = us(stop);
        line.doubt();
        let by = number_of(line, target);
        let patience_us = line.shared.probe_patience;
        let refused = line.shared.store.refused(&line.name, by, for_us, patience_us, why).await;
        let refused = line.shared.told(&line.name, refused)?;
        if refused.left_us == 0 {
            return Ok(Observed::BackOff(pause));
        }
        tracing::info!(
            bucket = line.name,
            left_us = refused.left_us,
            "suspended: several were refused without a time, and none has passed"
        );
        line.changed();
        let may_ease = self.adapts && profile.adapts();
        if refused.stops && may_ease && answer == Answer::Refused(Refusal::Rate) {
            let binding = line.binding();
            let scene = self.scene(&binding, line.shared.clock.steady());
            let eased = line.heard().easing.refused(scene, true);
            let policy = eased.map(|policy| (binding, Arc::new(policy)));
            self.tell(Untold { policy, ..Untold::default() }, status);
        }
        let left = micros(refused.left_us);
        Ok(Observed::Suspended { left, guessed: true, clamped_from: None })
    }
}

/// Gives the bucket a policy that was learned, where nobody else has meanwhile.
async fn learn(line: &Arc<Line>, expected: &Policy, policy: Arc<Policy>) -> Result<(), Error> {
    let changed = line.shared.store.set_if(&line.name, expected, &policy).await?;
    if changed {
        tracing::info!(
            bucket = line.name,
            was = %expected,
            now = %policy,
            "another policy was learned from answers"
        );
        line.learned(&policy);
    } else {
        line.heard().learning.learned_nothing(line.shared.clock.steady());
        tracing::debug!(bucket = line.name, %policy, "not learned: its policy is set otherwise");
    }
    Ok(())
}

/// A number for a target in this process, by which the store tells those refused apart.
fn number_of(line: &Line, target: &str) -> u32 {
    // FNV-1a: the same in every process of one name, whichever version it is.
    let bytes = line.shared.one_of.bytes().chain([0]).chain(target.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A reason as a store takes it.
fn shortened(reason: &str) -> String {
    let mut short = String::new();
    for c in reason.chars().filter(|c| !c.is_control()) {
        if short.len() + c.len_utf8() > 256 {
            break;
        }
        short.push(c);
    }
    short
}

impl Line {
    /// Whether an answer without any word may matter: refusals were heard.
    fn has_heard(&self) -> bool {
        self.is_doubted() || !self.heard().back_offs.is_empty()
    }
}
