//! Decimal numbers as headers write them, in whole millionths: `5`, `2.0`, `1.939`, `-3`.
//!
//! Floats would lose microseconds of moments and turn `1e3` and `NaN` into values that nobody
//! meant. What is finer than a millionth is rounded up: a wait must not end early. Huge numbers
//! saturate.

/// A number without sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// The part before the point.
    pub(crate) whole: u64,
    /// The part after it in millionths, 0 to 1 000 000 (a million where rounding up filled it).
    pub(crate) millionths: u32,
}

impl Decimal {
    /// Reads digits, perhaps with a point and more digits; nothing before or after.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (number, rest) = Self::leading(text)?;
        rest.is_empty().then_some(number)
    }

    /// Reads a number at the beginning, and hands back what follows it.
    pub(crate) fn leading(text: &str) -> Option<(Self, &str)> {
        let bytes = text.as_bytes();
        let (mut whole, mut at) = (0_u64, 0);
        while let Some(digit) = digit(bytes, at) {
            whole = whole.saturating_mul(10).saturating_add(u64::from(digit));
            at += 1;
        }
        if at == 0 {
            return None;
        }
        let mut millionths = 0;
        if bytes.get(at) == Some(&b'.') && digit(bytes, at + 1).is_some() {
            at += 1;
            let (mut weight, mut is_finer) = (100_000, false);
            while let Some(digit) = digit(bytes, at) {
                millionths += u32::from(digit) * weight;
                is_finer |= weight == 0 && digit > 0;
                weight /= 10;
                at += 1;
            }
            millionths += u32::from(is_finer);
        }
        Some((Self { whole, millionths }, &text[at..]))
    }

    /// This many units of `unit_us` microseconds (at most a day), rounded up, at most `i64::MAX`.
    pub(crate) fn times(self, unit_us: u64) -> i64 {
        // A million times a day in microseconds is 8.64e16, far from the edge.
        let part = match self.millionths {
            0 => 0,
            millionths => (u64::from(millionths) * unit_us).div_ceil(1_000_000),
        };
        let sum = self.whole.checked_mul(unit_us).and_then(|whole| whole.checked_add(part));
        sum.and_then(|sum| i64::try_from(sum).ok()).unwrap_or(i64::MAX)
    }

    /// The same in units that are smaller than a microsecond: `per_us` of them make one.
    pub(crate) fn parts(self, per_us: u64) -> i64 {
        let up = !self.whole.is_multiple_of(per_us) || self.millionths > 0;
        i64::try_from(self.whole / per_us).unwrap_or(i64::MAX).saturating_add(i64::from(up))
    }
}

fn digit(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| byte - b'0')
}

/// A count of calls, tokens or points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// So many.
    Of(u64),
    /// Less than none, which some providers answer after calls that came at one moment.
    Negative,
}

impl Count {
    /// Reads `100`, `999.0`, `-3`, or the number before the parameters of `100;w=60`. A part of one
    /// is no whole one and is cut off. `-1` says "unknown" or "unlimited" and is no value.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let (number, rest) = Decimal::leading(digits)?;
        if !rest.is_empty() && !rest.trim_ascii_start().starts_with(';') {
            return None;
        }
        match (is_negative, number.whole) {
            (true, 1) if number.millionths == 0 => None,
            (true, _) => Some(Self::Negative),
            (false, whole) => Some(Self::Of(whole)),
        }
    }

    /// What is left: never less than nothing.
    pub(crate) fn or_none_left(self) -> u64 {
        match self {
            Self::Of(count) => count,
            Self::Negative => 0,
        }
    }

    /// A limit: none at all is how some providers say that it is another limit that refused.
    pub(crate) fn as_limit(self) -> Option<u64> {
        match self {
            Self::Of(count) if count > 0 => Some(count),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_to_the_millionth_and_rounded_up_below() {
        let us = |text: &str| Decimal::parse(text).map(|number| number.times(1_000_000));
        assert_eq!(us("1.939"), Some(1_939_000));
        assert_eq!(us("34.074824224"), Some(34_074_825));
        assert_eq!(us("0.0000000"), Some(0));
        assert_eq!(us("0.9999999"), Some(1_000_000));
        assert_eq!(us("9999999999"), Some(9_999_999_999_000_000));
        assert_eq!(us("99999999999999999999999999"), Some(i64::MAX));
        for text in ["", ".5", "5.", "1e3", "NaN", "+5", "-5", " 5", "0x10", "5 s", "٣"] {
            assert_eq!(us(text), None, "{text:?}");
        }
        assert_eq!(Decimal::parse("1500").map(|it| it.parts(1_000)), Some(2));
    }

    #[test]
    fn counts_below_zero_are_nothing_left_and_minus_one_is_unknown() {
        assert_eq!(Count::parse("999.0").map(Count::or_none_left), Some(999));
        assert_eq!(Count::parse("-3").map(Count::or_none_left), Some(0));
        assert_eq!(Count::parse("-1"), None);
        assert_eq!(Count::parse("20;w=21600"), Some(Count::Of(20)));
        assert_eq!(Count::parse("20:1,100:120"), None);
        assert_eq!(Count::parse("0").and_then(Count::as_limit), None);
    }
}
