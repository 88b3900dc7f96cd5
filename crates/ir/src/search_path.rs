//! `search_path`: the schemas that an unqualified name may refer to.
//!
//! All tables are in schema `public`. Of PostgreSQL's own schemas only the names exist.

use crate::system::SCHEMA;

/// The schema of all tables.
pub const PUBLIC: &str = "public";

/// The schema of the built-in types and functions.
pub const PG_CATALOG: &str = "pg_catalog";

/// All schemas.
const SCHEMAS: [&str; 5] = [PUBLIC, PG_CATALOG, "information_schema", "pg_toast", SCHEMA];

/// The resolved `search_path`: its schemas that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath(Vec<&'static str>);

impl Default for SearchPath {
    /// Returns the path of a session that has not set one.
    fn default() -> Self {
        Self(vec![PUBLIC])
    }
}

impl SearchPath {
    /// Resolves the setting's text for this user. `$user` never resolves to a system schema:
    /// otherwise a user named `clearway` could not create tables.
    pub fn new(text: &str, user: &str) -> Self {
        let found = |name: String| match name.as_str() {
            "$user" => (user == PUBLIC).then_some(PUBLIC),
            name => schema(name),
        };
        Self(names(text).into_iter().filter_map(found).collect())
    }
    /// Returns the schema for new tables with unqualified names; also the result of current_schema.
    pub fn first(&self) -> Option<&'static str> {
        self.0.first().copied()
    }
    /// Returns true if unqualified names can refer to tables.
    pub fn sees_tables(&self) -> bool {
        self.0.contains(&PUBLIC)
    }
}

/// Returns the schema with this name, if it exists.
pub fn schema(name: &str) -> Option<&'static str> {
    SCHEMAS.into_iter().find(|schema| *schema == name)
}

/// Splits a list of identifiers; folds them to lower case unless quoted.
fn names(text: &str) -> Vec<String> {
    let (mut out, mut name, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                name.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(std::mem::take(&mut name)),
            c if !quoted && c.is_whitespace() => {}
            c if quoted => name.push(c),
            c => name.extend(c.to_lowercase()),
        }
    }
    out.push(name);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SearchPath {
        SearchPath::new(text, "me")
    }

    #[test]
    fn unknown_schemas_are_dropped_from_the_path() {
        assert_eq!(path("\"$user\", public"), SearchPath::default());
        assert_eq!(path("nosuch,PG_Catalog , public").0, ["pg_catalog", "public"]);
        assert_eq!(path("\"Public\", \"a,\"\"b\"").0, [""; 0]);
        assert_eq!(path("\"\"").first(), None);
        assert!(!path("pg_catalog").sees_tables());
    }

    #[test]
    fn user_never_resolves_to_a_system_schema() {
        for user in [SCHEMA, PG_CATALOG, "information_schema", "pg_toast", "me"] {
            assert_eq!(SearchPath::new("\"$user\", public", user), SearchPath::default());
        }
        assert_eq!(SearchPath::new("\"$user\"", PUBLIC), SearchPath::default());
        assert_eq!(SearchPath::new("clearway", SCHEMA).0, [SCHEMA]);
    }
}
