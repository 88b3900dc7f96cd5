//! Faults that users meet, tested with the server's binary.

mod backup;
mod check;
mod ends;
mod exits;
mod full;
mod held;
mod memory;
mod operate;
mod pack;
mod place;
mod private;
mod replaced;
mod row_number;
mod stop;
mod upgrade;
mod workers;
mod world;
