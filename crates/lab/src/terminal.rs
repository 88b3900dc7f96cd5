//! Prints a record on a terminal.

use crate::result::Record;
use std::fmt;

/// Prints machine, tables, findings and bars.
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}: {}", self.experiment, self.question)?;
        writeln!(
            f,
            "  {}, commit {}, configuration {}{}",
            self.date,
            self.commit,
            self.configuration_hash,
            self.seconds_taken.map_or_else(String::new, |s| format!(", {s} s"))
        )?;
        writeln!(f, "  on {}", self.machine)?;
        writeln!(f, "  {}", self.machine.conditions())?;
        let settings: Vec<String> =
            self.findings.configuration.iter().map(|(k, v)| format!("{k} {v}")).collect();
        writeln!(f, "  {}", settings.join(", "))?;
        if let Some(only) = &self.only {
            writeln!(f, "  only the cases whose name contains `{only}`")?;
        }
        if self.quick {
            writeln!(
                f,
                "  A quick run: it checks that the experiment works; its numbers are meaningless."
            )?;
        }
        for table in &self.findings.tables {
            write!(f, "\n{table}  commit {}\n", self.commit)?;
        }
        for (heading, paragraphs) in [
            ("The source found", std::slice::from_ref(&self.source_found)),
            ("We found", &self.findings.found),
            ("Agreement", &self.findings.agreement),
            ("Limits", &self.limits),
        ] {
            for paragraph in paragraphs {
                write!(f, "\n{heading}: {paragraph}\n")?;
            }
        }
        for (at, bar) in self.findings.bars.iter().enumerate() {
            let gap = if at == 0 { "\n" } else { "" };
            writeln!(f, "{gap}{}", bar.line(&self.experiment, self.quick))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::result::example;

    #[test]
    fn records_print_origin_tables_and_bars() {
        let text = example().to_string();
        assert!(text.contains("3,652\n  commit abc123\n"), "under the table: {text}");
        for part in [
            "commit abc123",
            ", 61.5 s",
            "SMT off",
            "scale 10",
            "published",
            "The source found: 805 TPS",
            "We found: more",
            "Agreement: half",
            "Limits: few cores",
            "\nok ",
            "\nshort ",
            "\nnot here ",
        ] {
            assert!(text.contains(part), "`{part}` is not in\n{text}");
        }
        assert!(!text.contains("are meaningless"));
        let quick = crate::result::Record { quick: true, only: Some("tpcb".into()), ..example() }
            .to_string();
        assert!(
            quick.contains("are meaningless")
                && quick.contains("contains `tpcb`")
                && quick.contains("\nquick "),
            "{quick}"
        );
    }
}
