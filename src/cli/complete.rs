//! What a shell completes beyond commands and options: stack files, variants, libraries, GPUs, codes, images.
//!
//! The shell runs this program with `STACKFORGE_COMPLETE` set and the words so far. Whatever is wrong with a stack, a
//! catalog or a store then only means fewer proposals.

use super::help;
use super::output::print;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use clap_complete::env::{CompleteEnv, Shells};
use stackforge_image::store::Store;
use stackforge_plan::project::Project;
use stackforge_stack::catalog::{self, Catalog};
use stackforge_stack::diag::codes;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Names the shell that asks, in its environment.
const ASKED_BY: &str = "STACKFORGE_COMPLETE";

/// Answers a shell that asks for completions. `None` if none does.
pub(super) fn answer() -> Option<ExitCode> {
    std::env::var_os(ASKED_BY)?;
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(command).var(ASKED_BY);
    match asked.try_complete(std::env::args_os(), here.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(_) => Some(ExitCode::from(2)),
    }
}

/// Prints what a shell reads to complete commands with this program's help.
pub(super) fn script(shell: Shell) {
    let mut out = Vec::new();
    if let Some(completer) = Shells::builtins().completer(&shell.to_string()) {
        // Writing to a Vec cannot fail.
        let _ = completer.write_registration(
            ASKED_BY,
            "stackforge",
            "stackforge",
            "stackforge",
            &mut out,
        );
    }
    print(&String::from_utf8_lossy(&out));
}

/// The program's commands with proposals for the values of their arguments.
fn command() -> Command {
    with_proposals(help::command())
}

fn with_proposals(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let proposed = |arg| proposed(&name, arg);
    command.mut_args(proposed).mut_subcommands(with_proposals)
}

fn proposed(command: &str, arg: Arg) -> Arg {
    let takes = arg.get_action().takes_values();
    match arg.get_id().as_str() {
        "stack" => arg.add(ArgValueCompleter::new(stack_files())),
        "variant" | "variants" => arg.add(ArgValueCandidates::new(variants)),
        "upgrade" => arg.add(ArgValueCandidates::new(libraries)),
        "gpu" if takes => arg.add(ArgValueCandidates::new(gpus)),
        "code" => arg.add(ArgValueCandidates::new(all_codes)),
        "image" | "source" => arg.add(ArgValueCompleter::new(images)),
        "outputs" if command == "pull" => arg.add(ArgValueCompleter::new(pulled_to)),
        "outputs" => arg.add(ArgValueCompleter::new(built_to)),
        _ => arg,
    }
}

fn stack_files() -> PathCompleter {
    PathCompleter::any().filter(is_yaml)
}

pub(super) fn is_yaml(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str);
    matches!(extension, Some("yaml" | "yml"))
}

/// What was typed so far, the program's name first.
fn words() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1)
}

/// The value of an option among the words: `--store DIR`, `--store=DIR`, or split at `=` as bash does.
fn option(name: &str, words: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = words.skip_while(|word| !word.as_encoded_bytes().starts_with(name.as_bytes()));
    let option = words.next()?.into_string().ok()?;
    match option.strip_prefix(name)? {
        "" => words.find(|word| word != "=").map(PathBuf::from),
        joined => joined.strip_prefix('=').map(PathBuf::from),
    }
}

fn catalog_directory() -> Option<PathBuf> {
    option("--catalog", words())
}

/// The stack that the words so far name.
fn stack() -> Option<Project> {
    let mut paths = words().map(PathBuf::from);
    let named = paths.find(|path| is_yaml(path) && path.is_file())?;
    Project::open(&named, catalog_directory().as_deref()).ok()
}

fn variants() -> Vec<CompletionCandidate> {
    let found = stack().and_then(|stack| stack.variants().ok());
    let variants = found.into_iter().flat_map(|found| found.variants);
    variants
        .map(|variant| CompletionCandidate::new(variant.name))
        .collect()
}

fn libraries() -> Vec<CompletionCandidate> {
    let libraries = stack().into_iter().flat_map(|stack| {
        let libraries = stack.file.pattern.libraries;
        libraries
            .into_iter()
            .map(|library| library.name.value.to_string())
    });
    libraries.map(CompletionCandidate::new).collect()
}

fn gpus() -> Vec<CompletionCandidate> {
    let Ok(Catalog { gpus, sms, .. }) = catalog::load(catalog_directory().as_deref()) else {
        return Vec::new();
    };
    let named = gpus
        .into_iter()
        .map(|gpu| CompletionCandidate::new(gpu.name).help(Some(gpu.about.into())));
    let numbered = sms
        .into_iter()
        .map(|facts| CompletionCandidate::new(format!("sm_{}", facts.sm.digits())));
    named.chain(numbered).collect()
}

fn all_codes() -> Vec<CompletionCandidate> {
    let codes = codes::TABLE.iter();
    codes
        .map(|e| CompletionCandidate::new(e.code.to_string()).help(Some(e.title.into())))
        .collect()
}

/// Stack files, images of the store, and what lies in a directory or a file.
fn images(typed: &OsStr) -> Vec<CompletionCandidate> {
    let store = option("--store", words());
    let refs = Store::open(store.as_deref()).and_then(|store| store.refs());
    let names = refs.into_iter().flatten().filter_map(|image| image.name);
    let begins = |name: &String| name.as_bytes().starts_with(typed.as_encoded_bytes());
    let named = names.filter(begins).map(CompletionCandidate::new);
    let mut found: Vec<CompletionCandidate> = named.collect();
    found.extend(stack_files().complete(typed));
    found.extend(after_prefix(typed, &["oci:", "oci-archive:", "rootfs:"]));
    found
}

/// Where `build` puts an image.
fn built_to(typed: &OsStr) -> Vec<CompletionCandidate> {
    let words = ["docker", "registry:", "index:"];
    places(typed, &["oci:", "oci-archive:"], &words)
}

/// Where `pull` puts an image besides the store.
fn pulled_to(typed: &OsStr) -> Vec<CompletionCandidate> {
    places(typed, &["oci:", "oci-archive:", "rootfs:"], &["docker"])
}

fn places(
    typed: &OsStr,
    paths: &[&'static str],
    words: &[&'static str],
) -> Vec<CompletionCandidate> {
    let mut found = after_prefix(typed, paths);
    let begins = |word: &&str| word.as_bytes().starts_with(typed.as_encoded_bytes());
    found.extend(
        words
            .iter()
            .copied()
            .filter(begins)
            .map(CompletionCandidate::new),
    );
    found
}

/// Proposes prefixes, and paths once one is typed.
fn after_prefix(typed: &OsStr, prefixes: &[&'static str]) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let proposals = prefixes.iter().flat_map(|prefix| {
        if let Some(path) = typed.strip_prefix(prefix) {
            let paths = PathCompleter::any().complete(OsStr::new(path));
            paths.into_iter().map(|c| c.add_prefix(*prefix)).collect()
        } else if prefix.starts_with(&*typed) {
            vec![CompletionCandidate::new(*prefix)]
        } else {
            Vec::new()
        }
    });
    proposals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_as_shells_split_them() {
        let of = |line: &str| option("--store", line.split(' ').map(OsString::from));
        let found = Some(PathBuf::from("here"));
        assert_eq!(of("run --store here ti"), found);
        assert_eq!(of("run --store=here ti"), found);
        assert_eq!(of("run --store = here ti"), found);
        assert_eq!(of("run ti"), None);
        assert_eq!(of("run --store"), None);
    }
}
