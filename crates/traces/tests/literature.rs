//! Reads the published traces and checks OPT's known hit ratios to their last digit.

use clearway_traces::{FIGURES, Known, directory, load, opt_misses};

#[test]
fn opt_matches_the_published_figures() {
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
        eprintln!("no traces in {}: OPT was only checked against its model", directory().display());
    }
}
