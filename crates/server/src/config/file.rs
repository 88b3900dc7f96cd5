//! The configuration file: TOML with one key per setting.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use toml::{Spanned, Value};

/// The settings of a file that have not been read yet.
#[derive(Debug, Default)]
pub(super) struct File {
    /// By key, with `-` replaced by `_`.
    settings: BTreeMap<String, Setting>,
}

#[derive(Debug)]
struct Setting {
    /// Line of the key, from 1.
    line: usize,
    value: Value,
}

impl File {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The text is not TOML, or has a duplicate key.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let keys: BTreeMap<Spanned<String>, Value> =
            toml::from_str(text).map_err(|e| e.to_string())?;
        let mut file = Self::default();
        for (key, value) in keys {
            let line = 1 + text[..key.span().start].matches('\n').count();
            let key = key.into_inner().replace('-', "_");
            if let Some(other) = file.settings.insert(key.clone(), Setting { line, value }) {
                return Err(format!("duplicate setting {key}, in lines {} and {line}", other.line));
            }
        }
        Ok(file)
    }

    /// Removes a setting and parses it like its flag.
    pub(super) fn take<T: FromStr<Err: Display>>(
        &mut self,
        key: &str,
    ) -> Result<Option<T>, String> {
        let Some(Setting { line, value }) = self.settings.remove(key) else { return Ok(None) };
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(true) => "on".to_owned(),
            Value::Boolean(false) => "off".to_owned(),
            _ => {
                return Err(format!(
                    "{key}: the value in line {line} is neither a string nor an integer"
                ));
            }
        };
        text.parse().map(Some).map_err(|e| format!("{key}: {e}"))
    }

    /// Returns an error if an unknown key is left.
    pub(super) fn check_unknown_keys(&self) -> Result<(), String> {
        match self.settings.iter().min_by_key(|(_, setting)| setting.line) {
            None => Ok(()),
            Some((key, Setting { line, .. })) => Err(format!(
                "unknown setting {key} in line {line}; `clearway serve --help` lists the settings"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_like_flags() {
        let mut file = File::parse("a-b = \"7\"\nc = 8\nd = true\n").unwrap();
        assert_eq!((file.take("a_b"), file.take("c")), (Ok(Some(7)), Ok(Some(8))));
        assert_eq!((file.take::<u8>("c"), file.take("d")), (Ok(None), Ok(Some("on".to_owned()))));
        assert_eq!(file.check_unknown_keys(), Ok(()));
    }

    #[test]
    fn errors_name_the_key_and_its_line() {
        let refused = |text: &str| {
            let mut file = File::parse(text)?;
            file.take::<u8>("a_b")?;
            file.check_unknown_keys()
        };
        assert_eq!(
            refused("\na-b = 1\na_b = 2\n").unwrap_err(),
            "duplicate setting a_b, in lines 2 and 3"
        );
        assert_eq!(
            refused("a_b = 256").unwrap_err(),
            "a_b: number too large to fit in target type"
        );
        assert_eq!(
            refused("a_b = [1]").unwrap_err(),
            "a_b: the value in line 1 is neither a string nor an integer"
        );
        assert!(refused("x = 1\n\ny = 2").unwrap_err().starts_with("unknown setting x in line 1;"));
        assert!(refused("a_b = ").unwrap_err().contains("line 1"));
    }
}
