//! Values of a processor's JSON files, with errors that name the key and what was expected.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("{key:?} is {found}; expected {expected}")]
    Wrong { key: String, found: String, expected: String },
    /// In the file beside the processor's own.
    #[error("{key:?} in {file} is {found}; expected {expected}")]
    Beside { file: &'static str, key: String, found: String, expected: String },
    #[error("{0}")]
    Contradiction(String),
}

impl SettingsError {
    /// The value stands in `file`.
    pub fn beside(self, file: &'static str) -> SettingsError {
        match self {
            SettingsError::Wrong { key, found, expected } => SettingsError::Beside { file, key, found, expected },
            other @ (SettingsError::Beside { .. } | SettingsError::Contradiction(_)) => other,
        }
    }
}

/// One file's object. A key that is absent or null has its default.
#[derive(Debug, Clone, Copy)]
pub struct Keys<'a>(pub &'a Value);

impl<'a> Keys<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// `else` names what other values than the default mean to the reference; they are read, not guessed.
    fn read<T>(
        &self,
        key: &str,
        default: T,
        expected: &str,
        of: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<T, SettingsError> {
        let Some(found) = self.get(key) else { return Ok(default) };
        let wrong = || SettingsError::Wrong { key: key.into(), found: found.to_string(), expected: expected.into() };
        of(found).ok_or_else(wrong)
    }

    /// A number of things, at least `least`.
    pub fn count(&self, key: &str, default: usize, least: usize) -> Result<usize, SettingsError> {
        let of = |value: &Value| count(value).filter(|n| *n >= least);
        self.read(key, default, &format!("an integer from {least} to {MOST}"), of)
    }

    pub fn counts<const N: usize>(
        &self,
        key: &str,
        default: [usize; N],
        least: usize,
    ) -> Result<[usize; N], SettingsError> {
        let of = |value: &Value| -> Option<[usize; N]> {
            let items: Option<Vec<usize>> =
                value.as_array()?.iter().map(|item| count(item).filter(|n| *n >= least)).collect();
            items?.try_into().ok()
        };
        self.read(key, default, &format!("{N} integers from {least} to {MOST}"), of)
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool, SettingsError> {
        self.read(key, default, "true or false", Value::as_bool)
    }

    /// A flag that may say nothing.
    pub fn maybe(&self, key: &str) -> Result<Option<bool>, SettingsError> {
        self.read(key, None, "true or false", |value| value.as_bool().map(Some))
    }

    pub fn number(&self, key: &str, default: f64) -> Result<f64, SettingsError> {
        self.read(key, default, "a number above 0", |value| value.as_f64().filter(|x| x.is_finite() && *x > 0.0))
    }

    pub fn numbers<const N: usize>(&self, key: &str, default: [f64; N]) -> Result<[f64; N], SettingsError> {
        let of = |value: &Value| -> Option<[f64; N]> {
            let items: Option<Vec<f64>> =
                value.as_array()?.iter().map(|item| item.as_f64().filter(|x| x.is_finite())).collect();
            items?.try_into().ok()
        };
        self.read(key, default, &format!("{N} numbers"), of)
    }

    /// `{"height": N, "width": N}`
    pub fn square(&self, key: &str, default: usize) -> Result<usize, SettingsError> {
        let of = |value: &Value| {
            let side = |name: &str| value.get(name).and_then(count);
            side("height").filter(|height| *height > 0 && Some(*height) == side("width"))
        };
        self.read(key, default, "{\"height\": N, \"width\": N} with equal sides above 0", of)
    }

    /// Refuses every value but `only`.
    pub fn only(&self, key: &str, only: &Value, because: &str) -> Result<(), SettingsError> {
        self.read(key, (), &format!("{only}: {because}"), |value| (value == only).then_some(()))
    }
}

/// No count of a processor is near it; products of two fit everywhere.
const MOST: usize = 1 << 15;

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= MOST)
}
