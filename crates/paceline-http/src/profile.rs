//! What is known of one provider: its quotas, what its headers mean, how it refuses, and which
//! bucket a call belongs to. Profiles are data; `profile/schema.rs` reads them from TOML and checks
//! every value, so a profile that exists is a valid one.

mod bucket;
mod schema;
mod toml;

use http::{HeaderMap, Method, Uri};
use paceline_core::{Micros, Policy, SPAN_MAX_US};

use crate::reading::{Dimension, Reading, Refusal};
use crate::time::Unit;

pub use self::bucket::Placed;
pub(crate) use self::bucket::{AccountFrom, Host, Path};
pub use self::schema::ProfileError;
pub(crate) use self::schema::profiles;

/// The longest suspension that an answer may ask for, where the profile does not say: a day. Some
/// providers mean it (a daily quota is used up); who says more has sent junk, or will be asked
/// again tomorrow.
pub const WAIT_MAX_DEFAULT_US: Micros = 86_400_000_000;

/// What is known of one provider.
#[derive(Debug, Clone)]
pub struct Profile {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) hosts: Vec<Host>,
    pub(crate) counts: String,
    pub(crate) penalty: Option<String>,
    pub(crate) note: Option<String>,
    pub(crate) accounts: Vec<AccountFrom>,
    pub(crate) buckets: Vec<BucketRule>,
    pub(crate) headers: Vec<HeaderRule>,
    /// A bit for each length that a name in `headers` has, so that most headers are passed over at
    /// once.
    pub(crate) header_lengths: u64,
    pub(crate) limits: Vec<LimitRule>,
    pub(crate) refusals: Vec<RefusalRule>,
    pub(crate) bodies: Vec<BodyRule>,
    pub(crate) wait_max_us: Micros,
    pub(crate) adapts: bool,
}

