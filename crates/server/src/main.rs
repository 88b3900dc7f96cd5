//! `clearway`: parses the command line and runs the subcommand.

#![forbid(unsafe_code)]

use clap::Parser;
use clearway_server::cli::{self, Cli, Command};
use clearway_server::exit::{self, ExitFailure};
use clearway_server::{Config, backup, check, output, serve, top};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Cli::parse_from(cli::with_dashes(std::env::args_os())).command {
        Command::Serve(flags) => {
            let config = Config::load(*flags)
                .map_err(|message| ExitFailure::new(exit::ExitCode::Usage, message));
            config.and_then(serve::serve)
        }
        Command::Backup(flags) => backup::backup(&flags),
        Command::Restore(flags) => backup::restore(&flags),
        Command::Check(flags) => check::check(&flags),
        Command::Top(flags) => top::top(&flags),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::report(format_args!("clearway: {failure}"));
            failure.code.into()
        }
    }
}
