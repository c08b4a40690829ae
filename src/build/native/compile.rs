//! Compiles the plan's libraries in namespaces, on directories, with the same scripts as the Dockerfile.
//! Everything that the scripts would download is already in place, so they need no network.
//!
//! A compiled wheel is audited and then kept by its step's key, as in a Docker engine, so that either
//! engine can use what the other compiled.

use super::super::audit::AuditSpec;
use super::super::base::io as failed_at;
use super::super::{BuildError, BuildEvent, Objects, recorded, unmet};
use super::environment::variables;
use super::inputs::{Inputs, Needs};
use super::layers::NativeBuilder;
use super::toolchain::{Toolchain, present};
use super::wheels::compiled;
use crate::render::builder;
use stackforge_engine::{Event, StepFailure, StepKind};
use stackforge_image::store::{Action, Alone, ObjectFolder};
use stackforge_plan::{self as plan, Compile};
use stackforge_sandbox::{Memory, Mount, OWN, Outcome, Root, Sandbox};
use stackforge_stack::catalog::{template, templates_in};
use stackforge_stack::lock::{PythonFile, SourceLock};
use stackforge_types::Digest;
use stackforge_types::LogStream;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

/// Lines of a failed step's log that are shown.
const TAIL: usize = 30;
/// Time between two looks at whether another build has ended its compile.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Returns a library's sdist as a locked file. `None` for a git source.
pub(crate) fn source(compile: &Compile) -> Option<PythonFile> {
    match &compile.source {
        SourceLock::Sdist { file, sha256, size } => Some(PythonFile {
            name: compile.library.clone(),
            version: compile.source_version().to_owned(),
            file: file.clone(),
            size: *size,
            sha256: sha256.clone(),
            via: Vec::new(),
        }),
        SourceLock::Git { .. } => None,
    }
}

