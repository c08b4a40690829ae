//! `stackforge schema`, `completions` and `man`: what is generated from the types.

use super::args::{Common, ManArgs, SchemaArgs};
use super::output::{Failure, json, print, print_document};
use super::{Outcome, complete, help, keys};
use stackforge_stack::diag::{Diagnostic, codes};
use std::path::Path;

pub fn schema(_: &Common, args: &SchemaArgs) -> Outcome {
    let schema = stackforge_stack::spec::schema();
    if args.markdown {
        print(&keys::markdown(&schema));
        return Ok(());
    }
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    print_document(&format!("{text}\n"));
    Ok(())
}

pub fn completions(shell: clap_complete::Shell) -> Outcome {
    complete::script(shell);
    Ok(())
}

pub fn man(common: &Common, args: &ManArgs) -> Outcome {
    if args.markdown {
        print(&help::markdown());
        return Ok(());
    }
    if let Some(folder) = &args.output {
        pages(folder)?;
        if common.json {
            json(&serde_json::json!({ "directory": folder }));
        }
        return Ok(());
    }
    let mut out = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = clap_mangen::Man::new(help::command()).render(&mut out);
    print(&String::from_utf8_lossy(&out));
    Ok(())
}

/// Writes the page of each command: `stackforge.1`, `stackforge-build.1` …
fn pages(folder: &Path) -> Outcome {
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(help::command(), folder));
    written.map_err(|e| {
        let what = format!("write {}: {e}", folder.display());
        Failure::of(Diagnostic::error(codes::STORE_IO, what))
    })
}
