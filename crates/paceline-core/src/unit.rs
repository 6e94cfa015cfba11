//! What quotas count besides requests, and what a call costs of each: a provider may limit requests
//! and tokens at the same time, and one call takes some of both.

use std::fmt;
use std::str::FromStr;

/// What a quota counts. A call says how much of each unit it takes ([`Cost`]); a quota takes only
/// what is of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Unit {
    /// Calls, or whatever a plain number of them means to the provider.
    #[default]
    Requests,
    /// A language model's tokens, where input and output count together.
    Tokens,
    /// Tokens that go in.
    InputTokens,
    /// Tokens that come out.
    OutputTokens,
    /// Points, as of GraphQL queries.
    Points,
    /// Bytes.
    Bytes,
}

/// How many units there are.
pub(crate) const UNITS: usize = 6;

impl Unit {
    /// All of them.
    pub const ALL: [Self; UNITS] = [
        Self::Requests,
        Self::Tokens,
        Self::InputTokens,
        Self::OutputTokens,
        Self::Points,
        Self::Bytes,
    ];

    /// Its name, as policies and costs write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input-tokens",
            Self::OutputTokens => "output-tokens",
            Self::Points => "points",
            Self::Bytes => "bytes",
        }
    }

    /// What the script and the plans it keeps call it: nothing for requests, so that what counts
    /// nothing else is written as it always was.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::Requests => "",
            Self::Tokens => "t",
            Self::InputTokens => "i",
            Self::OutputTokens => "o",
            Self::Points => "p",
            Self::Bytes => "y",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }

    /// The names, for words of refusal.
    pub(crate) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Unit {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let named = Self::ALL.into_iter().find(|unit| unit.name() == text);
        named.ok_or_else(|| CostError {
            value: text.to_owned(),
            allowed: format!("a unit is one of {}", Self::names()),
        })
    }
}

/// What one call takes: an amount of each unit. A plain number is so many requests.
///
/// A quota of a unit of which the call takes nothing does not hold it up, and is not charged.
///
/// Its text form parses and prints: a number of requests, 1 where none is written, and others as
/// `UNIT=NUMBER`, joined by commas.
///
/// ```
/// use paceline_core::{Cost, Unit};
///
/// let cost = Cost::requests(1).and(Unit::Tokens, 4_000);
/// assert_eq!(cost.of(Unit::Tokens), 4_000);
/// assert_eq!(cost.to_string(), "1,tokens=4000");
/// assert_eq!("tokens=4000".parse::<Cost>()?, cost);
/// assert_eq!(Cost::from(5), Cost::requests(5));
/// # Ok::<(), paceline_core::CostError>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
// Copied some times on the way of each call: in whole words, which is a tenth of its time.
#[repr(align(8))]
pub struct Cost {
    amounts: [u32; UNITS],
    /// A bit for each unit that was named, be it with 0.
    named: u8,
}

impl Cost {
    /// So many requests.
    #[must_use]
    pub const fn requests(amount: u32) -> Self {
        Self { amounts: [amount, 0, 0, 0, 0, 0], named: 1 }
    }

    /// An amount of one unit, and nothing of others.
    #[must_use]
    pub fn only(unit: Unit, amount: u32) -> Self {
        Self::default().and(unit, amount)
    }

    /// The same, with another amount of `unit`.
    #[must_use]
    pub fn and(mut self, unit: Unit, amount: u32) -> Self {
        self.amounts[unit.index()] = amount;
        self.named |= 1 << unit.index();
        self
    }

    /// The amount of a unit; 0 where it takes none.
    #[must_use]
    pub fn of(&self, unit: Unit) -> u32 {
        self.amounts[unit.index()]
    }

    /// The amount of a unit that was named, be it with 0.
    #[must_use]
    pub fn named(&self, unit: Unit) -> Option<u32> {
        (self.named & 1 << unit.index() != 0).then(|| self.of(unit))
    }

    /// Whether it takes nothing of anything.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.amounts.iter().fold(0, |all, amount| all | amount) == 0
    }

    /// Whether it takes nothing but requests.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.amounts[1..].iter().fold(0, |all, amount| all | amount) == 0
    }

    /// Of each unit the lesser amount.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        self.with_each(other, u32::min)
    }

    /// Of each unit what is more than the other's.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        self.with_each(other, u32::saturating_sub)
    }

    /// Of each unit both amounts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with_each(other, u32::saturating_add)
    }

    /// Of each unit what was named, and of others what the other takes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let missing = Unit::ALL.into_iter().filter(|unit| self.named(*unit).is_none());
        missing.fold(self, |cost, unit| cost.and(unit, other.of(unit)))
    }

    fn with_each(mut self, other: Self, of: impl Fn(u32, u32) -> u32) -> Self {
        for (amount, other) in self.amounts.iter_mut().zip(other.amounts) {
            *amount = of(*amount, other);
        }
        self
    }

    /// The amount for the decision.
    pub(crate) fn tokens(&self, unit: Unit) -> i64 {
        i64::from(self.of(unit))
    }
}

