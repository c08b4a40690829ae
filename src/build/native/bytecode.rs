//! Makes the layer of byte code over a layer of wheels: what Python would write when a module is imported first.
//!
//! The image's own interpreter compiles the wheels' Python files in the sandbox, over the layers of its system.
//! It runs none of them. What it writes depends on its process too, so each file is brought to its normal form
//! (`stackforge_binary::pyc`): the layer is the same from any machine. For another platform an emulator runs the
//! interpreter. Where nothing can run it, the image has no byte code, and says so.

use super::super::BuildError;
use super::super::base::io as failed_at;
use super::compile::write;
use super::emulator::{Runner, missing};
use super::inputs::Inputs;
use super::layers::NativeBuilder;
use stackforge_binary::pyc;
use stackforge_binary::source::FileSource;
use stackforge_image::Layer;
use stackforge_image::layer::{self, Install};
use stackforge_plan::{self as plan, Op, Step, StepId};
use stackforge_sandbox::{Mount, OWN, Root, Sandbox};
use stackforge_stack::catalog::template;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::runtime::Handle;

/// Byte code by its path below the root.
type Files = BTreeMap<String, Vec<u8>>;

/// Largest Python file that is compiled, in bytes, as the script has it.
const LARGEST: u64 = 16 << 20;

/// Most levels of folders of a system's Python files.
const DEEPEST: usize = 40;

impl NativeBuilder<'_, '_> {
    /// Makes the layer. `None` if there is no Python file, or nothing runs the interpreter here. `below` are the
    /// layers of the system.
    pub fn bytecode(
        &mut self,
        step: &Step,
        bytecode: &plan::Bytecode,
        below: &[Layer],
        inputs: &Inputs,
    ) -> Result<Option<Layer>, BuildError> {
        if let Some(layers) = self.known(step) {
            self.without_bytecode |= !bytecode.runs;
            self.found(step);
            return Ok(layers.into_iter().next());
        }
        let Some(runner) = Runner::of(self.plan.platform).filter(|_| bytecode.runs) else {
            self.no_bytecode(&missing(self.plan.platform));
            self.nothing(step)?;
            return Ok(None);
        };
        self.with_events(&step.id.to_string(), |builder| {
            builder.compile_python(step, bytecode, below, &runner, inputs)
        })
    }

    fn compile_python(
        &mut self,
        step: &Step,
        bytecode: &plan::Bytecode,
        below: &[Layer],
        runner: &Runner,
        inputs: &Inputs,
    ) -> Result<Option<Layer>, BuildError> {
        let start = Instant::now();
        let of = bytecode.of.as_ref().and_then(|id| self.plan.step(id));
        let made = match of.map(|step| &step.op) {
            Some(Op::Layer(wheels)) => self.of_wheels(step, wheels, below, runner, inputs),
            _ => self.of_system(step, below, runner),
        };
        let made = match made {
            Err(BuildError::Sandbox(e)) if e.is_of_machine() => {
                self.no_bytecode(&format!("{e}; {}", e.help()));
                return Ok(None);
            }
            made => made?,
        };
        if made.is_empty() {
            self.nothing(step)?;
            return Ok(None);
        }
        let about = match of.map(|step| &step.id) {
            Some(StepId::Base) | None => format!("python{}", self.plan.python),
            Some(id) => id.to_string(),
        };
        let spec = self.spec();
        let layer = self.made_layer(step, |builder, file| {
            let written =
                builder.read_once(|on_plain| Ok(layer::files(&spec, made, file, on_plain)?))?;
            let about = format!("byte code of {about}");
            Ok(written.layer.described(about, Vec::new()))
        })?;
        self.finished(&step.id, start);
        Ok(Some(layer))
    }

    /// Compiles the files of a layer of wheels.
    fn of_wheels(
        &mut self,
        step: &Step,
        wheels: &plan::StitchedLayer,
        below: &[Layer],
        runner: &Runner,
        inputs: &Inputs,
    ) -> Result<Files, BuildError> {
        let scratch = self.options.store.scratch()?;
        let tree = scratch.path().join("sources");
        if self.sources(wheels, inputs, &tree)? == 0 {
            return Ok(Files::new());
        }
        let upper = scratch.path().join("upper");
        self.compiled_files(step, below, Some(tree), &upper, runner, "environment")
    }

    /// Compiles the files of the system that have no byte code.
    fn of_system(
        &mut self,
        step: &Step,
        below: &[Layer],
        runner: &Runner,
    ) -> Result<Files, BuildError> {
        let scratch = self.options.store.scratch()?;
        let upper = scratch.path().join("upper");
        self.compiled_files(step, below, None, &upper, runner, "system")
    }

    /// Says once why the image has no byte code.
    fn no_bytecode(&mut self, why: &str) {
        if !self.without_bytecode {
            tracing::warn!("the image has no byte code of its Python files: {why}");
        }
        self.without_bytecode = true;
    }

