//! What an error of usage says to type instead: the nearest command, what another tool's word is called here, the
//! option that a single dash hides.
//!
//! In: clap's error and what was typed. Out: the same error with a better tip. Clap's own goes by the letters that two
//! words share, which makes `list` a `validate` and `scan` a `man`.

use super::complete::is_yaml;
use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use stackforge_stack::diag::nearest;
use std::ffi::OsString;
use std::path::Path;

/// Words of other tools of this class, and what is typed here.
const WORDS: [(&str, &str); 36] = [
    ("bake", "build STACK --all-variants"),
    ("ci", "matrix STACK --emit github"),
    ("clean", "cache gc"),
    ("clear", "cache gc --all"),
    ("compile", "build STACK"),
    ("compose", "render STACK --compose"),
    ("create", "init -o stack.yaml"),
    ("debug", "diagnose LOG"),
    ("deploy", "render STACK --kubernetes"),
    ("dockerfile", "render STACK -o DIR"),
    ("du", "cache ls"),
    ("exec", "run STACK -- COMMAND"),
    ("fix", "check STACK --fix"),
    ("freeze", "lock STACK"),
    ("fsck", "cache verify"),
    ("gc", "cache gc"),
    ("history", "inspect REFERENCE"),
    ("images", "cache ls"),
    ("info", "inspect REFERENCE"),
    ("install", "pull REFERENCE"),
    ("lint", "check STACK"),
    ("list", "cache ls"),
    ("load", "cache import FILE"),
    ("ls", "cache ls"),
    ("new", "init -o stack.yaml"),
    ("prune", "cache gc"),
    ("publish", "push IMAGE REFERENCE"),
    ("resolve", "lock STACK"),
    ("rm", "cache gc"),
    ("save", "cache export FILE"),
    ("scan", "audit IMAGE"),
    ("serve", "run STACK"),
    ("start", "run STACK"),
    ("test", "validate IMAGE"),
    ("up", "run STACK"),
    ("upgrade", "lock STACK --upgrade"),
];

/// Puts what to type instead into an error.
pub(super) fn with_tip(
    mut error: clap::Error,
    program: &Command,
    typed: &[OsString],
) -> clap::Error {
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            if let Some(word) = text(&error, ContextKind::InvalidSubcommand) {
                error.remove(ContextKind::SuggestedSubcommand);
                error.remove(ContextKind::Suggested);
                tip(&mut error, instead_of_command(&word, program, typed));
            }
        }
        ErrorKind::UnknownArgument => {
            let command = named(program, typed, None);
            let dashes = behind_one_dash(&error, command, typed).map(|option| {
                format!("options of more than one letter have two dashes: '{option}'")
            });
            if let Some(better) = dashes.or_else(|| volume(command, typed)) {
                error.remove(ContextKind::Suggested);
                error.remove(ContextKind::SuggestedArg);
                tip(&mut error, Some(better));
            }
        }
        _ => {}
    }
    error
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn tip(error: &mut clap::Error, tip: Option<String>) {
    let tips = tip.into_iter().map(StyledStr::from).collect();
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
}

fn instead_of_command(word: &str, program: &Command, typed: &[OsString]) -> Option<String> {
    let command = named(program, typed, Some(word));
    // Below `cache`, only what is there is meant.
    let below = if command.get_name() == "cache" {
        "cache "
    } else {
        ""
    };
    let words = || WORDS.iter().filter(|(_, here)| here.starts_with(below));
    let here = |word: &str| {
        let (_, here) = words().find(|(theirs, _)| *theirs == word)?;
        Some(format!("use 'stackforge {here}'"))
    };
    let similar = || {
        let names = command.get_subcommands().map(Command::get_name);
        let near = nearest(word, names)?;
        Some(format!("a command with a similar name exists: '{near}'"))
    };
    let misspelt = || nearest(word, words().map(|(theirs, _)| *theirs)).and_then(here);
    let stack = || {
        let is_one = below.is_empty() && is_yaml(Path::new(word));
        is_one.then(|| format!("name the command first: 'stackforge build {word}'"))
    };
    here(word).or_else(similar).or_else(misspelt).or_else(stack)
}

/// The command that the words name, up to one of them.
fn named<'a>(program: &'a Command, typed: &[OsString], until: Option<&str>) -> &'a Command {
    let words = typed.iter().skip(1).filter_map(|word| word.to_str());
    let before = words.take_while(|word| until.is_none_or(|until| *word != until));
    before.fold(program, |command, word| {
        command.find_subcommand(word).unwrap_or(command)
    })
}