impl Profile {
    /// The name it is asked for by, such as `github`.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert_eq!(Profiles::builtin().generic().name(), "generic");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The provider's name as people write it.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin();
    /// assert_eq!(profiles.get("github").map(|it| it.title()), Some("GitHub REST"));
    /// ```
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The hosts it is for, each perhaps with `*.` before or a path behind it.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin();
    /// let hosts = profiles.get("github").map(|it| it.hosts().collect::<Vec<_>>());
    /// assert_eq!(hosts, Some(vec!["api.github.com"]));
    /// ```
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(Host::text)
    }

    /// How the provider counts, in a sentence, and how sure that is.
    #[must_use]
    pub fn counts(&self) -> &str {
        &self.counts
    }

    /// What it does to those who go on.
    #[must_use]
    pub fn penalty(&self) -> Option<&str> {
        self.penalty.as_deref()
    }

    /// What else one should know.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Its documented quotas, and which calls each is for; the first that fits a call is its own.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin();
    /// let slack = profiles.get("slack").ok_or("it is built in")?;
    /// assert!(slack.buckets().iter().all(|bucket| bucket.source.starts_with("https://")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn buckets(&self) -> &[BucketRule] {
        &self.buckets
    }

    /// What its headers mean beyond the rules that hold for all.
    #[must_use]
    pub fn headers(&self) -> &[HeaderRule] {
        &self.headers
    }

    /// Which of its answers are refusals beyond the rules that hold for all.
    #[must_use]
    pub fn refusals(&self) -> &[RefusalRule] {
        &self.refusals
    }

    /// The longest suspension that its answers may ask for, in microseconds.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert_eq!(Profiles::builtin().generic().wait_max_us(), 86_400_000_000);
    /// ```
    #[must_use]
    pub fn wait_max_us(&self) -> Micros {
        self.wait_max_us
    }

    /// The same profile with another longest suspension, in microseconds. What is negative is 0,
    /// what is beyond ten years is ten years.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profile = Profiles::builtin().generic().clone().with_wait_max_us(60_000_000);
    /// assert_eq!(profile.wait_max_us(), 60_000_000);
    /// ```
    #[must_use]
    pub fn with_wait_max_us(self, wait_max_us: Micros) -> Self {
        Self { wait_max_us: wait_max_us.clamp(0, SPAN_MAX_US), ..self }
    }

    /// Whether what answers say may change the policy of a bucket that allows it. Not where they state
    /// limits that are known to be others than those that refuse.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert!(Profiles::builtin().generic().adapts());
    /// ```
    #[must_use]
    pub fn adapts(&self) -> bool {
        self.adapts
    }

    /// The same profile, whose answers may or may not change policies.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert!(!Profiles::builtin().generic().clone().with_adapts(false).adapts());
    /// ```
    #[must_use]
    pub fn with_adapts(self, adapts: bool) -> Self {
        Self { adapts, ..self }
    }

    /// The bucket that a call belongs to, and the quota it begins with. Equal calls give equal
    /// names in every process. A secret is in the name as a short hash and never as itself.
    ///
    /// ```
    /// use http::{HeaderMap, Method};
    /// use paceline_http::Profiles;
    ///
    /// let profiles = Profiles::builtin();
    /// let uri = "https://api.github.com/search/issues?q=pace".parse()?;
    /// let mut headers = HeaderMap::new();
    /// headers.insert("authorization", "Bearer ghp_secret".parse()?);
    /// let github = profiles.for_uri(&uri);
    /// let placed = github.bucket_of(&Method::GET, &uri, &headers);
    /// assert!(placed.bucket.starts_with("github:search:"));
    /// assert!(!placed.bucket.contains("secret"));
    /// assert!(placed.policy.to_string().contains("30/m"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn bucket_of(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Placed<'_> {
        bucket::place(self, method, uri, headers, None, None)
    }

    /// The same for an account that the caller names: where tokens are renewed while the account
    /// stays the same, the account is what the provider counts.
    ///
    /// ```
    /// # use http::{HeaderMap, Method};
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin();
    /// let uri = "https://api.github.com/user".parse()?;
    /// let github = profiles.for_uri(&uri);
    /// let placed = github.bucket_for(&Method::GET, &uri, &HeaderMap::new(), "octocat");
    /// assert_eq!(placed.bucket, "github:core:octocat");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn bucket_for(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        account: &str,
    ) -> Placed<'_> {
        bucket::place(self, method, uri, headers, Some(account), None)
    }

    /// The bucket that the answer says the call belonged to: some providers name it in the answer
    /// only. The same as before where it names none that the profile knows.
    ///
    /// ```
    /// # use http::{HeaderMap, Method};
    /// # use paceline_http::{Profiles, read};
    /// let profiles = Profiles::builtin();
    /// let uri = "https://discord.com/api/v10/channels/1/messages".parse()?;
    /// let discord = profiles.for_uri(&uri);
    /// let mut answer = HeaderMap::new();
    /// answer.insert("x-ratelimit-bucket", "abcd1234".parse()?);
    /// answer.insert("x-ratelimit-remaining", "4".parse()?);
    /// let reading = read(200, &answer, None, 0, discord);
    /// let placed = discord.bucket_after(&Method::POST, &uri, &HeaderMap::new(), None, &reading);
    /// assert!(placed.bucket.contains("abcd1234"), "{}", placed.bucket);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn bucket_after(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        account: Option<&str>,
        reading: &Reading<'_>,
    ) -> Placed<'_> {
        let name = reading.binding().map(|limit| limit.name.as_ref());
        bucket::place(self, method, uri, headers, account, name.filter(|name| !name.is_empty()))
    }

    /// Whether the body of an answer with this status may tell what its headers do not: whether the
    /// call was refused, for how long, or what is left. Where it cannot, nobody need read it.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin();
    /// let graphql = profiles.get("github-graphql").ok_or("it is built in")?;
    /// assert!(graphql.reads_body(200) && !profiles.generic().reads_body(200));
    /// assert!(profiles.generic().reads_body(403));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn reads_body(&self, status: u16) -> bool {
        // How long to wait is of no use where nobody was refused.
        let is_success = (100..400).contains(&status);
        let tells = |rule: &BodyRule| !(is_success && rule.means == BodyMeans::RetryAfter);
        self.refusals.iter().any(|rule| {
            !rule.body.is_empty() && (rule.status.is_empty() || rule.status.contains(&status))
        }) || self.bodies.iter().any(tells)
    }

    pub(crate) fn header_rule(&self, name: &str) -> Option<&HeaderRule> {
        if self.header_lengths & length_bit(name) == 0 {
            return None;
        }
        self.headers.iter().find(|rule| rule.name == name)
    }

    /// What is documented of a limit that answers tell by this name.
    pub(crate) fn limit_rule(&self, name: &str) -> Option<&LimitRule> {
        self.limits.iter().find(|rule| rule.name == name || rule.name == "*")
    }
}

/// The bit for a name's length; very long ones share the last.
pub(crate) fn length_bit(name: &str) -> u64 {
    1 << name.len().min(63)
}

/// A quota that is documented, and the calls it is for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BucketRule {
    /// The bucket's name, with `{account}`, `{host}`, `{method}`, `{resource}` and what the path
    /// names in braces.
    pub name: String,
    /// The documented quota, in the shape that suits how the provider counts.
    pub policy: Policy,
    /// The policy as the profile writes it (`strict 5000/h`).
    pub policy_text: String,
    /// When the source said so, as `YYYY-MM-DD`.
    pub date: String,
    /// Where it is documented.
    pub source: String,
    /// How sure it is.
    pub grade: Grade,
    /// What else one should know of it.
    pub note: Option<String>,
    pub(crate) methods: Vec<Method>,
    pub(crate) path: Option<Path>,
    pub(crate) is_signed: Option<bool>,
    pub(crate) resource: Option<String>,
}

