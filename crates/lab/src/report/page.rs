//! The page: its sections and their order. It loads no external resource and runs no script.

use super::charts::{self, Chart};
use super::pen;
use super::plot::{self, Whiskers};
use crate::bars::Verdict;
use crate::number::FEW_REPETITIONS;
use crate::result::{Record, Series};
use crate::table::{Cell, Table};
use clearway_harness::Res;

const STYLE: &str = include_str!("style.css");

/// Renders the whole page.
pub fn html(records: &[Record]) -> Res<String> {
    let plots = pen::style();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Clearway: lab report</title>\n<style>\n{STYLE}{plots}</style>\n</head>\n<body>\n\
         <h1>Clearway: lab report</h1>\n\
         <p>Each experiment has a question, its source's result, and our measurements with peers in the same run. Points are medians; \
         whiskers end at the lowest and the highest repetition, or at the quartiles of more than {FEW_REPETITIONS}. Hollow symbols are published \
         numbers. Compare ratios within one run: absolute \
         numbers hold only for that machine.</p>\n"
    );
    page += "<nav><ul>\n";
    for (at, record) in records.iter().enumerate() {
        let quick = if record.quick { " (quick run: numbers are meaningless)" } else { "" };
        let (name, question) = (escape(&record.experiment), escape(&record.question));
        page += &format!("<li><a href=\"#e{at}\">{name}</a>: {question}{quick}</li>\n");
    }
    page += "</ul></nav>\n";
    for (at, record) in records.iter().enumerate() {
        page += &format!("<section id=\"e{at}\">\n<h2>{}</h2>\n", escape(&record.experiment));
        page += &section(record)?;
        page += "</section>\n";
    }
    Ok(page + "</body>\n</html>\n")
}

/// Renders one experiment. Tables with published numbers precede the charts; the others are
/// collapsed after them, since the charts show the same numbers.
fn section(record: &Record) -> Res<String> {
    let findings = &record.findings;
    let mut out = String::new();
    if record.quick {
        out += "<p class=\"warning\">A quick run: it checks that the experiment works. Its numbers are meaningless.</p>\n";
    }
    if let Some(only) = &record.only {
        out += &format!(
            "<p class=\"warning\">Only the cases whose name contains \u{201c}{}\u{201d} were run.</p>\n",
            escape(only)
        );
    }
    out += &format!(
        "<p class=\"source\">{}, commit {}, configuration {}; {}</p>\n",
        escape(&record.date),
        escape(&record.commit),
        escape(&record.configuration_hash),
        escape(&record.machine.to_string())
    );
    out += &format!("<h3>Question</h3>\n<p class=\"lead\">{}</p>\n", escape(&record.question));
    out += &format!("<p class=\"source\">{}</p>\n", linked(&record.source));
    out += &paragraphs("What the source found", std::slice::from_ref(&record.source_found));
    out += &paragraphs("What we found", &findings.found);
    out += &paragraphs("Agreement", &findings.agreement);
    out += &paragraphs("Limits", &record.limits);
    out += &bars(record);
    let (compared, rest): (Vec<&Table>, Vec<&Table>) =
        findings.tables.iter().partition(|t| t.columns.iter().any(|column| column.published));
    compared.into_iter().for_each(|t| out += &table(t, record));
    for chart in charts::charts(findings) {
        out += &figure(&chart)?;
    }
    if !rest.is_empty() {
        let tables: String = rest.into_iter().map(|t| table(t, record)).collect();
        out +=
            &format!("<details>\n<summary>The numbers as tables</summary>\n{tables}</details>\n");
    }
    Ok(out + &conditions(record))
}

/// Renders a heading and its paragraphs; returns an empty string if there are none.
fn paragraphs(heading: &str, paragraphs: &[String]) -> String {
    if paragraphs.is_empty() {
        return String::new();
    }
    let paragraphs: String = paragraphs.iter().map(|p| format!("<p>{}</p>\n", escape(p))).collect();
    format!("<h3>{heading}</h3>\n{paragraphs}")
}

fn bars(record: &Record) -> String {
    if record.findings.bars.is_empty() {
        return String::new();
    }
    let mut out = String::from("<h3>Bars</h3>\n<div class=\"scroll\"><table class=\"bars\">\n");
    for bar in &record.findings.bars {
        let verdict = bar.verdict(record.quick);
        let class = match verdict {
            Verdict::Ok => "ok",
            Verdict::Short => "short",
            Verdict::NotHere => "not-here",
            Verdict::Quick => "quick",
        };
        let (name, explained) = (escape(&bar.name), escape(&bar.explained()));
        out += &format!(
            "<tr><td class=\"{class}\">{verdict}</td><td>{name}</td><td>{explained}</td></tr>\n"
        );
    }
    out + "</table></div>\n"
}

