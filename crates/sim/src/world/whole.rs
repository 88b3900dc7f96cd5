//! What the fourteenth generator added: blocks that arrive whole.

use super::World;
use crate::generate::Mix;
use crate::rng::Rng;

impl World {
    pub(super) fn draw_whole(&mut self, rng: &mut Rng) {
        if !rng.percent(50) {
            return;
        }
        self.mix.whole = rng.pick(&[20, 60, 95]);
        if rng.percent(50) {
            // Short blocks of single rows, which run without locks at every level.
            self.mix = Mix { wide: 3, reads: 30, block: 4, ddl: self.mix.ddl.min(2), ..self.mix };
            self.sessions = self.sessions.max(2);
        }
    }
}