impl BucketRule {
    /// The methods it is for; none means all.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The pattern of paths it is for; none means all.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_ref().map(Path::text)
    }

    /// Whether it is only for calls with an account (true) or only for those without (false).
    #[must_use]
    pub fn is_signed(&self) -> Option<bool> {
        self.is_signed
    }

    /// The name by which answers tell that a call belonged here.
    #[must_use]
    pub fn resource(&self) -> Option<&str> {
        self.resource.as_deref()
    }
}

/// How sure a fact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grade {
    /// The provider documents it.
    Documented,
    /// It is in the provider's own source.
    Source,
    /// Clients and notes of others say so.
    Clients,
    /// Somebody measured it.
    Measured,
    /// Background knowledge: a hint.
    Hearsay,
}

impl Grade {
    pub(crate) const NAMES: [(&'static str, Self); 5] = [
        ("documented", Self::Documented),
        ("source", Self::Source),
        ("clients", Self::Clients),
        ("measured", Self::Measured),
        ("hearsay", Self::Hearsay),
    ];

    /// One word for it, as profiles spell it.
    ///
    /// ```
    /// use paceline_http::Grade;
    /// assert_eq!(Grade::Clients.name(), "clients");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }
}

/// What one header means, where the rules for all do not say it or say it wrongly.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HeaderRule {
    /// The header's name in lower case.
    pub name: String,
    /// What it tells.
    pub means: HeaderMeans,
    /// How its plain numbers are meant, where it is a time.
    pub unit: Unit,
    /// The limit it tells of; empty for the one without a name.
    pub limit: String,
    /// What that counts.
    pub dimension: Option<Dimension>,
    /// Its window in microseconds.
    pub window_us: Option<Micros>,
}

/// What a header tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderMeans {
    /// How many in a window.
    Limit,
    /// How many are left.
    Remaining,
    /// How many were used.
    Used,
    /// When it is full again.
    Reset,
    /// The window.
    Window,
    /// A `Retry-After` whose numbers are meant as `unit` says.
    RetryAfter,
    /// What the call has cost.
    Cost,
    /// The name of the limit that unnamed numbers belong to.
    Resource,
    /// The provider's word for what was exceeded.
    Scope,
    /// `32/40`: used of how many.
    UsedOfLimit,
    /// `api-usage=18/5000; other=17/250`.
    Usages,
    /// `name;46,other;0`: what is left under each name.
    NamedCounts,
    /// A JSON object of parts of a hundred.
    Percentages,
    /// Nothing, whatever its name looks like.
    Nothing,
}

impl HeaderMeans {
    pub(crate) const NAMES: [(&'static str, Self); 14] = [
        ("limit", Self::Limit),
        ("remaining", Self::Remaining),
        ("used", Self::Used),
        ("reset", Self::Reset),
        ("window", Self::Window),
        ("retry-after", Self::RetryAfter),
        ("cost", Self::Cost),
        ("resource", Self::Resource),
        ("scope", Self::Scope),
        ("used-of-limit", Self::UsedOfLimit),
        ("usages", Self::Usages),
        ("named-counts", Self::NamedCounts),
        ("percentages", Self::Percentages),
        ("nothing", Self::Nothing),
    ];

    /// One word for it, as profiles spell it.
    ///
    /// ```
    /// use paceline_http::HeaderMeans;
    /// assert_eq!(HeaderMeans::UsedOfLimit.name(), "used-of-limit");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }
}

/// What is documented of a limit that answers tell of without saying it.
#[derive(Debug, Clone)]
pub(crate) struct LimitRule {
    pub(crate) name: String,
    pub(crate) window_us: Option<Micros>,
    pub(crate) dimension: Option<Dimension>,
}

/// An answer that means something else than the rules for all say.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RefusalRule {
    /// The statuses; none means all.
    pub status: Vec<u16>,
    /// A header, and words that its value holds, in lower case.
    pub header: Option<(String, String)>,
    /// Words in lower case, one of which the body holds; none means any body.
    pub body: Vec<String>,
    /// What it means; `None` where it is no refusal at all.
    pub means: Option<Refusal>,
    /// How long to stop where no time is stated: microseconds, and as the profile writes it.
    pub wait: Option<(Micros, String)>,
    /// To be longer each time.
    pub grows: bool,
}

/// Something that only the body tells.
#[derive(Debug, Clone)]
pub(crate) struct BodyRule {
    pub(crate) key: Option<String>,
    pub(crate) after: Option<String>,
    pub(crate) means: BodyMeans,
    pub(crate) unit: Unit,
    pub(crate) limit: String,
    pub(crate) dimension: Option<Dimension>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyMeans {
    RetryAfter,
    Limit,
    Remaining,
    Reset,
    Cost,
    Requested,
    RestoredPerSecond,
}

impl BodyMeans {
    pub(crate) const NAMES: [(&'static str, Self); 7] = [
        ("retry-after", Self::RetryAfter),
        ("limit", Self::Limit),
        ("remaining", Self::Remaining),
        ("reset", Self::Reset),
        ("cost", Self::Cost),
        ("requested", Self::Requested),
        ("restored-per-second", Self::RestoredPerSecond),
    ];
}
