//! The start of a session.

use super::{Context, Phase, Session};
use crate::settings::{SetScope, Settings};
use clearway_coordinator::Client;
use clearway_ir::Zone;
use clearway_ir::value::parse_text;
use clearway_types::{Datum, SqlError, SqlResult, SqlState, SqlType};
use clearway_wire::backend;
use clearway_wire::startup::{BadStartupPacket, Startup, startup};

impl Session {
    /// Handles the first packet, or the next one after refused encryption. Returns the packet's
    /// length, 0 while it is incomplete.
    pub(super) fn startup(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> SqlResult<usize> {
        let (packet, len) = match startup(bytes, self.login.asked) {
            Ok(Some(packet)) => packet?,
            Ok(None) => return Ok(0),
            Err(BadStartupPacket) => {
                self.end_of_input(cx);
                return Ok(bytes.len());
            }
        };
        match packet {
            Startup::Ssl => {
                self.login.asked.ssl = true;
                self.refuse_encryption("SSL", bytes.len() > len)?;
            }
            Startup::Gss => {
                self.login.asked.gss = true;
                self.refuse_encryption("GSSAPI encryption", bytes.len() > len)?;
            }
            Startup::Cancel { pid, secret } => {
                cx.shared.cancel(pid, secret);
                self.phase = Phase::Closing;
            }
            Startup::Unsupported { major: 1 | 2, error } => {
                cx.counters().error(error.state());
                backend::old_error(&mut self.io.out, &error);
                self.io.release();
                self.phase = Phase::Closing;
            }
            Startup::Unsupported { error, .. } => return Err(error),
            Startup::Session { minor, parameters } => self.begin(cx, minor, &parameters)?,
        }
        Ok(len)
    }

    /// Refuses encryption. The client must wait for this answer, so data that came with the request
    /// may be injected by an attacker.
    fn refuse_encryption(&mut self, what: &str, more: bool) -> SqlResult<()> {
        self.io.out.push(b'N');
        self.io.release();
        if !more {
            return Ok(());
        }
        let text = format!("received unencrypted data after {what} request");
        let detail = "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.";
        Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, text).detail(detail))
    }

    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        minor: u16,
        parameters: &[(&str, &str)],
    ) -> SqlResult<()> {
        let get = |name: &str| parameters.iter().rfind(|(n, _)| *n == name).map(|(_, v)| *v);
        if let Some(replication) = get("replication") {
            refuse_replication(replication)?;
        }
        let unknown: Vec<&str> =
            parameters.iter().map(|(n, _)| *n).filter(|n| n.starts_with("_pq_.")).collect();
        if minor > 0 || !unknown.is_empty() {
            backend::negotiate_protocol(&mut self.io.out, &unknown);
        }
        self.login.user =
            get("user").filter(|u| !u.is_empty()).map(str::to_owned).ok_or_else(|| {
                SqlError::new(
                    SqlState(*b"28000"),
                    "no PostgreSQL user name specified in startup packet",
                )
            })?;
        if self.login.refused {
            return Err(SqlError::new(
                SqlState::TOO_MANY_CONNECTIONS,
                "sorry, too many clients already",
            ));
        }
        // There is no authentication, so errors from here on are reported to a logged-in user.
        backend::authentication_ok(&mut self.io.out);
        self.login.database =
            get("database").filter(|d| !d.is_empty()).unwrap_or(&self.login.user).to_owned();
        // There is one database, known under these names. Clients that are not told a database
        // name ask for the user's name.
        let names = [cx.shared.config.database.as_str(), "postgres", "clearway", &self.login.user];
        if !names.contains(&self.login.database.as_str()) {
            let text = format!("database \"{}\" does not exist", self.login.database);
            return Err(SqlError::new(SqlState::UNDEFINED_DATABASE, text));
        }
        let config = &cx.shared.config;
        self.config.settings = Settings::new(
            &self.login.user,
            config.synchronous_commit,
            config.default_transaction_isolation,
        );
        // As in PostgreSQL, the other parameters override the options.
        if let Some(options) = get("options") {
            self.options(options)?;
        }
        for (name, value) in parameters {
            match *name {
                "user" | "database" | "replication" | "options" => {}
                name if name.starts_with("_pq_.") => {}
                name => self.config.settings.set(name, Some(value), SetScope::Session)?,
            }
        }
        self.config.settings.started();
        let (pid, secret) = cx.shared.register(cx.worker, self.schedule.slot);
        self.login.pid = pid;
        self.client = Some(Client::new(cx.port, self.schedule.slot));
        self.settings_changed();
        let out = &mut self.io.out;
        for (name, value) in self.config.settings.reported() {
            backend::parameter_status(out, name, value);
        }
        backend::backend_key_data(out, pid, secret);
        self.ready(cx);
        Ok(())
    }

    /// Applies `-c name=value`, `-cname=value` and `--name=value`, as on PostgreSQL's command line.
    /// A dash in a name stands for an underscore. A backslash escapes the next character.
    fn options(&mut self, text: &str) -> SqlResult<()> {
        let mut words = words(text).into_iter();
        while let Some(word) = words.next() {
            let (switch, setting) = match (word.strip_prefix("-c"), word.strip_prefix("--")) {
                (Some(""), _) => ("-c ", words.next().unwrap_or_default()),
                (Some(rest), _) => ("-c ", rest.to_owned()),
                (None, Some(rest)) => ("--", rest.to_owned()),
                (None, None) => {
                    let text = format!("invalid command-line argument for server process: {word}");
                    return Err(SqlError::new(SqlState::SYNTAX, text)
                        .hint("Try \"postgres --help\" for more information."));
                }
            };
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                SqlError::new(SqlState::SYNTAX, format!("{switch}{setting} requires a value"))
            })?;
            self.config.settings.set(&name.replace('-', "_"), Some(value), SetScope::Session)?;
        }
        Ok(())
    }
}

/// Accepts only a request without replication, which is not supported.
fn refuse_replication(value: &str) -> SqlResult<()> {
    match parse_text(SqlType::Bool, value, &Zone::utc()) {
        Ok(Datum::Bool(false)) => Ok(()),
        Err(_) if value != "database" => {
            let text = format!("invalid value for parameter \"replication\": \"{value}\"");
            let hint = "Valid values are: \"false\", 0, \"true\", 1, \"database\".";
            Err(SqlError::new(SqlState::INVALID_PARAMETER, text).hint(hint))
        }
        _ => Err(SqlError::unsupported("replication")),
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
