//! What an answer says, in words of our own: the nouns that a reading is made of. They borrow from
//! the answer and the profile, so that reading costs no copies; `into_owned` keeps one.

use std::borrow::Cow;
use std::fmt;

use paceline_core::Micros;

/// A moment in whole microseconds since 1970, on whichever clock the text says.
pub type UnixMicros = Micros;

/// What one answer of a provider says about its limits.
///
/// ```
/// use http::HeaderMap;
/// use paceline_http::{Profiles, read};
///
/// let profiles = Profiles::builtin();
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "1.5".parse()?);
/// let reading = read(429, &headers, None, 1_773_144_000_000_000, profiles.generic());
/// assert!(reading.answer.is_rate());
/// let suspension = reading.suspension.ok_or("a time was stated")?;
/// assert_eq!((suspension.wait_us, &*suspension.raw), (1_500_000, "1.5"));
/// assert_eq!(suspension.source.to_string(), "retry-after");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Reading<'a> {
    /// Whether the call was refused, and why.
    pub answer: Answer,
    /// How long to stop the bucket, where the answer or its profile says so. A refusal without one
    /// is a reason to back off locally, and never to stop the fleet.
    pub suspension: Option<Suspension<'a>>,
    /// The limits it tells, in the order of its headers. Empty where it came from a cache.
    pub limits: Vec<Limit<'a>>,
    /// What the call has cost, where the answer tells: points, units, weight.
    pub cost: Option<u64>,
    /// The provider's own word for what was exceeded or who shares it (`x-ratelimit-scope`,
    /// `ratelimit-reason` and the like).
    pub scope: Option<Cow<'a, str>>,
    /// It was kept by a cache, so what it says of limits is not about now.
    pub is_from_cache: bool,
}

impl<'a> Reading<'a> {
    /// The limit nearest to refusing: among those that are empty the one that comes back last, else
    /// the one with the smallest part left (a percent more or less is no difference). Where nothing
    /// tells them apart it is the first. Bytes and calls in flight are never it, for they do not count calls in time.
    ///
    /// ```
    /// # use http::HeaderMap;
    /// # use paceline_http::{Profiles, read};
    /// let mut headers = HeaderMap::new();
    /// headers.insert("ratelimit", r#""burst";r=4;t=1, "day";r=10;t=9000"#.parse()?);
    /// headers.insert("ratelimit-policy", r#""burst";q=5;w=1, "day";q=5000;w=86400"#.parse()?);
    /// let profiles = Profiles::builtin();
    /// let reading = read(200, &headers, None, 0, profiles.generic());
    /// assert_eq!(reading.binding().ok_or("two")?.name, "day");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn binding(&self) -> Option<&Limit<'a>> {
        self.limits
            .iter()
            .filter(|limit| limit.dimension.is_spent())
            .reduce(|best, limit| if limit.nearness() > best.nearness() { limit } else { best })
    }

    /// Says nothing: not a refusal, no limit, no time.
    ///
    /// ```
    /// # use paceline_http::Reading;
    /// assert!(Reading::default().is_silent());
    /// ```
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.answer == Answer::Passed
            && self.suspension.is_none()
            && self.limits.is_empty()
            && self.cost.is_none()
    }

    /// The same without borrowing from the answer.
    ///
    /// ```
    /// # use http::HeaderMap;
    /// # use paceline_http::{Profiles, Reading, read};
    /// # let profiles = Profiles::builtin();
    /// let kept: Reading<'static> =
    ///     read(429, &HeaderMap::new(), None, 0, profiles.generic()).into_owned();
    /// assert!(kept.answer.is_rate());
    /// ```
    #[must_use]
    pub fn into_owned(self) -> Reading<'static> {
        Reading {
            answer: self.answer,
            suspension: self.suspension.map(Suspension::into_owned),
            limits: self.limits.into_iter().map(Limit::into_owned).collect(),
            cost: self.cost,
            scope: self.scope.map(owned),
            is_from_cache: self.is_from_cache,
        }
    }
}

