//! All profiles: those that come with the crate, and a user's own on top.

use std::sync::OnceLock;

use http::Uri;
use paceline_core::Micros;

use crate::profile::{Profile, ProfileError, profiles};

/// The profiles of the crate, as the text that a user's own file is written like.
///
/// ```
/// assert!(paceline_http::PROFILES.contains("[[profile]]"));
/// ```
pub const PROFILES: &str = include_str!("../profiles.toml");

/// The profile that serves everybody who has none.
const GENERIC: &str = "generic";

/// Profiles by name and by host.
///
/// ```
/// use paceline_http::Profiles;
///
/// let profiles = Profiles::builtin().clone().with(
///     r#"
///     [[profile]]
///     name = "ours"
///     title = "Our own service"
///     hosts = ["api.example.com"]
///     counts = "a fixed minute"
///     [[profile.bucket]]
///     name = "ours"
///     policy = "window 600/m guard 60ms"
///     date = "2026-12-01"
///     source = "https://example.com/limits"
///     grade = "documented"
///     "#,
///     "ours.toml",
/// )?;
/// assert_eq!(profiles.for_uri(&"https://api.example.com/x".parse()?).name(), "ours");
/// assert_eq!(profiles.for_uri(&"https://example.org/".parse()?).name(), "generic");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Profiles {
    all: Vec<Profile>,
    generic: usize,
}

impl Profiles {
    /// Those that come with the crate, read once.
    ///
    /// # Panics
    /// Never, for a test reads the same text.
    ///
    /// ```
    /// use paceline_http::Profiles;
    /// assert!(Profiles::builtin().iter().count() > 27);
    /// ```
    #[must_use]
    #[expect(clippy::panic, reason = "the text is the crate's own, and a test reads it")]
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Profiles> = OnceLock::new();
        BUILTIN.get_or_init(|| match profiles(PROFILES, "profiles.toml") {
            Ok(all) => match all.iter().position(|profile| profile.name == GENERIC) {
                Some(generic) => Self { all, generic },
                None => panic!("profiles.toml has no profile \"generic\""),
            },
            Err(error) => panic!("{error}"),
        })
    }

    /// These and those of a text of the same form, which replace what has their name. `file` is
    /// what errors call the text.
    ///
    /// # Errors
    /// When the text is no TOML, a field is missing or unknown, or a value is not allowed; the
    /// message names file, profile, field, value and what is allowed.
    ///
    /// ```
    /// use paceline_http::Profiles;
    /// let error = Profiles::builtin().clone().with("[[profile]]\nname = 5", "own.toml");
    /// assert!(error.unwrap_err().to_string().starts_with("own.toml: profile 1: name: 5"));
    /// ```
    pub fn with(mut self, text: &str, file: &str) -> Result<Self, ProfileError> {
        for profile in profiles(text, file)? {
            match self.all.iter_mut().find(|it| it.name == profile.name) {
                Some(it) => *it = profile,
                None => self.all.push(profile),
            }
        }
        Ok(self)
    }

    /// All of them with another longest suspension, in microseconds; see
    /// [`Profile::with_wait_max_us`].
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin().clone().with_wait_max_us(1_000);
    /// assert!(profiles.iter().all(|profile| profile.wait_max_us() == 1_000));
    /// ```
    #[must_use]
    pub fn with_wait_max_us(self, wait_max_us: Micros) -> Self {
        let all = self.all.into_iter().map(|it| it.with_wait_max_us(wait_max_us)).collect();
        Self { all, ..self }
    }

    /// The profile of this name.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert!(Profiles::builtin().get("stripe").is_some());
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.all.iter().find(|profile| profile.name == name)
    }

    /// The profile for everybody who has none.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert_eq!(Profiles::builtin().generic().hosts().count(), 0);
    /// ```
    #[must_use]
    pub fn generic(&self) -> &Profile {
        &self.all[self.generic]
    }

    /// The profile whose host (and path) fits best, else the generic one.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// let profiles = Profiles::builtin();
    /// let name = |uri: &str| Some(profiles.for_uri(&uri.parse().ok()?).name().to_owned());
    /// assert_eq!(name("https://api.github.com/graphql").as_deref(), Some("github-graphql"));
    /// assert_eq!(name("https://api.github.com/user").as_deref(), Some("github"));
    /// ```
    #[must_use]
    pub fn for_uri(&self, uri: &Uri) -> &Profile {
        let Some(host) = uri.host() else { return self.generic() };
        let host = host.trim_end_matches('.');
        let fit = |profile: &Profile| {
            profile.hosts.iter().filter_map(|it| it.fit(host, uri.path())).max()
        };
        let mut best: Option<(usize, &Profile)> = None;
        for profile in &self.all {
            if let Some(fit) = fit(profile)
                && best.is_none_or(|(other, _)| fit > other)
            {
                best = Some((fit, profile));
            }
        }
        best.map_or_else(|| self.generic(), |(_, profile)| profile)
    }

    /// All of them, in the order of the file.
    ///
    /// ```
    /// # use paceline_http::Profiles;
    /// assert!(Profiles::builtin().iter().any(|profile| profile.name() == "discord"));
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.all.iter()
    }
}
