//! Blocks that arrive whole, as simple queries and pipelines bring them.

use super::{Session, plan};
use crate::sql::Stmt;
use clearway_coordinator::{Port, Whole, reach};
use clearway_ir::Env;

impl Session {
    /// Announces a block that is about to begin.
    pub(super) fn announce(&mut self, port: &Port, begin: &Stmt) {
        let Some(client) = self.client.as_mut().filter(|_| begin.begins()) else { return };
        let mut whole = Whole::new();
        let mut known = 0;
        for stmt in self.script.whole() {
            let Ok(plan) = plan(&stmt.to_string(), client) else { return client.announce(None) };
            if !reach(&mut whole, port.engine(), &plan, &Env::default()) {
                return client.announce(None);
            }
            known += 1;
        }
        if known == 0 {
            return client.announce(None);
        }
        // The announcement is only a hint.
        if let Some(one) = self.script.unannounced(whole.partitions.len()) {
            whole.partitions.swap_remove(one);
        }
        client.announce(Some(whole));
    }

    /// Ends the statement and delays the next one.
    pub(super) fn think(&mut self, after: &Stmt) {
        self.thinks = self.script.thinks(after);
        if self.thinks > 0
            && let Some(client) = &mut self.client
        {
            client.release_exclusive();
        }
    }
}