/// Whether the call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Answer {
    /// Not refused for its pace: a success, or an error of another kind.
    #[default]
    Passed,
    /// Refused, and not executed.
    Refused(Refusal),
}

impl Answer {
    /// Refused because calls come too fast, for us or for everybody.
    ///
    /// ```
    /// use paceline_http::{Answer, Refusal};
    /// assert!(Answer::Refused(Refusal::Overload).is_rate());
    /// assert!(!Answer::Refused(Refusal::Billing).is_rate());
    /// ```
    #[must_use]
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_rate())
    }
}

/// Why a call was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Too many calls, tokens or points in a span of time.
    Rate,
    /// The provider has too much to do, whoever calls: 529, or 503 with Retry-After.
    Overload,
    /// Too many calls at once. Waiting for own calls to end helps, stopping the bucket does not.
    Concurrency,
    /// Somebody else holds what the call wants to change. It alone is to be tried again.
    Lock,
    /// A budget is used up; waiting does not help.
    Billing,
}

impl Refusal {
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("rate", Self::Rate),
        ("overload", Self::Overload),
        ("concurrency", Self::Concurrency),
        ("lock", Self::Lock),
        ("billing", Self::Billing),
    ];

    /// Whether it is about the pace of calls, so that it may stop a bucket.
    ///
    /// ```
    /// use paceline_http::Refusal;
    /// assert!(Refusal::Rate.is_rate() && !Refusal::Lock.is_rate());
    /// ```
    #[must_use]
    pub fn is_rate(self) -> bool {
        matches!(self, Self::Rate | Self::Overload)
    }

    /// One word for it, as profiles spell it.
    ///
    /// ```
    /// use paceline_http::Refusal;
    /// assert_eq!(Refusal::Lock.name(), "lock");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, refusal)| *refusal == self).map_or("", |(name, _)| name)
    }
}

/// How long the bucket is to stop, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Suspension<'a> {
    /// How long from now, in microseconds: 0 to the profile's longest wait. Zero is an answer that
    /// says "at once"; whoever obeys it adds a floor that grows.
    pub wait_us: Micros,
    /// What was asked for, before it was cut to the longest wait.
    pub asked_us: Micros,
    /// The moment it ends on the provider's clock, where a moment was stated rather than a span.
    pub at: Option<UnixMicros>,
    /// The text that said it.
    pub raw: Cow<'a, str>,
    /// Where that stood.
    pub source: Source<'a>,
    /// Whether this answer stated it.
    pub basis: Basis,
    /// To be longer each time, where refusals go on.
    pub grows: bool,
    /// The limit it waits for, as an index into [`Reading::limits`].
    pub limit: Option<usize>,
}

impl Suspension<'_> {
    /// Whether more was asked for than the longest wait.
    ///
    /// ```
    /// # use http::HeaderMap;
    /// # use paceline_http::{Profiles, read};
    /// let mut headers = HeaderMap::new();
    /// headers.insert("retry-after", "9999999999".parse()?);
    /// let profiles = Profiles::builtin();
    /// let reading = read(429, &headers, None, 0, profiles.generic());
    /// let suspension = reading.suspension.ok_or("stated")?;
    /// assert!(suspension.is_clamped());
    /// assert_eq!(suspension.wait_us, 86_400_000_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_clamped(&self) -> bool {
        self.wait_us < self.asked_us
    }

    fn into_owned(self) -> Suspension<'static> {
        Suspension {
            wait_us: self.wait_us,
            asked_us: self.asked_us,
            at: self.at,
            raw: owned(self.raw),
            source: match self.source {
                Source::Header(name) => Source::Header(owned(name)),
                Source::Body(name) => Source::Body(owned(name)),
                Source::Profile => Source::Profile,
            },
            basis: self.basis,
            grows: self.grows,
            limit: self.limit,
        }
    }
}

