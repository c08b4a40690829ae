//! `stackforge render`.

use super::Outcome;
use super::args::{Common, RenderArgs};
use super::output::{Failure, json, print};
use super::progress::Progress;
use super::session::{Session, only, runtime};
use stackforge_build::render::{Content, Context};
use stackforge_build::{IndexSettings, Options, render_context};
use stackforge_image::store::write_atomically;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_transfer::registry::PlainHttp;
use stackforge_types::printable;
use std::collections::BTreeSet;
use std::path::Path;

/// File that marks a directory which may be rendered into again.
const MARK: &str = ".stackforge-rendered";
/// Names that this or an earlier render may write.
const RENDERED: [&str; 7] = [
    "Dockerfile",
    "base",
    "builders",
    "locks",
    "os",
    "steps",
    "validate",
];

pub fn run(common: &Common, args: &RenderArgs) -> Outcome {
    if args.compose || args.kubernetes {
        return super::deploy::run(common, args);
    }
    // clap asks for it where the context is written.
    let output = args.output.as_deref().unwrap_or_else(|| Path::new("."));
    let session = Session::open(common, &args.stack)?;
    let (chosen, plan) = session.plan(common, only(&args.variants)?)?;
    let options = Options {
        store: &session.store,
        catalog: &session.project.catalog,
        overlay: session.project.overlay.as_deref(),
        tags: Vec::new(),
        outputs: Vec::new(),
        plain_http: PlainHttp::default(),
        jobs: None,
        no_cache: false,
        compile_cache: session.config.compile_cache != Some(false),
        index: IndexSettings::default(),
        stack: Some(&chosen.stack),
        offline: common.offline,
        config: &session.config,
        gpu: false,
    };
    prepare(output)?;
    let mut progress = Progress::new(common);
    let (context, _scratch) = runtime()?.block_on(async {
        let mut on = |event| progress.on_event(&event);
        render_context(&plan, &options, &mut on).await
    })?;
    let files = context.len();
    clear(output, &context)?;
    for (path, content) in context {
        write(&output.join(path), &content)?;
    }
    if common.json {
        json(&serde_json::json!({ "directory": output, "files": files }));
    } else {
        let dir = output.to_string_lossy();
        print(&format!(
            "{}: {files} files; build with `docker build {}`\n",
            printable::line(&dir),
            printable::word(&dir)
        ));
    }
    Ok(())
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::of(Diagnostic::error(
        codes::STORE_IO,
        format!("{what} {}: {e}", path.display()),
    ))
}

/// Creates the directory, or accepts that of an earlier render.
fn prepare(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| failed("create", dir, &e))?;
    let empty = std::fs::read_dir(dir)
        .map_err(|e| failed("read", dir, &e))?
        .next()
        .is_none();
    let mark = dir.join(MARK);
    let marked = mark.symlink_metadata().is_ok_and(|mark| mark.is_file());
    if !empty && !marked {
        return Err(Failure::of(
            Diagnostic::error(
                codes::BAD_VALUE,
                format!("{} holds files that no render wrote", dir.display()),
            )
            .help("name a new or empty directory"),
        ));
    }
    write_atomically(&mark, b"").map_err(|e| failed("write", &mark, &e))
}

/// Removes the files of an earlier render, and everything at the paths that this one writes. A symbolic
/// link there is removed, not followed.
fn clear(dir: &Path, context: &Context) -> Result<(), Failure> {
    let first = |path: &String| path.split('/').next().unwrap_or_default().to_owned();
    let mut names: BTreeSet<String> = context.keys().map(first).collect();
    names.extend(RENDERED.map(str::to_owned));
    for name in names {
        let path = dir.join(name);
        let removed = match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(&path),
            Ok(_) => std::fs::remove_file(&path),
            Err(_) => Ok(()),
        };
        removed.map_err(|e| failed("remove", &path, &e))?;
    }
    Ok(())
}

fn write(path: &Path, content: &Content) -> Result<(), Failure> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| failed("create", parent, &e))?;
    }
    match content {
        Content::Text(text) => std::fs::write(path, text).map_err(|e| failed("write", path, &e)),
        Content::File(from) => std::fs::copy(from, path)
            .map(|_| ())
            .map_err(|e| failed("copy", path, &e)),
    }
}
