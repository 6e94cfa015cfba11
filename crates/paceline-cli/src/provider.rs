//! How a provider counts, as a flag's value.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use paceline_sim::{Kind, ProviderError};

/// A parser of these kinds by their names, which lists them in the help.
pub(crate) fn kinds<const N: usize>(kinds: [Kind; N]) -> impl TypedValueParser<Value = Kind> {
    let values = kinds.map(|kind| PossibleValue::new(kind.as_str()).help(kind.about()));
    PossibleValuesParser::new(values)
        .try_map(|name| -> Result<Kind, ProviderError> { name.parse() })
}
