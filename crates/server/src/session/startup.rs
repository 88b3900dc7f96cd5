//! The beginning of a session.

use super::{Context, Phase, Session};
use crate::settings::Settings;
use clearway_coordinator::Client;
use clearway_types::{SqlError, SqlResult, SqlState};
use clearway_wire::backend;
use clearway_wire::startup::{Startup, startup};

impl Session {
    /// Takes the first packet, or the next after a refused encryption; returns its length, 0 while bytes are missing.
    pub(super) fn startup(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> SqlResult<usize> {
        let Some((packet, len)) = startup(bytes)? else { return Ok(0) };
        match packet {
            Startup::Ssl | Startup::Gss => {
                self.io.out.push(b'N');
                self.io.release();
            }
            Startup::Cancel { pid, secret } => {
                cx.shared.cancel(pid, secret);
                self.phase = Phase::Closing;
            }
            Startup::Session { minor, parameters } => self.begin(cx, minor, &parameters)?,
        }
        Ok(len)
    }

    fn begin(&mut self, cx: &mut Context<'_>, minor: u16, parameters: &[(&str, &str)]) -> SqlResult<()> {
        if self.refused {
            return Err(SqlError::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already"));
        }
        let get = |name: &str| parameters.iter().rfind(|(n, _)| *n == name).map(|(_, v)| *v);
        self.user = get("user")
            .filter(|u| !u.is_empty())
            .map(str::to_owned)
            .ok_or_else(|| SqlError::new(SqlState(*b"28000"), "no PostgreSQL user name specified in startup packet"))?;
        self.database = get("database").filter(|d| !d.is_empty()).unwrap_or(&self.user).to_owned();
        // There is one, and it has these names: the user's is what clients ask for that are told no other.
        let names = [cx.shared.config.database.as_str(), "postgres", "clearway", &self.user];
        if !names.contains(&self.database.as_str()) {
            let text = format!("database \"{}\" does not exist", self.database);
            return Err(SqlError::new(SqlState::UNDEFINED_DATABASE, text));
        }
        self.settings = Settings::new(&self.user, cx.shared.config.synchronous_commit);
        let mut unknown = Vec::new();
        for (name, value) in parameters {
            match *name {
                "user" | "database" => {}
                "options" => self.options(value)?,
                "replication" if matches!(*value, "false" | "off" | "no" | "0") => {}
                "replication" => return Err(SqlError::unsupported("replication")),
                name if name.starts_with("_pq_.") => unknown.push(name),
                name => self.settings.set(name, Some(value), false)?,
            }
        }
        self.settings.started();
        let (pid, secret) = cx.shared.register(cx.worker, self.slot);
        self.pid = pid;
        self.client = Some(Client::new(cx.port, self.slot));
        self.settings_changed();
        let out = &mut self.io.out;
        if minor > 0 || !unknown.is_empty() {
            backend::negotiate_protocol(out, &unknown);
        }
        backend::authentication_ok(out);
        for (name, value) in self.settings.reported() {
            backend::parameter_status(out, name, value);
        }
        backend::backend_key_data(out, pid, secret);
        self.ready(cx);
        Ok(())
    }

    /// `-c name=value`, `-cname=value` and `--name=value`, as PostgreSQL's command line has them; a backslash takes the next character as it is.
    fn options(&mut self, text: &str) -> SqlResult<()> {
        let mut words = words(text).into_iter();
        while let Some(word) = words.next() {
            let setting = match word.strip_prefix("-c") {
                Some("") => words.next().unwrap_or_default(),
                Some(rest) => rest.to_owned(),
                None => word.strip_prefix("--").map(|w| w.replace('-', "_")).ok_or_else(|| {
                    SqlError::new(SqlState::INVALID_PARAMETER, format!("invalid command-line argument: {word}"))
                })?,
            };
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| SqlError::new(SqlState::INVALID_PARAMETER, format!("-c {setting} requires a value")))?;
            self.settings.set(name, Some(value), false)?;
        }
        Ok(())
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\\' {
            word.extend(chars.next());
        } else if !c.is_whitespace() {
            word.push(c);
        } else if !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
