//! The command line: turns arguments into requests, and answers into text or JSON.
//!
//! Results go to stdout, progress and logs to stderr. Exit status: 0 success; 1 the stack, image or build is
//! bad; 2 wrong usage or a stack that does not parse; 3 the environment lacks something; 4 and 5 are those of
//! `update`; that of the program from `run`; 130 after Ctrl-C (`stack/diag/codes.rs` has the table). No module below this one knows arguments or
//! terminals.

mod args;
mod attach;
mod audit;
mod build;
mod cache;
mod check;
mod complete;
mod deploy;
mod diagnose;
mod doctor;
mod emit;
mod errors;
mod explain;
mod generate;
mod help;
mod init;
mod inspect;
mod keys;
mod lock;
mod matrix;
mod native;
mod output;
mod parse;
mod plan;
mod planned;
mod progress;
mod pull;
mod push;
mod render;
mod run;
mod sbom;
mod screen;
mod session;
mod sign;
mod signals;
mod update;
mod usage;
mod validate;
mod variants;

use args::{Cli, Command};
use output::Failure;
use std::process::ExitCode;

pub fn main() -> ExitCode {
    if let Some(status) = complete::answer() {
        return status;
    }
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(e) => {
            // Usage errors exit with 2; clap also reports `--help` and `--version` as errors.
            let exit = if e.use_stderr() { 2 } else { 0 };
            output::print_usage(e);
            let Some(lost) = output::output_lost() else {
                return ExitCode::from(exit);
            };
            for diagnostic in &lost.report.diagnostics {
                output::print_message(&format!("{}\n", diagnostic.message));
            }
            return ExitCode::from(exit.max(lost.exit));
        }
    };
    output::start_logging(&cli.common);
    let common = &cli.common;
    screen::begin(common, cli.name);
    let result = match cli.command {
        Command::Init(a) => init::run(common, &a),
        Command::Check(a) => check::run(common, &a),
        Command::Lock(a) => lock::run(common, &a),
        Command::Matrix(a) => matrix::run(common, &a),
        Command::Plan(a) => plan::run(common, &a),
        Command::Render(a) => render::run(common, &a),
        Command::Build(a) => build::run(common, &a),
        Command::Validate(a) => validate::run(common, &a),
        Command::Run(a) => match run::run(common, &a) {
            // The program's own status, whatever it means.
            Ok(status) => return status,
            Err(failure) => Err(failure),
        },
        Command::Push(a) => push::run(common, &a),
        Command::Pull(a) => pull::run(common, &a),
        Command::Update(a) => update::run(common, &a),
        Command::Doctor(a) => doctor::run(common, &a),
        Command::Audit(a) => audit::run(common, &a),
        Command::Sbom(a) => sbom::run(common, &a),
        Command::Attach(a) => attach::run(common, &a),
        Command::Inspect(a) => inspect::run(common, &a),
        Command::Sign(a) => sign::sign(common, &a),
        Command::Verify(a) => sign::verify(common, &a),
        Command::Cache(a) => cache::run(common, &a),
        Command::Diagnose(a) => diagnose::run(common, &a),
        Command::Explain(a) => explain::run(common, &a),
        Command::Schema(a) => generate::schema(common, &a),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man(a) => generate::man(common, &a),
    };
    screen::end();
    match result.err().or_else(output::output_lost) {
        None => ExitCode::SUCCESS,
        Some(failure) => failure.report(common),
    }
}

/// The result of every command.
type Outcome = Result<(), Failure>;
