//! The literature's traces are read as they are, and OPT's figures of them come out: to the last
//! digit that is known.

use clearway_traces::{FIGURES, Known, directory, load, opt_misses};

#[test]
fn opt_has_its_figures() {
    let mut seen = 0;
    for figure in FIGURES {
        let known = figure.known.iter().find(|(policy, _)| *policy == "opt");
        let (Some((_, Known::About(percent))), Some(trace)) = (known, load(figure.trace)) else {
            continue;
        };
        let trace = trace.unwrap_or_else(|error| panic!("{error}"));
        let found = trace.hit_percent(opt_misses(&trace.pages, figure.frames));
        assert!((found - percent).abs() <= 0.006, "{}: {found:.3}, not {percent}", figure.trace);
        seen += 1;
    }
    if seen == 0 {
        eprintln!(
            "no traces in {}: OPT was checked against its model alone",
            directory().display()
        );
    }
}
