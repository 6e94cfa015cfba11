//! Fields of a TOML table, taken one by one: each with its type and what is allowed, and nothing
//! left over. The messages name file, profile, field and value, which derived readers do not.

use toml::{Table, Value};

use super::ProfileError;

/// A table that is being read, and where it stands.
#[derive(Debug)]
pub(super) struct Fields {
    /// Such as `own.toml: profile "ours": bucket 2`.
    place: String,
    table: Table,
    /// All that were asked for, for the message about one that was not.
    known: Vec<&'static str>,
}

impl Fields {
    pub(super) fn new(place: String, table: Table) -> Self {
        Self { place, table, known: Vec::new() }
    }

    /// Names the table once its name is known.
    pub(super) fn at(self, place: String) -> Self {
        Self { place, ..self }
    }

    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.table.remove(field)
    }

    /// A refusal of a field's value.
    pub(super) fn refuse(
        &self,
        field: &str,
        value: impl std::fmt::Display,
        allowed: &str,
    ) -> ProfileError {
        ProfileError(format!("{}: {field}: {value}: {allowed}", self.place))
    }

    fn missing(&self, field: &str, allowed: &str) -> ProfileError {
        ProfileError(format!("{}: {field} is missing: {allowed}", self.place))
    }

    /// A text that is not empty.
    pub(super) fn text(
        &mut self,
        field: &'static str,
        allowed: &str,
    ) -> Result<String, ProfileError> {
        self.text_or_none(field, allowed)?.ok_or_else(|| self.missing(field, allowed))
    }

    pub(super) fn text_or_none(
        &mut self,
        field: &'static str,
        allowed: &str,
    ) -> Result<Option<String>, ProfileError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(other) => Err(self.refuse(field, told(&other), allowed)),
        }
    }

    /// A text that `parse` reads, where there is one.
    pub(super) fn parsed<T>(
        &mut self,
        field: &'static str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ProfileError> {
        let Some(text) = self.text_or_none(field, allowed)? else { return Ok(None) };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(self.refuse(field, format!("{text:?}"), allowed)),
        }
    }

    /// One of these words, where there is one.
    pub(super) fn word<T: Copy>(
        &mut self,
        field: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ProfileError> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let allowed = format!("one of {}", names.join(", "));
        self.parsed(field, &allowed, |text| {
            words.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
        })
    }

    /// The same, and there must be one.
    pub(super) fn word_needed<T: Copy>(
        &mut self,
        field: &'static str,
        words: &[(&str, T)],
    ) -> Result<T, ProfileError> {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        let allowed = format!("one of {}", names.join(", "));
        self.word(field, words)?.ok_or_else(|| self.missing(field, &allowed))
    }

    /// A list of texts, each read by `parse`; none where it is left out.
    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Vec<T>, ProfileError> {
        let items = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.refuse(field, told(&other), allowed)),
        };
        let read = |item: Value| match item.as_str().and_then(&parse) {
            Some(value) => Ok(value),
            None => Err(self.refuse(field, told(&item), allowed)),
        };
        items.into_iter().map(read).collect()
    }

    /// A list of whole numbers in a range.
    pub(super) fn numbers(
        &mut self,
        field: &'static str,
        allowed: &str,
        range: std::ops::RangeInclusive<u16>,
    ) -> Result<Vec<u16>, ProfileError> {
        let items = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.refuse(field, told(&other), allowed)),
        };
        let read = |item: Value| {
            let number = item.as_integer().and_then(|number| u16::try_from(number).ok());
            number
                .filter(|number| range.contains(number))
                .ok_or_else(|| self.refuse(field, told(&item), allowed))
        };
        items.into_iter().map(read).collect()
    }

    /// True or false, where there is one.
    pub(super) fn flag(&mut self, field: &'static str) -> Result<Option<bool>, ProfileError> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.refuse(field, told(&other), "true or false")),
        }
    }

    /// The tables under `[[…field]]`, each with its place.
    pub(super) fn tables(&mut self, field: &'static str) -> Result<Vec<Self>, ProfileError> {
        let allowed = format!("a list of tables, each begun with [[profile.{field}]]");
        let items = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(self.refuse(field, told(&other), &allowed)),
        };
        let read = |(at, item): (usize, Value)| match item {
            Value::Table(table) => {
                Ok(Self::new(format!("{}: {field} {}", self.place, at + 1), table))
            }
            other => Err(self.refuse(field, told(&other), &allowed)),
        };
        items.into_iter().enumerate().map(read).collect()
    }

    /// Refuses what nobody asked for: a word misspelled would else do nothing, silently.
    pub(super) fn end(self) -> Result<(), ProfileError> {
        match self.table.iter().next() {
            None => Ok(()),
            Some((field, value)) => {
                let allowed = format!("there is no such field, only {}", self.known.join(", "));
                Err(self.refuse(field, told(value), &allowed))
            }
        }
    }
}

/// A value as a message shows it.
fn told(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(moment) => moment.to_string(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a table".to_owned(),
    }
}
