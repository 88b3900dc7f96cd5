//! Throughput as nodes are added, each with its workers and rows.

use super::measures::Shown;
use super::systems::{Load, M, M_S, ONE_ROUND_CACHED, System, TCP, TWO_SIDED};
use super::{NODES_KEY, configuration, seeds};
use crate::bp::grid::{Cell, Grid};
use crate::experiment::Task;
use crate::progress::Progress;
use crate::result::{Axis, Findings, Samples};
use clearway_harness::Res;
use clearway_remote::Protocol;
use clearway_remote::ycsb::YcsbOutcome;

const NAME: &str = "remote-locks/nodes";
const NODES: [usize; 3] = [4, 16, 64];
const QUICK_NODES: [usize; 2] = [4, 8];
const THETAS: [f64; 2] = [0.0, 0.85];
const WRITES: f64 = 0.5;
const SYSTEMS: [System; 5] = [M, M_S, ONE_ROUND_CACHED, TWO_SIDED, TCP];

/// Runs all systems at every number of nodes.
pub fn run(task: &Task) -> Res<Findings> {
    let nodes: &[usize] = if task.options.quick { &QUICK_NODES } else { &NODES };
    let seeds = seeds(task);
    let mut progress = Progress::new(NAME, THETAS.len() * SYSTEMS.len() * nodes.len());
    let mut grids = Vec::new();
    for theta in THETAS {
        let title = format!("NO_WAIT, 50 % writes, theta {theta}, simulated");
        let mut grid = Grid { title, x: "nodes", cells: Vec::new() };
        for (system, nodes) in
            SYSTEMS.into_iter().flat_map(|system| nodes.iter().map(move |n| (system, *n)))
        {
            let name = format!("{} {nodes} nodes, theta {theta}", system.name);
            progress.step(&name);
            if task.part.wants(&name, false) {
                // Without back-off: one back-off takes as long as 64 nodes need for 60,000 commits.
                let load =
                    Load { nodes: Some(nodes), ..Load::new(theta, WRITES).without_back_off() };
                let one = |seed: &u64| system.run(task, Protocol::NoWait, load, *seed);
                let figures = seeds.iter().map(one).collect::<Res<_>>()?;
                grid.cells.push(Cell { system: system.name.into(), x: nodes as f64, figures });
            }
        }
        grids.push(grid);
    }
    let mut configuration = configuration(task);
    let all: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    configuration.insert(NODES_KEY.into(), all.join(", "));
    Ok(Findings {
        configuration,
        seeds,
        samples: grids.iter().flat_map(drawn).collect(),
        tables: grids
            .iter()
            .flat_map(|grid| [grid.table(&YcsbOutcome::RATE), grid.table(&YcsbOutcome::ABORTS)])
            .collect(),
        found: Vec::new(),
        agreement: Vec::new(),
        bars: Vec::new(),
    })
}

fn drawn(grid: &Grid<YcsbOutcome>) -> [Samples; 2] {
    let log = || Axis::log("nodes", "");
    [&YcsbOutcome::RATE, &YcsbOutcome::ABORTS]
        .map(|measure| Samples { x: log(), ..grid.samples(measure) })
}