impl NativeBuilder<'_, '_> {
    /// Waits until no other process compiles this library with the same key. `None` if the store has the wheel by then.
    pub async fn alone(&mut self, step: &plan::Step) -> Result<Option<Alone>, BuildError> {
        let store = self.options.store;
        let mut is_waiting = false;
        loop {
            if self.cancel.is_cancelled() {
                return Err(BuildError::Stopped);
            }
            if let Some(alone) = store.try_alone(&step.key)? {
                let is_done = !self.options.no_cache && recorded::wheel(store, step).is_some();
                return Ok((!is_done).then_some(alone));
            }
            if !is_waiting {
                let step = step.id.to_string();
                (self.on)(BuildEvent::Waiting { step });
                is_waiting = true;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Compiles, audits and stores a library's wheel.
    pub async fn compile(
        &mut self,
        step: &plan::Step,
        compile: &Compile,
        need: &Needs,
        toolchain: Option<&Toolchain>,
        inputs: &Inputs,
    ) -> Result<(), BuildError> {
        let Some(toolchain) = toolchain else {
            return Err(BuildError::MustCompile {
                library: compile.library.clone(),
            });
        };
        let start = Instant::now();
        let mut job = Job {
            number: self.number(&step.id.to_string()),
            compile,
            need,
            log: &toolchain.log,
            jobs: self.options.jobs,
            may_retry: true,
        };
        let wheel = loop {
            match self.run_job(toolchain, inputs, &job).await? {
                Ended::CompiledWheel(wheel) => break wheel,
                Ended::Memory { jobs } => {
                    let name = step.id.to_string();
                    (self.on)(BuildEvent::Retry { step: name, jobs });
                    job.jobs = Some(jobs);
                    job.may_retry = false;
                }
            }
        };
        self.audited(step, compile, &wheel, start)
    }

    async fn run_job(
        &mut self,
        toolchain: &Toolchain,
        inputs: &Inputs,
        job: &Job<'_>,
    ) -> Result<Ended, BuildError> {
        let Job { compile, need, .. } = *job;
        let mut roots = toolchain.system.clone();
        block_in_place(|| {
            for wheel in present(compile, &inputs.wheels, &need.requires) {
                roots.push(self.wheel_tree(wheel)?);
            }
            Ok::<_, BuildError>(())
        })?;
        let scratch = self.options.store.scratch()?;
        let folder = scratch.path().join("inputs");
        self.lay_inputs(job, &folder)?;
        if let Some(wheel) = &inputs.compile_cache {
            link(wheel, &folder.join("compile-cache"))?;
        }
        let upper = scratch.path().join("upper");
        let root = Root::layers(roots, &upper);
        let command = ["sh", "/dev/stackforge/steps/compile.sh"];
        let mut sandbox = self.sandbox(root, &command, &folder)?;
        sandbox.env.extend(toolchain.env.clone());
        let tools = Mount::read_only(&toolchain.tools, Path::new(OWN).join("tools"));
        sandbox.mounts.push(tools);
        // Held until the compile has ended.
        let objects = inputs
            .compile_cache
            .as_ref()
            .and_then(|_| self.objects(compile));
        if let Some(objects) = &objects {
            sandbox.mounts.push(Mount::Bind {
                source: objects.path().to_owned(),
                target: Path::new(OWN).join("objects"),
                writable: true,
            });
        }
        let clones = compile.clones();
        if !clones.is_empty() {
            let tree = block_in_place(|| self.cloned(toolchain, compile, &clones))?;
            let cloned = tree.join("opt/source");
            let own = Path::new(OWN);
            if cloned.join("git").exists() {
                sandbox
                    .mounts
                    .push(Mount::read_only(&cloned, own.join("source")));
            }
            sandbox.mounts.push(Mount::read_only(
                cloned.join("fetched"),
                own.join("fetched"),
            ));
        }
        let outcome = self.run(&sandbox, job).await;
        let made = match outcome {
            Ok(None) => block_in_place(|| self.take(&upper, compile)).map(Ended::CompiledWheel),
            Ok(Some(jobs)) => Ok(Ended::Memory { jobs }),
            Err(e) => Err(e),
        };
        // This user may not remove files of subordinate user IDs directly.
        for left in [upper.clone(), upper.with_extension("work")] {
            if left.exists() {
                stackforge_sandbox::remove(None, &left).await?;
            }
        }
        made
    }

    /// Returns the directory of a library's objects. `None` if a compile has to go without.
    fn objects(&self, compile: &Compile) -> Option<ObjectFolder> {
        let store = self.options.store;
        let why = match store.objects(self.plan.platform, &compile.library) {
            Ok(Some(objects)) => return Some(objects),
            Ok(None) => "another build has them".to_owned(),
            Err(e) => stackforge_stack::diag::chain(&e),
        };
        tracing::warn!(
            "{} is compiled without the kept objects: {why}",
            compile.library
        );
        None
    }

    /// Returns the sandbox of a step, with the files of `inputs` mounted as in the Dockerfile.
    pub fn sandbox(
        &self,
        root: Root,
        command: &[&str],
        inputs: &Path,
    ) -> Result<Sandbox, BuildError> {
        let mut sandbox = Sandbox::new(root, command);
        for (name, value) in variables() {
            sandbox.env.insert(name.into(), value.into());
        }
        sandbox.env.insert("HOME".into(), "/root".into());
        let own = Path::new(OWN);
        let failed = |e| failed_at("list", inputs, e);
        for entry in std::fs::read_dir(inputs).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let target = own.join(entry.file_name());
            sandbox.mounts.push(Mount::read_only(entry.path(), target));
        }
        Ok(sandbox)
    }

    /// Writes the steps' scripts into `folder`.
    pub fn lay_scripts(&self, folder: &Path) -> Result<(), BuildError> {
        for (from, to) in [("steps", "steps/"), ("builders", "")] {
            for (name, text) in templates_in(from) {
                let own = template(self.options.overlay, &format!("{from}/{name}"));
                let text = own.as_deref().unwrap_or(text);
                write(&folder.join(format!("{to}{name}")), text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Writes the files that the compile script reads into `folder`.
    fn lay_inputs(&self, job: &Job<'_>, folder: &Path) -> Result<(), BuildError> {
        self.lay_scripts(folder)?;
        for (name, text) in builder(job.compile) {
            // The requirements are already installed.
            let text = if name == "requires.txt" { "" } else { &text };
            write(&folder.join("build").join(name), text.as_bytes())?;
        }
        if let Some(jobs) = job.jobs {
            write(&folder.join("jobs"), jobs.to_string().as_bytes())?;
        }
        let after = job.compile.after.iter();
        let after =
            after.filter_map(|library| self.plan.compiles().find(|c| c.library == *library));
        for before in after {
            let wheel = compiled(self.plan, &before.library, &before.version, self.options)?;
            let place = folder.join("after").join(&before.library);
            link(&wheel.path, &place)?;
        }
        if let Some(source) = &job.need.source {
            link(source, &folder.join("source"))?;
        }
        Ok(())
    }

    /// Runs the compile. `None` on success, else the number of jobs to try again with.
    async fn run(&mut self, sandbox: &Sandbox, job: &Job<'_>) -> Result<Option<u32>, BuildError> {
        let library = &job.compile.library;
        let name = format!("[builder-{library}] compile {library}");
        let failed = |e| failed_at("write", job.log, e);
        let log = File::options().create(true).append(true).open(job.log);
        let mut log = log.map_err(failed)?;
        let id = job.number;
        let start = Instant::now();
        let on = &mut *self.on;
        on(BuildEvent::Engine(Event::StepStarted {
            id,
            name: name.clone(),
            kind: StepKind::Run,
        }));
        let (mut tail, mut jobs, mut objects) = (VecDeque::new(), None, None);
        let mut on_output = |stream: LogStream, bytes: &[u8]| {
            let line =
                String::from_utf8_lossy(bytes).replace(|c: char| c != '\t' && c.is_control(), "");
            let seconds = start.elapsed().as_secs_f64();
            let _ = writeln!(log, "#{id} {seconds:.3} {line}");
            if let Some(count) = jobs_of(&line) {
                jobs = Some(count);
            }
            objects = Objects::of_line(&line).or(objects);
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line.clone());
            on(BuildEvent::Engine(Event::StepLog { id, stream, line }));
        };
        let outcome = sandbox.run(self.cancel, &mut on_output).await?;
        let error = (outcome.code() != 0).then(|| format!("exit code {}", outcome.code()));
        (self.on)(BuildEvent::Engine(Event::StepFinished {
            id,
            name: name.clone(),
            cached: false,
            seconds: start.elapsed().as_secs_f64(),
            error: error.clone(),
        }));
        if let Some(objects) = objects {
            let library = library.clone();
            (self.on)(BuildEvent::Objects { library, objects });
        }
        let Some(message) = error else {
            return Ok(None);
        };
        let failure = failure(id, name, message, &outcome, tail);
        let fewer = jobs.filter(|&jobs| jobs > 1 && failure.killed_for_memory);
        match fewer {
            Some(jobs) if job.may_retry => Ok(Some(jobs / 2)),
            _ => Err(BuildError::Step {
                failure: Box::new(failure),
                log: job.log.to_owned(),
            }),
        }
    }

    /// Audits and stores the one wheel that the script made.
    fn take(&self, upper: &Path, compile: &Compile) -> Result<Digest, BuildError> {
        let none = |why: String| BuildError::NoReport {
            reason: format!("the compiled wheel of {}: {why}", compile.library),
        };
        let folder = upper.join("opt/wheels");
        let entries = std::fs::read_dir(&folder).map_err(|e| none(e.to_string()))?;
        let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
        let mut names = names.filter(|n| n.ends_with(".whl"));
        let (Some(name), None) = (names.next(), names.next()) else {
            return Err(none("there is not one".to_owned()));
        };
        let path = folder.join(&name);
        // The compile wrote this folder: a symbolic link in it could lead out of the sandbox.
        let metadata = std::fs::symlink_metadata(&path).map_err(|e| none(e.to_string()))?;
        if !metadata.is_file() {
            return Err(none(format!("{name} is not a file")));
        }
        let file = File::open(&path).map_err(|e| failed_at("open the wheel", &path, e))?;
        let blob = self.options.store.put(file, None)?;
        self.options.store.named(&blob.digest, &name)?;
        Ok(blob.digest)
    }

    fn audited(
        &mut self,
        step: &plan::Step,
        compile: &Compile,
        wheel: &Digest,
        start: Instant,
    ) -> Result<(), BuildError> {
        let store = self.options.store;
        let file = store.names_of(wheel).into_iter().next().unwrap_or_default();
        let path = store.named(wheel, &file)?;
        let audit_spec = AuditSpec::of(self.plan, self.options.catalog);
        let audit = block_in_place(|| audit_spec.wheel(&path))?;
        if !audit.ok {
            return Err(BuildError::Audit {
                what: format!("the compiled wheel of {}", compile.library),
                audit: Box::new(audit),
            });
        }
        unmet::check(self.plan, self.options.catalog, &compile.library, &path)?;
        let action = Action {
            step: step.id.to_string(),
            outputs: [("wheel".to_owned(), wheel.clone())].into(),
            seconds: start.elapsed().as_secs_f64(),
            audit: serde_json::to_value(audit.count()).ok(),
            ..Action::default()
        };
        store.record(&step.key, &action)?;
        self.finished(&step.id, start);
        Ok(())
    }
}

/// One library that is being compiled.
struct Job<'a> {
    number: u32,
    compile: &'a Compile,
    need: &'a Needs,
    log: &'a Path,
    jobs: Option<u32>,
    /// Whether to try again with fewer jobs if memory runs out.
    may_retry: bool,
}

enum Ended {
    CompiledWheel(Digest),
    /// The compile was killed for lack of memory while it ran `jobs` jobs.
    Memory {
        jobs: u32,
    },
}

pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), BuildError> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent)
        .and_then(|()| std::fs::write(path, content))
        .map_err(|e| failed_at("write", path, e))
}

/// Puts a file into a folder under its own name, as a hard link, or as a copy on another file system.
pub(super) fn link(file: &Path, folder: &Path) -> Result<(), BuildError> {
    let to = folder.join(file.file_name().unwrap_or_default());
    std::fs::create_dir_all(folder)
        .and_then(|()| {
            std::fs::hard_link(file, &to).or_else(|_| std::fs::copy(file, &to).map(drop))
        })
        .map_err(|e| failed_at("write", &to, e))
}

pub(super) fn failure(
    id: u32,
    name: String,
    message: String,
    outcome: &Outcome,
    tail: VecDeque<String>,
) -> StepFailure {
    StepFailure {
        id,
        name,
        line: None,
        exit_code: Some(outcome.code()),
        killed_for_memory: outcome.memory != Memory::Enough,
        message,
        tail: tail.into(),
        finished: Vec::new(),
    }
}

/// Parses the number of jobs that the script prints.
fn jobs_of(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("stackforge: jobs=")?;
    rest.split(' ').next()?.parse().ok()
}
