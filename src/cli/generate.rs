//! `stackforge schema`, `completions` and `man`: what is generated from the types.

use super::Outcome;
use super::args::{Cli, Common};
use super::output::{print, print_document};
use clap::CommandFactory as _;

pub fn schema(_: &Common) -> Outcome {
    let text = serde_json::to_string_pretty(&stackforge_stack::spec::schema()).unwrap_or_default();
    print_document(&format!("{text}\n"));
    Ok(())
}

pub fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "stackforge", &mut out);
    print(&String::from_utf8_lossy(&out));
    Ok(())
}

pub fn man() -> Outcome {
    let mut out = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = clap_mangen::Man::new(Cli::command()).render(&mut out);
    print(&String::from_utf8_lossy(&out));
    Ok(())
}
