//! Help: every command with its group and one example, for `--help`, man pages and the command reference.
//!
//! In: the commands that `args` declares. Out: the same commands with groups and examples. It never describes
//! a command: that is the doc comment in `args`.

use super::args::Cli;
use clap::{Command, CommandFactory as _};
use std::fmt::Write as _;

/// Commands by task: the name of each, and an example that a reader can change and run.
const GROUPS: [(&str, &[(&str, &str)]); 5] = [
    (
        "Prepare",
        &[
            ("doctor", "stackforge doctor"),
            ("init", "stackforge init --gpu h100 -o stack.yaml"),
            ("check", "stackforge check stack.yaml --gpu thor"),
            ("lock", "stackforge lock stack.yaml"),
            ("matrix", "stackforge matrix stacks/vllm-matrix.yaml"),
        ],
    ),
    (
        "Build",
        &[
            ("plan", "stackforge plan stack.yaml --why"),
            ("build", "stackforge build stack.yaml -o oci:image"),
            ("validate", "stackforge validate oci:image --gpu"),
            (
                "run",
                "stackforge run stack.yaml -- python -c 'import torch'",
            ),
            ("render", "stackforge render stack.yaml -o context"),
        ],
    ),
    (
        "Look into",
        &[
            ("audit", "stackforge audit site-packages --gpu h100"),
            ("diagnose", "stackforge diagnose build.log"),
            ("explain", "stackforge explain SF0609"),
            ("inspect", "stackforge inspect registry.example/team/vllm:1"),
            ("sbom", "stackforge sbom stack.yaml --format cyclonedx"),
        ],
    ),
    (
        "Ship",
        &[
            (
                "push",
                "stackforge push oci:image registry.example/team/vllm:1",
            ),
            (
                "attach",
                "stackforge attach registry.example/team/vllm:1 --stack stack.yaml",
            ),
            (
                "sign",
                "stackforge sign registry.example/team/vllm:1 --key publisher.key",
            ),
            (
                "verify",
                "stackforge verify registry.example/team/vllm:1 --key publisher.pub",
            ),
            (
                "pull",
                "stackforge pull registry.example/team/vllm:1 -o rootfs:/srv/vllm",
            ),
            ("update", "stackforge update /etc/stackforge/update.yaml"),
        ],
    ),
    (
        "Keep",
        &[
            ("cache", "stackforge cache gc --max-size 50GB"),
            ("schema", "stackforge schema > stack.schema.json"),
            ("completions", "stackforge completions bash"),
            ("man", "stackforge man | man -l -"),
        ],
    ),
];

/// The same for the commands below `cache`.
const OF_CACHE: [(&str, &str); 5] = [
    ("ls", "stackforge cache ls"),
    ("gc", "stackforge cache gc --max-size 50GB"),
    ("verify", "stackforge cache verify --repair"),
    (
        "export",
        "stackforge cache export cache.tar --stack stack.yaml",
    ),
    ("import", "stackforge cache import cache.tar"),
];

/// The program's commands with groups and examples.
pub fn command() -> Command {
    let plain = Cli::command();
    let groups = grouped(&plain);
    let commands = GROUPS.iter().flat_map(|(_, commands)| commands.iter());
    let complete = with_examples(plain, commands)
        .mut_subcommand("cache", |cache| with_examples(cache, OF_CACHE.iter()));
    complete.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\nCommands:\n{groups}\nOptions:\n{{options}}\n\n\
         `stackforge COMMAND --help` describes a command and shows an example.\n"
    ))
}

fn with_examples<'a>(
    command: Command,
    examples: impl Iterator<Item = &'a (&'a str, &'a str)>,
) -> Command {
    examples.fold(command, |command, (name, example)| {
        command.mut_subcommand(name, |c| c.after_help(format!("Example:\n  {example}")))
    })
}

/// The list of commands, each group below its title.
fn grouped(command: &Command) -> String {
    let mut out = String::new();
    for (title, commands) in GROUPS {
        // Writing to a String cannot fail.
        let _ = writeln!(out, " {title}");
        for (name, _) in commands {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(out, "  {name:<12} {about}");
        }
    }
    out
}

/// The command reference as a Markdown page.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Commands\n\nMade from the program's own help; `make docs` writes it anew.\n",
    );
    let mut command = command().term_width(100);
    command.build();
    for (title, commands) in GROUPS {
        let _ = write!(out, "\n## {title}\n");
        for (name, _) in commands {
            if let Some(command) = command.find_subcommand_mut(name) {
                section(&mut out, command);
            }
        }
    }
    out
}

/// Writes the help of a command and of the commands below it.
fn section(out: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or_default().to_owned();
    let help = command.render_help().to_string();
    let _ = write!(out, "\n### `{name}`\n\n```text\n{}\n```\n", help.trim_end());
    let below = command.get_subcommands_mut();
    for command in below.filter(|c| c.get_name() != "help") {
        section(out, command);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_is_in_one_group() {
        let named: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, c)| c.iter().map(|(name, _)| *name))
            .collect();
        let listed: BTreeSet<&str> = named.iter().copied().collect();
        assert_eq!(listed.len(), named.len(), "a command is in two groups");
        let plain = Cli::command();
        let declared: BTreeSet<&str> = plain.get_subcommands().map(Command::get_name).collect();
        assert_eq!(listed, declared);
    }

    #[test]
    fn every_example_is_a_command_of_its_name() {
        for (name, example) in GROUPS.iter().flat_map(|(_, commands)| commands.iter()) {
            let typed = example.split(['|', '>']).next().unwrap_or_default();
            // The quotes of a shell: the examples have one argument in them at most.
            let mut words = Vec::new();
            for (i, part) in typed.split('\'').enumerate() {
                if i % 2 == 1 {
                    words.push(part);
                } else {
                    words.extend(part.split_whitespace());
                }
            }
            assert_eq!(words[..2], ["stackforge", *name], "{example}");
            if let Err(e) = Cli::read(words.iter()) {
                panic!("{example}: {e}");
            }
        }
    }
}
