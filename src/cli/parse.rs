//! Parses the command line, and refuses arguments that contradict each other.

use super::args::{Cli, Command, EngineChoice, ExplainArgs, RunEngine, SchemaArgs};
use super::{help, usage};
use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _};
use stackforge_build::Output;
use std::ffi::OsString;

impl Cli {
    /// Parses the arguments. Fails if `--json` is given to a command that prints no JSON: clap misses this
    /// conflict if `--json` is before the command.
    pub fn read(
        typed: impl Iterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        let mut command = help::command();
        let typed: Vec<OsString> = typed.map(Into::into).collect();
        let matches = (command.try_get_matches_from_mut(&typed))
            .map_err(|e| usage::with_tip(e, &command, &typed))?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
        cli.name = matches.subcommand_name().unwrap_or_default().to_owned();
        let other = match &cli.command {
            Command::Build(a)
                if a.engine == EngineChoice::Docker && !a.outputs.iter().all(Output::of_engine) =>
            {
                return Err(Self::command().error(
                    ErrorKind::ArgumentConflict,
                    "with '--engine docker' the argument '--output <WHERE>' takes docker, \
                     registry:REF and index:REF: a Docker engine writes no files",
                ));
            }
            Command::Build(a)
                if a.all_variants
                    && (a.push.is_some() && !a.index
                        || !(a.outputs.iter())
                            .all(|o| matches!(o, Output::Docker | Output::Index(_)))) =>
            {
                return Err(Self::command().error(
                    ErrorKind::ArgumentConflict,
                    "with '--all-variants' images go to docker or an index of variants: write \
                     '--push REF --index'",
                ));
            }
            Command::Run(a) if a.print && a.engine == RunEngine::Native => {
                return Err(Self::command().error(
                    ErrorKind::ArgumentConflict,
                    "with '--engine native' the argument '--print' cannot be used: it prints the \
                     command of a container engine",
                ));
            }
            Command::Matrix(a) if a.emit.is_some() => "--emit",
            Command::Plan(a) if a.dot => "--dot",
            Command::Explain(ExplainArgs { markdown: true, .. })
            | Command::Schema(SchemaArgs { markdown: true }) => "--markdown",
            Command::Inspect(a) if a.print.is_some() => "--print",
            _ => return Ok(cli),
        };
        if !cli.common.json {
            Ok(cli)
        } else {
            Err(Self::command().error(
                ErrorKind::ArgumentConflict,
                format!("the argument '{other}' cannot be used with '--json'"),
            ))
        }
    }
}
