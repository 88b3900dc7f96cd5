//! `cargo run -p clearway-fuzz --bin seeds`: writes the seeds into the corpus, replacing the
//! previous ones.

#![forbid(unsafe_code)]

use clearway_fuzz::{corpus, seeds};

fn main() -> std::io::Result<()> {
    for seed in seeds::all() {
        let dir = corpus::dir(seed.target);
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("seed-{}", seed.name)), seed.bytes)?;
    }
    Ok(())
}
