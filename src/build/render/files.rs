//! Makes the files of the context besides the Dockerfile.

use super::quote::sh;
use super::{BaseImage, Content, Context, Options, RenderError};
use stackforge_plan::{Cloned, Compile, Op, Plan, Runtime};
use stackforge_stack::catalog::templates_in;
use stackforge_stack::lock::{OsPackageLock, PythonFile, SourceLock};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The scripts of `templates/steps` that each kind of RUN reads. A RUN mounts a folder that has these and no
/// other, so that it runs again when one of them changes and not when another one does.
const SCRIPTS: [(&str, &[&str]); 10] = [
    ("packages", &["packages.sh", "net.sh"]),
    ("tools", &["tools.sh", "net.sh"]),
    ("venv", &["venv.sh"]),
    ("wheels", &["wheels.sh", "guard.sh", "net.sh", "forget.sh"]),
    ("clone", &["clone.sh", "net.sh"]),
    ("requires", &["requires.sh", "guard.sh", "net.sh"]),
    (
        "compile",
        &["compile.sh", "memory.py", "objects.sh", "offline.py"],
    ),
    ("compiled", &["compiled.sh", "guard.sh", "forget.sh"]),
    ("slim", &["slim.py"]),
    ("bytecode", &["bytecode.py"]),
];

/// Returns what a Dockerfile adds over the wheels.
pub(super) fn runtime(plan: &Plan) -> Option<&Runtime> {
    plan.steps.iter().find_map(|s| match &s.op {
        Op::Runtime(runtime) => Some(runtime),
        _ => None,
    })
}

pub(super) fn context(plan: &Plan, options: &Options<'_>) -> Result<Context, RenderError> {
    let mut context = Context::new();
    scripts(plan, options, &mut context);
    locks(plan, options, &mut context);
    let builder = plan.tools().map_or(&[][..], |t| &t.packages);
    let bootstrap = plan.base().bootstrap;
    if bootstrap || locked(plan.packages()) || locked(builder) {
        let script = stackforge_debian::configure::INSTALL.to_owned();
        context.insert("steps/debs/debs.sh".into(), Content::Text(script));
    }
    if let (true, BaseImage::Tar(tar)) = (bootstrap, &options.base) {
        let script = format!("{}\n", stackforge_debian::configure::CONFIGURE);
        let path = "steps/configure/configure.sh".to_owned();
        context.insert(path, Content::Text(script));
        context.insert("base/rootfs.tar".into(), Content::File(tar.clone()));
    }
    sources(plan, options, &mut context)?;
    for (library, wheel) in options.wheels {
        if let Some(name) = wheel.file_name().and_then(|n| n.to_str()) {
            let path = format!("compiled/{library}/{name}");
            context.insert(path, Content::File(wheel.clone()));
        }
    }
    debs("os/runtime", plan.packages(), options, &mut context)?;
    if options.compiles(plan) {
        debs("os/builder", builder, options, &mut context)?;
        if let Some((name, wheel)) = options.compile_cache {
            let path = format!("compile-cache/{name}");
            context.insert(path, Content::File(wheel.to_owned()));
        }
    }
    Ok(context)
}

/// Adds the scripts of the steps, of the validation and of compiles: the user's own where there are such.
fn scripts(plan: &Plan, options: &Options<'_>, context: &mut Context) {
    let own = |path: &str, content: &str| {
        let own = super::template(options.overlay, path);
        Content::Text(own.map_or_else(|| content.to_owned(), Into::into))
    };
    for (name, content) in templates_in("steps") {
        for (step, _) in SCRIPTS
            .iter()
            .filter(|(_, names)| names.contains(&name.as_str()))
        {
            let content = own(&format!("steps/{name}"), content);
            context.insert(format!("steps/{step}/{name}"), content);
        }
    }
    let compiles = plan.compiles().next().is_some();
    let folders = [("validate", true), ("builders", compiles)];
    for (folder, _) in folders.iter().filter(|(_, used)| *used) {
        for (name, content) in templates_in(folder) {
            let path = format!("{folder}/{name}");
            let content = own(&path, content);
            context.insert(path, content);
        }
    }
}

/// Adds what is installed, by version and digest, and what a compile is told.
fn locks(plan: &Plan, options: &Options<'_>, context: &mut Context) {
    let mut direct: Vec<(String, Content)> = Vec::new();
    let mut text = |path: String, text: String| context.insert(path, Content::Text(text));
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
        let mut lines = requirements(&layer.wheels);
        let before = direct.len();
        for wheel in &layer.wheels {
            if let Some(path) = options.direct.get(&wheel.file) {
                let name = format!("direct/{}/{}", layer.group, wheel.file);
                direct.push((name, Content::File(path.clone())));
            }
        }
        if direct.len() > before {
            lines.insert_str(0, "--find-links /dev/stackforge/direct\n");
        }
        text(format!("locks/{}.txt", layer.group), lines);
    }
    let installed = plan.installed();
    let lines = installed.map(|(name, version)| format!("{name}=={version}\n"));
    text("locks/installed.txt".into(), lines.collect());
    for compile in plan.compiles() {
        for (name, content) in builder(compile) {
            text(format!("builders/{}/{name}", compile.library), content);
        }
    }
    context.extend(direct);
}

/// Adds the source distributions of what has to be compiled.
fn sources(plan: &Plan, options: &Options<'_>, context: &mut Context) -> Result<(), RenderError> {
    for compile in plan.compiles() {
        let SourceLock::Sdist { file, sha256, .. } = &compile.source else {
            continue;
        };
        if options.wheels.contains_key(&compile.library) {
            continue;
        }
        let from = options.debs.join(sha256.hex());
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
    Ok(())
}

/// Adds OS packages by digest to a folder; those that are locked by name alone are installed from the
/// base's archive.
fn debs(
    folder: &str,
    packages: &[OsPackageLock],
    options: &Options<'_>,
    context: &mut Context,
) -> Result<(), RenderError> {
    if !locked(packages) {
        return Ok(());
    }
    for (place, package) in packages.iter().enumerate() {
        let (Some(sha256), Some(path)) = (&package.sha256, &package.path) else {
            continue;
        };
        let file = options.debs.join(sha256.hex());
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
    Ok(())
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
        let _ = writeln!(out, "{}=={} --hash={}", f.name, f.version, f.sha256);
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
        files.push(("sdist.txt", format!("{}  {file}\n", sha256.hex())));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_belongs_to_a_step() {
        let scripts = templates_in("steps");
        assert!(!scripts.is_empty());
        // The build of an app's project has a Dockerfile of its own.
        let own = |name: &String| name == "project.py";
        for (name, _) in scripts.iter().filter(|(name, _)| !own(name)) {
            let named = |(_, names): &&(&str, &[&str])| names.contains(&name.as_str());
            assert!(SCRIPTS.iter().any(|step| named(&step)), "{name}");
        }
        for name in SCRIPTS.iter().flat_map(|(_, names)| *names) {
            assert!(scripts.iter().any(|(script, _)| script == name), "{name}");
        }
    }
}
