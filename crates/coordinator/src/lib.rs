//! A transaction's life: routing, gathering, commit, abort, deadlock detection, catalog.
