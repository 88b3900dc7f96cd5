//! Known results on published traces: hit ratios and miss counts that a policy must reproduce.

/// Known results of one trace with one pool size.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Name of the trace for [`crate::find`].
    pub trace: &'static str,
    /// Pool size in pages.
    pub frames: u32,
    /// Known results by policy: names as in Clearway's configuration, or `opt`.
    pub known: &'static [(&'static str, Known)],
}

/// A known result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// A hit ratio in percent from another simulator, precise to a few tenths.
    About(f64),
    /// A hit ratio in percent as printed in a paper. It is exact to the last digit if the policy is
    /// fully specified.
    Printed(f64),
    /// Misses reported by the policy's authors' program.
    Misses(u64),
    /// Misses among the first accesses, whose number is the second field: that program ignores a
    /// last line without a newline.
    MissesOfFirst(u64, usize),
}

use Known::{About, Misses, MissesOfFirst, Printed};

const fn figure(
    trace: &'static str,
    frames: u32,
    known: &'static [(&'static str, Known)],
) -> Figure {
    Figure { trace, frames, known }
}

/// The figures.
///
/// Sources: the LIRS misses come from its authors' program (Jiang and Zhang, SIGMETRICS 2002) with
/// its own parameters. Printed figures are from Megiddo and Modha, FAST 2003, whose traces `OLTP`
/// and `P3` are. [`About`] figures were measured with an independent simulator (2Q 25/50 %, LIRS 1
/// % HIR, S3-FIFO 10/90 %). `orm-busy` and `web07` are cache2k's (headissue GmbH, CC BY 4.0).
pub const FIGURES: &[Figure] = &[
    figure(
        "lirs_2_pools",
        100,
        &[
            ("lru", About(21.95)),
            ("arc", About(46.88)),
            ("lirs", Misses(55_111)),
            ("s3-fifo", About(44.57)),
            ("sieve", About(47.9)),
            ("opt", About(50.64)),
        ],
    ),
    figure(
        "lirs_cpp",
        35,
        &[
            ("lru", About(0.86)),
            ("arc", About(24.67)),
            ("lirs", Misses(5_210)),
            ("s3-fifo", About(33.72)),
            ("sieve", About(17.0)),
            ("opt", About(46.48)),
        ],
    ),
    figure(
        "lirs_cs",
        1_000,
        &[
            ("lru", About(1.83)),
            ("arc", About(1.83)),
            ("lirs", Misses(2_744)),
            ("s3-fifo", About(36.48)),
            ("sieve", About(1.83)),
            ("opt", About(60.82)),
        ],
    ),
    figure(
        "lirs_gli",
        1_000,
        &[
            ("lru", About(11.21)),
            ("arc", About(21.3)),
            ("lirs", Misses(2_964)),
            ("s3-fifo", About(35.05)),
            ("sieve", About(31.34)),
            ("opt", About(53.13)),
        ],
    ),
    figure(
        "lirs_ps",
        500,
        &[
            ("lru", About(48.55)),
            ("arc", About(52.59)),
            ("lirs", Misses(4_452)),
            ("s3-fifo", About(50.8)),
            ("sieve", About(52.59)),
            ("opt", About(58.1)),
        ],
    ),
    figure(
        "lirs_sprite",
        400,
        &[
            ("lru", About(70.77)),
            ("arc", About(70.13)),
            ("lirs", Misses(40_831)),
            ("s3-fifo", About(71.34)),
            ("sieve", About(64.43)),
            ("opt", About(84.56)),
        ],
    ),
    figure(
        "lirs_multi1",
        1_000,
        &[
            ("lru", About(48.23)),
            ("arc", About(49.75)),
            ("lirs", Misses(5_011)),
            ("s3-fifo", About(57.82)),
            ("sieve", About(49.74)),
            ("opt", About(71.4)),
        ],
    ),
    // At most as many pages as fit into one of BP-Wrapper's queues.
    figure("lirs_multi1", 50, &[]),
    figure(
        "lirs_multi2",
        1_200,
        &[
            ("lru", About(48.1)),
            ("arc", About(50.8)),
            ("lirs", Misses(10_184)),
            ("s3-fifo", About(57.35)),
            ("sieve", About(50.77)),
            ("opt", About(65.2)),
        ],
    ),
    figure(
        "lirs_loop",
        512,
        &[
            ("lru", About(0.0)),
            ("arc", About(0.0)),
            ("lirs", Misses(252_507)),
            ("s3-fifo", About(0.0)),
            ("sieve", About(0.0)),
            ("opt", About(50.54)),
        ],
    ),
    figure(
        "lirs_scan",
        1_000,
        &[
            ("lru", About(0.0)),
            ("arc", About(0.0)),
            ("lirs", Misses(26_265)),
            ("s3-fifo", About(0.0)),
            ("sieve", About(0.0)),
            ("opt", About(47.98)),
        ],
    ),
    figure(
        "lirs_zigzag",
        1_000,
        &[
            ("lru", About(48.03)),
            ("arc", About(46.11)),
            ("lirs", MissesOfFirst(51_775, 52_000)),
            ("s3-fifo", About(8.22)),
            ("sieve", About(48.03)),
            ("opt", About(48.03)),
        ],
    ),
    figure(
        "lirs_backf",
        400,
        &[
            ("lru", About(48.89)),
            ("arc", About(45.01)),
            ("lirs", MissesOfFirst(8_428, 8_999)),
            ("s3-fifo", About(21.39)),
            ("sieve", About(35.0)),
            ("opt", About(48.89)),
        ],
    ),
    figure(
        "OLTP",
        1_000,
        &[
            ("lru", Printed(32.83)),
            ("arc", Printed(38.93)),
            ("arc", About(39.06)),
            ("lirs", Misses(595_985)),
            ("s3-fifo", About(40.84)),
            ("sieve", About(32.56)),
            ("opt", About(53.61)),
            ("2q", About(40.52)),
        ],
    ),
    figure(
        "P3",
        32_768,
        &[
            ("lru", Printed(3.57)),
            ("arc", Printed(17.12)),
            ("arc", About(17.1)),
            ("lirs", About(15.67)),
            ("s3-fifo", About(16.94)),
            ("sieve", About(10.02)),
            ("opt", About(32.25)),
        ],
    ),
    figure(
        "orm-busy",
        5_000,
        &[
            ("lru", About(85.46)),
            ("arc", About(85.68)),
            ("lirs", About(85.13)),
            ("s3-fifo", About(86.61)),
            ("sieve", About(85.52)),
            ("opt", About(91.4)),
        ],
    ),
    figure(
        "web07",
        1_000,
        &[
            ("lru", About(50.41)),
            ("arc", About(53.08)),
            ("lirs", Misses(36_285)),
            ("s3-fifo", About(54.11)),
            ("sieve", About(53.25)),
            ("opt", About(63.58)),
        ],
    ),
    figure("lirs_multi1", 2_000, &[("lirs", Misses(2_631))]),
    figure("lirs_2_pools", 450, &[("lirs", Misses(48_294))]),
    figure("lirs_cs", 500, &[("lirs", Misses(4_717))]),
    figure("lirs_cpp", 100, &[("lirs", Misses(2_031))]),
];