/// Where a time was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source<'a> {
    /// In the header of this name.
    Header(Cow<'a, str>),
    /// In the body, under this key or after these words.
    Body(Cow<'a, str>),
    /// Nowhere in the answer: in the profile.
    Profile,
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => f.write_str(name),
            Self::Body(name) => write!(f, "body {name:?}"),
            Self::Profile => f.write_str("profile"),
        }
    }
}

/// How sure a time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// This answer states it.
    Stated,
    /// The answer states none; the profile says what such a refusal means. A guess: never to be
    /// passed on as the provider's own word.
    Guessed,
}

/// One limit that an answer tells of. What it does not say is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Limit<'a> {
    /// Its name or the resource it belongs to (`core`, `requests`, `p1`); empty where it has none.
    pub name: Cow<'a, str>,
    /// Whose share it is (`pk` of the IETF drafts).
    pub partition: Option<Cow<'a, str>>,
    /// What it counts.
    pub dimension: Dimension,
    /// How many there are in a window, or how many fit. Never 0: that is how some providers say
    /// that another limit refused.
    pub limit: Option<u64>,
    /// How many are left.
    pub remaining: Option<u64>,
    /// How many were used.
    pub used: Option<u64>,
    /// The window in microseconds, as the answer or the profile tells it.
    pub window_us: Option<Micros>,
    /// From now until it is full again, or until more comes back, in microseconds; 0 to ten years.
    pub reset_us: Option<Micros>,
    /// The moment of that on the provider's clock. Equal for all answers of one window where the
    /// provider states moments, so it tells an old window from a new one.
    pub reset_at: Option<UnixMicros>,
}

impl Limit<'_> {
    /// Whether nothing is left of it.
    ///
    /// ```
    /// # use paceline_http::Limit;
    /// assert!(!Limit::default().is_empty(), "nothing is known of it");
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.remaining == Some(0)
    }

    /// Larger is nearer to refusing; see [`Reading::binding`].
    fn nearness(&self) -> (u8, u64, i64) {
        let reset = self.reset_us.unwrap_or(-1);
        match (self.remaining, self.limit) {
            (Some(0), _) => (4, 0, reset),
            (Some(left), Some(limit)) => {
                let percent = u128::from(left) * 100 / u128::from(limit.max(1));
                (3, 100_u64.saturating_sub(u64::try_from(percent).unwrap_or(100)), reset)
            }
            (Some(left), None) => (2, u64::MAX - left, reset),
            // Stated, and for a refusal that says no more it is the one that refused.
            (None, _) if self.reset_us.is_some() => (2, u64::MAX, reset),
            (None, _) => (1, 0, self.window_us.unwrap_or(0)),
        }
    }

    fn into_owned(self) -> Limit<'static> {
        Limit {
            name: owned(self.name),
            partition: self.partition.map(owned),
            dimension: self.dimension,
            limit: self.limit,
            remaining: self.remaining,
            used: self.used,
            window_us: self.window_us,
            reset_us: self.reset_us,
            reset_at: self.reset_at,
        }
    }
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dimension {
    /// Calls.
    #[default]
    Requests,
    /// Tokens of a language model.
    Tokens,
    /// Points, weights, units, complexity.
    Points,
    /// Bytes of content.
    Bytes,
    /// Calls in flight.
    Concurrency,
    /// Something else.
    Other,
}

impl Dimension {
    pub(crate) const NAMES: [(&'static str, Self); 6] = [
        ("requests", Self::Requests),
        ("tokens", Self::Tokens),
        ("points", Self::Points),
        ("bytes", Self::Bytes),
        ("concurrency", Self::Concurrency),
        ("other", Self::Other),
    ];

    /// One word for it, as profiles spell it.
    ///
    /// ```
    /// use paceline_http::Dimension;
    /// assert_eq!(Dimension::Points.name(), "points");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }

    /// Whether it is used up by calls and comes back with time.
    pub(crate) fn is_spent(self) -> bool {
        !matches!(self, Self::Bytes | Self::Concurrency | Self::Other)
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}
