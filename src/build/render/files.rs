//! Makes the files of the context besides the Dockerfile.

use super::quote::sh;
use super::{BaseImage, Content, Context, Options, RenderError};
use stackforge_plan::{Cloned, Compile, Op, Plan, Runtime};
use stackforge_stack::catalog::templates_in;
use stackforge_stack::lock::{OsPackageLock, PythonFile, SourceLock};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Returns what a Dockerfile adds over the wheels.
pub(super) fn runtime(plan: &Plan) -> Option<&Runtime> {
    plan.steps.iter().find_map(|s| match &s.op {
        Op::Runtime(runtime) => Some(runtime),
        _ => None,
    })
}

pub(super) fn context(plan: &Plan, options: &Options<'_>) -> Result<Context, RenderError> {
    let mut context = Context::new();
    let mut text = |path: String, text: String| context.insert(path, Content::Text(text));
    for folder in ["steps", "validate"] {
        for (name, content) in templates_in(folder) {
            let path = format!("{folder}/{name}");
            let own = super::template(options.overlay, &path);
            text(path, own.map_or_else(|| content.to_owned(), Into::into));
        }
    }
    text("validate/spec.json".into(), plan.promise());
    text(
        "locks/tools.txt".into(),
        requirements(plan.tools().map_or(&[], |t| &t.installers)),
    );
    let none = BTreeMap::new();
    let slim = runtime(plan).map_or(&none, |r| &r.slim);
    let slim = serde_json::to_string_pretty(slim).unwrap_or_default();
    text("locks/slim.json".into(), slim + "\n");
    for layer in plan.groups() {
        text(
            format!("locks/{}.txt", layer.group),
            requirements(&layer.wheels),
        );
    }
    let installed = plan.installed();
    let lines = installed.map(|(name, version)| format!("{name}=={version}\n"));
    text("locks/installed.txt".into(), lines.collect());
    if plan.compiles().next().is_some() {
        for (name, content) in templates_in("builders") {
            let path = format!("builders/{name}");
            let own = super::template(options.overlay, &path);
            text(path, own.map_or_else(|| content.to_owned(), Into::into));
        }
    }
    for compile in plan.compiles() {
        for (name, content) in builder(compile) {
            text(format!("builders/{}/{name}", compile.library), content);
        }
    }
    let builder = plan.tools().map_or(&[][..], |t| &t.packages);
    let bootstrap = plan.base().bootstrap;
    if bootstrap || locked(plan.packages()) || locked(builder) {
        text(
            "steps/debs.sh".into(),
            stackforge_debian::configure::INSTALL.to_owned(),
        );
    }
    if let (true, BaseImage::Tar(tar)) = (bootstrap, &options.base) {
        text(
            "steps/configure.sh".into(),
            format!("{}\n", stackforge_debian::configure::CONFIGURE),
        );
        context.insert("base/rootfs.tar".into(), Content::File(tar.clone()));
    }
    for compile in plan.compiles() {
        let SourceLock::Sdist { file, sha256, .. } = &compile.source else {
            continue;
        };
        if options.wheels.contains_key(&compile.library) {
            continue;
        }
        let from = options.debs.join(sha256);
        if !from.is_file() {
            return Err(RenderError::SourceMissing {
                library: compile.library.clone(),
                file: file.clone(),
                folder: options.debs.to_owned(),
            });
        }
        let path = format!("sources/{}/{file}", compile.library);
        context.insert(path, Content::File(from));
    }
    for (library, wheel) in options.wheels {
        if let Some(name) = wheel.file_name().and_then(|n| n.to_str()) {
            let path = format!("compiled/{library}/{name}");
            context.insert(path, Content::File(wheel.clone()));
        }
    }
    for (folder, packages, used) in [
        ("os/runtime", plan.packages(), true),
        ("os/builder", builder, options.compiles(plan)),
    ] {
        if !used || !locked(packages) {
            continue;
        }
        for (place, package) in packages.iter().enumerate() {
            let (Some(sha256), Some(path)) = (&package.sha256, &package.path) else {
                continue;
            };
            let file = options.debs.join(sha256);
            if !file.is_file() {
                return Err(RenderError::DebMissing {
                    name: package.name.clone(),
                    folder: options.debs.to_owned(),
                });
            }
            // The number keeps the order in which packages are unpacked.
            let name = path.rsplit('/').next().unwrap_or(path);
            context.insert(format!("{folder}/{place:04}-{name}"), Content::File(file));
        }
    }
    Ok(context)
}

/// Whether the lock has a file and a digest for every package.
pub(super) fn locked(packages: &[OsPackageLock]) -> bool {
    !packages.is_empty()
        && packages
            .iter()
            .all(|p| p.sha256.is_some() && p.path.is_some())
}

/// Returns a pip requirements file with hashes.
pub fn requirements(files: &[PythonFile]) -> String {
    files.iter().fold(String::new(), |mut out, f| {
        let _ = writeln!(out, "{}=={} --hash=sha256:{}", f.name, f.version, f.sha256);
        out
    })
}

/// Returns the input files of one compile, by name.
pub fn builder(compile: &Compile) -> Vec<(&'static str, String)> {
    let mut env = String::new();
    let mut export = |name: &str, value: &str| {
        let _ = writeln!(env, "export {name}={}", sh(value));
    };
    for (name, value) in &compile.env {
        export(name, value);
    }
    export("STACKFORGE_VERSION", &compile.version);
    export("STACKFORGE_SMS", &compile.sms);
    export("STACKFORGE_JOBS_VARIABLE", &compile.jobs.variable);
    export(
        "STACKFORGE_JOB_MIB",
        &compile.jobs.memory_mib.max(1).to_string(),
    );
    if let Some(max) = compile.jobs.max {
        export("STACKFORGE_JOBS_MAX", &max.to_string());
    }
    if let Some(variable) = &compile.jobs.threads_variable {
        export(variable, &compile.jobs.threads.to_string());
    }
    if let Some(home) = &compile.toolkit_home {
        export("STACKFORGE_TOOLKIT", home);
    }
    let patches = serde_json::to_string_pretty(&compile.patches).unwrap_or_default();
    let mut files = vec![
        ("env.sh", env),
        ("requires.txt", requirements(&compile.requires)),
        ("patches.json", patches + "\n"),
    ];
    if let SourceLock::Sdist { file, sha256, .. } = &compile.source {
        // In the format of `sha256sum --check`.
        files.push(("sdist.txt", format!("{sha256}  {file}\n")));
    }
    let clones = compile.clones();
    if !clones.is_empty() {
        let line = |c: &Cloned| format!("{} {} {}\n", c.url, c.revision, c.folder);
        files.push(("git.txt", clones.iter().map(line).collect()));
    }
    if !compile.commands.is_empty() {
        files.push(("commands.sh", compile.commands.join("\n") + "\n"));
    }
    files
}
