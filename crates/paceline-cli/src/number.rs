//! Whole numbers as flags' values. What is not allowed is told with what is; the flag and the value
//! are named by whoever asks. Flags with such values and with spans take ones that begin with a
//! hyphen, too, so that `-1` is told to be a wrong number rather than an unknown flag.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A parser of the whole numbers of this range. Say `whole::<u16>` where the numbers do not tell
/// their type: of another than the flag's, it fails only when the flag is read.
pub(crate) fn whole<N>(allowed: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Clone,
{
    move |text| match text.parse() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => Err(format!("write a whole number from {} to {}", allowed.start(), allowed.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_the_range_is_taken_and_all_else_is_told_what_the_range_is() {
        let few = whole(1..=200_u16);
        assert_eq!((few("1"), few("200")), (Ok(1), Ok(200)));
        for text in ["0", "201", "-1", "65536", "99999999999999999999999", "1.5", "nan", "", " 1"] {
            assert_eq!(few(text), Err("write a whole number from 1 to 200".to_owned()), "{text}");
        }
    }
}