/// Renders a table with the commit under it: readers copy tables without their page.
fn table(table: &Table, of: &Record) -> String {
    let class = |at: usize, cell: Option<&Cell>| {
        let published = table.columns.get(at).is_some_and(|c| c.published).then_some("published");
        let number = (at > 0 && !matches!(cell, Some(Cell::Text(_)))).then_some("number");
        let classes: Vec<&str> = published.into_iter().chain(number).collect();
        if classes.is_empty() { String::new() } else { format!(" class=\"{}\"", classes.join(" ")) }
    };
    let mut out = format!(
        "<div class=\"scroll\"><table>\n<caption>{}</caption>\n<thead><tr>",
        escape(&table.title)
    );
    for (at, column) in table.columns.iter().enumerate() {
        out += &format!("<th{}>{}</th>", class(at, None), escape(&column.heading()));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in &table.rows {
        let cells = row.iter().enumerate();
        let cells: String = cells
            .map(|(at, cell)| {
                format!("<td{}>{}</td>", class(at, Some(cell)), escape(&cell.to_string()))
            })
            .collect();
        out += &format!("<tr>{cells}</tr>\n");
    }
    out + &format!(
        "</tbody></table></div>\n<p class=\"source\">Commit {}, configuration {}</p>\n",
        escape(&of.commit),
        escape(&of.configuration_hash)
    )
}

fn figure(Chart { samples, near_only }: &Chart) -> Res<String> {
    let title = escape(&samples.title);
    let instead = |why| Ok(format!("<figure><figcaption>{title}: {why}.</figcaption></figure>\n"));
    let has_numbers =
        |series: &&Series| series.points.iter().any(|p| p.y.iter().any(|y| y.is_finite()));
    if samples.series.iter().any(|series| has_numbers(&series)) && !charts::has_positions(samples) {
        return instead("numbers at one position only, which the tables have");
    }
    let Some(drawing) = plot::draw(samples)? else {
        return instead("no measurements");
    };
    let left_out = match drawing.left_out {
        0 => String::new(),
        n => format!(" (not drawn: {n} repetitions without a number)"),
    };
    let zeros = match drawing.zeros {
        0 => "",
        _ => "; symbols at the axis are 0, which a logarithmic axis cannot show",
    };
    let near = match near_only {
        true => "; as in the tables, without runs with cores apart where there are others",
        false => "",
    };
    let whiskers = match drawing.whiskers {
        Whiskers { of_few: false, of_many: false } => "",
        Whiskers { of_few: true, of_many: false } => "; whiskers: lowest and highest repetition",
        Whiskers { of_few: false, of_many: true } => "; whiskers: quartiles",
        Whiskers { of_few: true, of_many: true } => {
            "; whiskers: quartiles, or the lowest and highest of up to three repetitions"
        }
    };
    let absent = match drawing.absent.is_empty() {
        true => String::new(),
        false => format!("; without a point: {}", escape(&drawing.absent.join(", "))),
    };
    Ok(format!(
        "<figure>\n<figcaption><b>{title}</b>{left_out}{zeros}{near}{whiskers}{absent}</figcaption>\n{}</figure>\n",
        drawing.svg
    ))
}

/// Renders the conditions under which the numbers were measured.
fn conditions(record: &Record) -> String {
    let seeds: Vec<String> = record.findings.seeds.iter().map(u64::to_string).collect();
    let mut lines = vec![
        ("Run", record.date.clone()),
        ("Commit", record.commit.clone()),
        ("Machine", record.machine.to_string()),
        ("Conditions", record.machine.conditions()),
        ("Configuration", format!("hash {}", record.configuration_hash)),
    ];
    lines.extend(record.seconds_taken.map(|seconds| ("Time of the run", format!("{seconds} s"))));
    lines.extend(
        record.findings.configuration.iter().map(|(name, value)| (name.as_str(), value.clone())),
    );
    if !seeds.is_empty() {
        lines.push(("Seeds", seeds.join(", ")));
    }
    let lines: String = lines
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)))
        .collect();
    format!("<h3>Measured on</h3>\n<dl>\n{lines}</dl>\n")
}

/// Escapes text and turns `doi:10.1000/182` into a link.
fn linked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("doi:10.") {
        let end = |c: char| c.is_whitespace() || ",;()<>\"'".contains(c);
        let doi = &rest[at + 4..];
        let doi = doi[..doi.find(end).unwrap_or(doi.len())].trim_end_matches('.');
        let (before, after) = (&rest[..at], &rest[at + 4 + doi.len()..]);
        out += &format!("{}<a href=\"https://doi.org/{doi}\">doi:{doi}</a>", escape(before));
        rest = after;
    }
    out + &escape(rest)
}