impl PartialEq for Cost {
    fn eq(&self, other: &Self) -> bool {
        self.amounts == other.amounts
    }
}

impl Eq for Cost {}

impl From<u32> for Cost {
    fn from(requests: u32) -> Self {
        Self::requests(requests)
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.of(Unit::Requests))?;
        for unit in &Unit::ALL[1..] {
            if self.of(*unit) > 0 {
                write!(f, ",{unit}={}", self.of(*unit))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Cost {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let refused = || CostError {
            value: text.to_owned(),
            allowed: format!(
                "a cost is a whole number from 1 to {}, amounts of units such as `1,tokens=4000`, or \
                 both; units are {}",
                u32::MAX,
                Unit::names()
            ),
        };
        let mut cost = Self::default();
        for part in text.split(',') {
            let (unit, amount) = match part.split_once('=') {
                Some((name, amount)) => (name.trim().parse().map_err(|_| refused())?, amount),
                None => (Unit::Requests, part),
            };
            let amount = amount.trim();
            let digits = !amount.is_empty() && amount.bytes().all(|byte| byte.is_ascii_digit());
            match amount.parse() {
                Ok(amount) if digits && cost.named(unit).is_none() => cost = cost.and(unit, amount),
                _ => return Err(refused()),
            }
        }
        if cost.named(Unit::Requests).is_none() {
            cost = cost.and(Unit::Requests, 1);
        }
        if cost.is_nothing() { Err(refused()) } else { Ok(cost) }
    }
}

/// Why a unit or a cost was refused: the value, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?}: {allowed}")]
pub struct CostError {
    value: String,
    allowed: String,
}

/// Sums of costs, for estimates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts([i64; UNITS]);

impl Amounts {
    pub(crate) fn of(&self, unit: Unit) -> i64 {
        self.0[unit.index()]
    }

    pub(crate) fn add(&mut self, cost: Cost) {
        for (sum, amount) in self.0.iter_mut().zip(cost.amounts) {
            *sum += i64::from(amount);
        }
    }

    pub(crate) fn take(&mut self, cost: Cost) {
        for (sum, amount) in self.0.iter_mut().zip(cost.amounts) {
            *sum -= i64::from(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_read_as_it_is_printed() {
        for (text, cost) in [
            ("1", Cost::requests(1)),
            ("4294967295", Cost::requests(u32::MAX)),
            ("1,tokens=4000", Cost::requests(1).and(Unit::Tokens, 4_000)),
            (
                "0,input-tokens=7,output-tokens=9",
                Cost::only(Unit::InputTokens, 7).and(Unit::OutputTokens, 9),
            ),
            ("2,points=3,bytes=5", Cost::requests(2).and(Unit::Bytes, 5).and(Unit::Points, 3)),
        ] {
            assert_eq!(text.parse::<Cost>(), Ok(cost));
            assert_eq!(cost.to_string(), text);
        }
        assert_eq!(" 3 , tokens = 2".parse::<Cost>(), Ok(Cost::requests(3).and(Unit::Tokens, 2)));
        assert_eq!("requests=3".parse::<Cost>(), Ok(Cost::requests(3)));
    }

    #[test]
    fn a_bad_cost_is_refused_with_what_is_allowed() {
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "4294967296",
            "1,2",
            "tokens",
            "tokens=",
            "words=3",
            "tokens=1,tokens=2",
            "1,",
            "0,tokens=0",
        ] {
            let message = text.parse::<Cost>().unwrap_err().to_string();
            assert!(message.starts_with(&format!("{text:?}: ")), "{message}");
            assert!(message.contains("from 1 to 4294967295") && message.contains("input-tokens"));
        }
        let message = "words".parse::<Unit>().unwrap_err().to_string();
        assert!(message.contains("requests, tokens"), "{message}");
    }

    #[test]
    fn what_is_named_with_nothing_is_named() {
        let cost = Cost::only(Unit::Tokens, 0);
        assert_eq!((cost.named(Unit::Tokens), cost.named(Unit::Requests)), (Some(0), None));
        assert!(cost.is_nothing() && cost.is_plain());
        let (more, less) =
            (Cost::requests(5).and(Unit::Tokens, 7), Cost::requests(9).and(Unit::Tokens, 3));
        assert_eq!(more.least(less), Cost::requests(5).and(Unit::Tokens, 3));
        assert_eq!(more.less(less), Cost::only(Unit::Tokens, 4));
    }
}
