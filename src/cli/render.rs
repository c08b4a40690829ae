//! `stackforge render`.

use super::Outcome;
use super::args::{Common, RenderArgs};
use super::output::{Failure, json, print, shown};
use super::progress::Progress;
use super::session::{Session, runtime};
use crate::build::{IndexSettings, Options, render_context};
use crate::diag::{Diagnostic, codes};
use crate::render::Content;
use stackforge_transfer::registry::PlainHttp;
use std::path::Path;

/// Marks a directory that may be rendered into again.
const MARK: &str = ".stackforge-rendered";

pub fn run(common: &Common, args: &RenderArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?.choose(args.variant.as_deref())?;
    let plan = session.plan(common)?;
    let options = Options {
        store: &session.store,
        catalog: &session.catalog,
        overlay: session.overlay.as_deref(),
        tags: Vec::new(),
        outputs: Vec::new(),
        plain_http: PlainHttp::default(),
        jobs: None,
        no_cache: false,
        index: IndexSettings::default(),
        stack: Some(&session.stack),
        offline: common.offline,
        config: &session.config,
        gpu: false,
    };
    prepare(&args.output)?;
    let mut progress = Progress::new(common);
    let (context, _scratch) = runtime()?.block_on(async {
        let mut on = |event| progress.on(&event);
        render_context(&plan, &options, &mut on).await
    })?;
    let files = context.len();
    for (path, content) in context {
        write(&args.output.join(path), &content)?;
    }
    if common.json {
        json(&serde_json::json!({ "ok": true, "directory": args.output, "files": files }));
    } else {
        let dir = shown(&args.output);
        print(&format!(
            "{dir}: {files} files; build with `docker build {dir}`\n"
        ));
    }
    Ok(())
}

fn failed(what: &str, path: &Path, e: &std::io::Error) -> Failure {
    Failure::plain(
        3,
        Diagnostic::error(codes::STORE_IO, format!("{what} {}: {e}", path.display())),
    )
}

/// The directory, new or emptied of what an earlier render left.
fn prepare(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|e| failed("create", dir, &e))?;
    let empty = std::fs::read_dir(dir)
        .map_err(|e| failed("read", dir, &e))?
        .next()
        .is_none();
    let mark = dir.join(MARK);
    if !empty && !mark.is_file() {
        return Err(Failure::plain(
            2,
            Diagnostic::error(
                codes::BAD_VALUE,
                format!("{} holds files that no render wrote", dir.display()),
            )
            .help("name a new or empty directory"),
        ));
    }
    for name in [
        "Dockerfile",
        "base",
        "builders",
        "locks",
        "os",
        "steps",
        "validate",
    ] {
        let path = dir.join(name);
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else if path.exists() {
            std::fs::remove_file(&path)
        } else {
            Ok(())
        };
        removed.map_err(|e| failed("remove", &path, &e))?;
    }
    std::fs::write(&mark, "").map_err(|e| failed("write", &mark, &e))
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