/// Escapes text for an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::example;

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
        let hostile = "<script>alert(1)</script>";
        let mut record =
            Record { question: hostile.into(), only: Some(hostile.into()), ..example() };
        record.findings.found.push(hostile.into());
        record.findings.tables[0].rows[0][0] = Cell::text(hostile);
        record.findings.tables[0].columns[0].name = hostile.into();
        record.findings.bars[0].name = hostile.into();
        record.findings.configuration.insert(hostile.into(), hostile.into());
        record.findings.samples[0].title = hostile.into();
        record.findings.samples[0].x.label = hostile.into();
        record.findings.samples[0].series[0].name = hostile.into();
        assert!(!html(&[record]).unwrap().contains("<script"));
    }

    #[test]
    fn page_shows_question_findings_and_machine() {
        let page = html(&[example()]).unwrap();
        for part in [
            "How fast?",
            "A report",
            "805 TPS",
            "more",
            "half",
            "few cores",
            "abc123",
            "2026-01-02",
            "a &lt;chip&gt;",
            "256MB",
            "SMT off",
            "18446744073709551615",
            "class=\"published number\">3,652",
            "no value",
            "class=\"ok\"",
            "class=\"short\"",
            "64 cores are needed",
        ] {
            assert!(page.contains(part), "`{part}` is not in\n{page}");
        }
        assert!(!page.contains("are meaningless"));
        assert!(
            !page.contains("http://")
                || page.matches("http").count()
                    == page.matches("http://www.w3.org/2000/svg").count()
        );
    }

    #[test]
    fn tables_without_published_numbers_follow_charts() {
        let mut record = example();
        let mut ours = record.findings.tables[0].clone();
        ours.title = "Ours only".into();
        ours.columns.iter_mut().for_each(|column| column.published = false);
        record.findings.tables.insert(0, ours);
        let page = html(&[record]).unwrap();
        let places = ["<caption>Rates", "<svg", "<details>", "<caption>Ours only", "</details>"]
            .map(|p| page.find(p));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
        assert!(!html(&[example()]).unwrap().contains("<details>"));
    }

    #[test]
    fn captions_say_what_whiskers_and_crosses_are() {
        let page = |record: Record| html(&[record]).unwrap();
        let mut record = example();
        assert!(page(record.clone()).contains("; whiskers: lowest and highest repetition<"));
        let samples = &mut record.findings.samples[0];
        samples.series[0].points[0].y = vec![1.0, 2.0, 3.0, 4.0];
        samples.marked = Some(crate::result::Marked {
            what: "fitted".into(),
            points: vec![("clearway".into(), 16.0)],
        });
        let shown = page(record.clone());
        assert!(shown.contains("; whiskers: quartiles, or") && shown.contains("\nfitted\n"));
        record.findings.samples[0].series[1].points.clear();
        assert!(page(record.clone()).contains("; without a point: &lt;peer&gt;"));
        record.findings.samples[0].series[0].points.truncate(1);
        assert!(page(record).contains("numbers at one position only"));
    }

    #[test]
    fn every_table_has_the_commit_under_it() {
        let mut record = example();
        record.findings.tables.push(record.findings.tables[0].clone());
        let page = html(&[record]).unwrap();
        let under = page.split("</tbody></table></div>\n").skip(1);
        let under: Vec<&str> = under.filter_map(|rest| rest.lines().next()).collect();
        assert_eq!(under.len(), 2);
        assert!(
            under.iter().all(|line| line.contains(">Commit abc123, configuration ")),
            "{under:?}"
        );
    }

    #[test]
    fn dois_become_links() {
        let shown = linked("A & B (ICDE 2009, doi:10.1109/ICDE.2009.96), then doi:10.1145/1.2.");
        assert_eq!(
            shown,
            "A &amp; B (ICDE 2009, <a href=\"https://doi.org/10.1109/ICDE.2009.96\">doi:10.1109/ICDE.2009.96</a>), \
             then <a href=\"https://doi.org/10.1145/1.2\">doi:10.1145/1.2</a>."
        );
        assert_eq!(
            linked("doi:10.1/<script>"),
            "<a href=\"https://doi.org/10.1/\">doi:10.1/</a>&lt;script&gt;"
        );
    }

    #[test]
    fn quick_runs_are_marked_everywhere() {
        let page = html(&[Record { quick: true, ..example() }]).unwrap();
        assert_eq!(page.matches("are meaningless").count(), 2);
        assert!(!page.contains("class=\"ok\""));
    }
}