    /// Lays the Python files of a layer of wheels below `tree` and returns how many there are.
    fn sources(
        &self,
        of: &plan::StitchedLayer,
        inputs: &Inputs,
        tree: &Path,
    ) -> Result<usize, BuildError> {
        let spec = self.spec();
        let opened = self.opened(of, inputs)?;
        let unchanged = BTreeMap::new();
        let installs: Vec<Install<'_, FileSource>> = opened
            .iter()
            .zip(&of.wheels)
            .map(|(wheel, of)| Install {
                wheel,
                requested: of.requested,
                drop: &of.drop,
                changed: &unchanged,
            })
            .collect();
        let sites = [&spec.scheme.purelib, &spec.scheme.platlib];
        let sites = sites.map(|site| format!("{}/", site.trim_start_matches('/')));
        let wanted = |path: &str, size: u64| {
            let is_below = sites.iter().any(|site| path.starts_with(site));
            is_below && path.ends_with(".py") && size <= LARGEST
        };
        let mut sources = 0;
        std::fs::create_dir(tree).map_err(|e| failed_at("create", tree, e))?;
        layer::installed(&spec, &installs, &wanted, |path, content| {
            sources += 1;
            write(&tree.join(path), content)
        })?;
        Ok(sources)
    }

    /// Runs the script over the system and `tree`; returns the byte code that it wrote.
    fn compiled_files(
        &mut self,
        step: &Step,
        below: &[Layer],
        tree: Option<PathBuf>,
        upper: &Path,
        runner: &Runner,
        of: &str,
    ) -> Result<Files, BuildError> {
        let system = self.image_of(below)?;
        let mut roots = self.trees(&system)?;
        roots.extend(tree);
        let sandbox = self.interpreter(Root::layers(roots, upper), runner, of);
        let ran = self.run_logged(&step.id, "compile Python files", &sandbox);
        let made = ran.and_then(|()| {
            let mut made = Files::new();
            self.normal(upper, String::new(), DEEPEST, &mut made)?;
            Ok(made)
        });
        // This user may not remove files of subordinate user IDs directly.
        for left in [upper.to_owned(), upper.with_extension("work")] {
            if left.exists() {
                Handle::current().block_on(stackforge_sandbox::remove(None, &left))?;
            }
        }
        made
    }

    /// Returns the sandbox in which the image's interpreter runs the script.
    fn interpreter(&self, root: Root, runner: &Runner, of: &str) -> Sandbox {
        let own = Path::new(OWN);
        let emulator = own.join("emulator");
        let python = format!("/usr/bin/python{}", self.plan.python);
        let script = own.join("steps/bytecode.py");
        let mut command: Vec<PathBuf> = vec![python.into()];
        command.extend(["-I", "-S", "-B"].map(PathBuf::from));
        command.extend([script, of.into()]);
        let mut mounts = Vec::new();
        if let Runner::Emulator(program) = runner {
            command.insert(0, emulator.clone());
            mounts.push(Mount::read_only(program, emulator));
        }
        let text = template(self.options.overlay, "steps/bytecode.py").unwrap_or_default();
        mounts.push(Mount::Files {
            target: own.join("steps"),
            files: [("bytecode.py".to_owned(), text.into_owned())].into(),
        });
        let mut sandbox = Sandbox::new(root, command);
        sandbox.mounts = mounts;
        sandbox
    }

    /// Reads the byte code that was written below `folder` of `upper`, in its normal form. Follows no link.
    fn normal(
        &self,
        upper: &Path,
        folder: String,
        levels: usize,
        made: &mut Files,
    ) -> Result<(), BuildError> {
        let at = upper.join(&folder);
        let failed = |e| failed_at("list", &at, e);
        for entry in std::fs::read_dir(&at).map_err(failed)? {
            if self.cancel.is_cancelled() {
                return Err(BuildError::Stopped);
            }
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = if folder.is_empty() {
                name
            } else {
                format!("{folder}/{name}")
            };
            if kind.is_dir() && levels > 0 {
                self.normal(upper, path, levels - 1, made)?;
            } else if kind.is_file() && path.ends_with(".pyc") && folder.ends_with("/__pycache__") {
                match pyc::normalized(&content(&entry.path())?) {
                    Ok(bytes) => {
                        made.insert(path, bytes);
                    }
                    Err(e) => tracing::warn!("{path} is left out: {e}"),
                }
            }
        }
        Ok(())
    }

    /// Passes the file of a step's layer to `make`, and stores it.
    fn made_layer(
        &mut self,
        step: &Step,
        make: impl FnOnce(&mut Self, &File) -> Result<Layer, BuildError>,
    ) -> Result<Layer, BuildError> {
        let compiled = super::super::recorded::compiled(self.options.store, self.plan, step);
        self.made(&step.id.to_string(), &step.key, compiled, make)
    }
}

/// Reads a byte code file, up to one byte more than a normal form may be made of.
fn content(path: &Path) -> Result<Vec<u8>, BuildError> {
    let failed = |e| failed_at("read", path, e);
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(pyc::MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}