/// `--volume A:/B` for `-v A:/B`, which is the short form of other tools.
fn volume(command: &Command, typed: &[OsString]) -> Option<String> {
    let takes_volumes = command.get_arguments().any(|a| a.get_id() == "volume");
    let mut pairs = typed.windows(2).filter(|pair| pair[0] == "-v");
    let mount = pairs.find_map(|pair| pair[1].to_str().filter(|word| word.contains(":/")))?;
    takes_volumes
        .then(|| format!("'-v' prints more of what happens; a mount is '--volume {mount}'"))
}

/// `--engine` for `-engine`, which clap reads as `-e -n …`.
fn behind_one_dash(error: &clap::Error, command: &Command, typed: &[OsString]) -> Option<String> {
    let unknown = text(error, ContextKind::InvalidArg)?;
    let is_it = |word: &&str| {
        word.len() > 2
            && !word.starts_with("--")
            && word.starts_with('-')
            && unknown.starts_with('-')
            && word.contains(&unknown[1..])
    };
    let words = typed.iter().skip(1).filter_map(|word| word.to_str());
    let word = words.take_while(|word| *word != "--").find(is_it)?;
    let name = word[1..].split('=').next()?;
    let options = command.get_arguments().filter_map(|arg| arg.get_long());
    nearest(name, options).map(|option| format!("--{option}"))
}

#[cfg(test)]
mod tests {
    use super::super::args::Cli;
    use super::*;

    fn tip_for(line: &str) -> String {
        let words = line.split(' ');
        let error = Cli::read(std::iter::once("stackforge").chain(words)).unwrap_err();
        let text = error.to_string();
        let tip = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("tip: "));
        tip.unwrap_or_default().to_owned()
    }

    #[test]
    fn what_another_tool_calls_otherwise_is_named() {
        for (typed, here) in [
            ("list", "cache ls"),
            ("images", "cache ls"),
            ("scan", "audit IMAGE"),
            ("depoly", "render STACK --kubernetes"),
            ("delpoy", "render STACK --kubernetes"),
            ("cache clean", "cache gc"),
            ("cache list", "cache ls"),
            ("--store place list", "cache ls"),
        ] {
            assert_eq!(
                tip_for(typed),
                format!("use 'stackforge {here}'"),
                "{typed}"
            );
        }
    }

    #[test]
    fn a_misspelt_command_names_the_nearest() {
        for (typed, right) in [
            ("biuld", "build"),
            ("valdate", "validate"),
            ("audti", "audit"),
            ("chek", "check"),
            ("cache verfiy", "verify"),
        ] {
            let tip = format!("a command with a similar name exists: '{right}'");
            assert_eq!(tip_for(typed), tip, "{typed}");
        }
        assert_eq!(tip_for("quux"), "");
    }

    #[test]
    fn a_stack_without_a_command_names_one() {
        let tip = "name the command first: 'stackforge build my/stack.yaml'";
        assert_eq!(tip_for("my/stack.yaml"), tip);
    }

    #[test]
    fn options_have_two_dashes() {
        let tip = "options of more than one letter have two dashes: '--engine'";
        assert_eq!(tip_for("build -engine native s.yaml"), tip);
        assert_eq!(tip_for("build -enigne=native s.yaml"), tip);
        assert_ne!(tip_for("build -x s.yaml"), tip);
    }

    #[test]
    fn a_mount_has_a_long_option() {
        let tip = "'-v' prints more of what happens; a mount is '--volume ./x:/y'";
        assert_eq!(tip_for("run -v ./x:/y image"), tip);
        assert_eq!(tip_for("run image -v ./x:/y -- sh"), tip);
        assert_eq!(tip_for("build -v ./x:/y s.yaml"), "");
    }

    #[test]
    fn every_tip_begins_with_a_command() {
        let program = super::super::help::command();
        for (theirs, here) in WORDS {
            assert!(program.find_subcommand(theirs).is_none(), "{theirs}");
            let mut words = here.split(' ');
            let mut command = program.find_subcommand(words.next().unwrap()).unwrap();
            if command.has_subcommands() {
                let below = command.find_subcommand(words.next().unwrap());
                command = below.unwrap_or_else(|| panic!("{here}"));
            }
            let options = words.filter_map(|word| word.strip_prefix("--"));
            for option in options.filter(|option| !option.is_empty()) {
                assert!(
                    command
                        .get_arguments()
                        .any(|arg| arg.get_long() == Some(option)),
                    "{here}"
                );
            }
        }
    }
}
