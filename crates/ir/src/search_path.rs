//! `search_path`: which schemas a name without one may mean.
//!
//! All tables are in schema `public`. Of PostgreSQL's own schemas only the names exist here.

use crate::system::SCHEMA;

/// The schema of all tables.
pub const PUBLIC: &str = "public";

/// The schema of the built-in types and functions.
pub const PG_CATALOG: &str = "pg_catalog";

/// Every schema that there is.
const SCHEMAS: [&str; 5] = [PUBLIC, PG_CATALOG, "information_schema", "pg_toast", SCHEMA];

/// What `search_path` comes to: the schemas on it that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchPath(Vec<&'static str>);

impl Default for SearchPath {
    /// That of a session that has set none.
    fn default() -> Self {
        Self(vec![PUBLIC])
    }
}

impl SearchPath {
    /// What the setting's text means to this user. `$user` never means one of the system's schemas:
    /// a user named `clearway` could not create tables.
    pub fn new(text: &str, user: &str) -> Self {
        let found = |name: String| match name.as_str() {
            "$user" => (user == PUBLIC).then_some(PUBLIC),
            name => schema(name),
        };
        Self(names(text).into_iter().filter_map(found).collect())
    }
    /// Where a table without a schema in its name is made; also what current_schema says.
    pub fn first(&self) -> Option<&'static str> {
        self.0.first().copied()
    }
    /// Whether a table's name finds the table without its schema.
    pub fn sees_tables(&self) -> bool {
        self.0.contains(&PUBLIC)
    }
}

/// The schema of this name, if there is one.
pub fn schema(name: &str) -> Option<&'static str> {
    SCHEMAS.into_iter().find(|schema| *schema == name)
}

/// The names in a list of identifiers, folded unless quoted.
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
    fn only_schemas_that_exist_are_on_the_path() {
        assert_eq!(path("\"$user\", public"), SearchPath::default());
        assert_eq!(path("nosuch,PG_Catalog , public").0, ["pg_catalog", "public"]);
        assert_eq!(path("\"Public\", \"a,\"\"b\"").0, [""; 0]);
        assert_eq!(path("\"\"").first(), None);
        assert!(!path("pg_catalog").sees_tables());
    }

    #[test]
    fn a_user_named_as_a_system_schema_has_none() {
        for user in [SCHEMA, PG_CATALOG, "information_schema", "pg_toast", "me"] {
            assert_eq!(SearchPath::new("\"$user\", public", user), SearchPath::default());
        }
        assert_eq!(SearchPath::new("\"$user\"", PUBLIC), SearchPath::default());
        assert_eq!(SearchPath::new("clearway", SCHEMA).0, [SCHEMA]);
    }
}
