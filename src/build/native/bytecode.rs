//! Makes the layer of byte code over a layer of wheels: what Python would write when a module is imported first.
//!
//! The image's own interpreter compiles the wheels' Python files in the sandbox, over the layers of its system.
//! It runs none of them. What it writes depends on its process too, so each file is brought to its normal form
//! (`stackforge_binary::pyc`): the layer is the same from any machine. For another platform an emulator runs the
//! interpreter. Where nothing can run it, the image has no byte code, and says so.

use super::super::BuildError;
use super::super::base::io as failed_at;
use super::compile::write;
use super::emulator::Runner;
use super::inputs::Inputs;
use super::layers::NativeBuilder;
use stackforge_binary::pyc;
use stackforge_binary::source::FileSource;
use stackforge_image::Layer;
use stackforge_image::layer::{self, Install};
use stackforge_plan::{self as plan, Op, Step};
use stackforge_sandbox::{Mount, OWN, Root, Sandbox, SandboxError};
use stackforge_stack::catalog::template;
use stackforge_types::root;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::runtime::Handle;

/// Largest Python file that is compiled, in bytes, as the script has it.
const LARGEST: u64 = 16 << 20;

/// Python files of a layer: their paths below the root.
type Sources = Vec<String>;

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
        let known = self.known(step);
        if let Some(layers) = known {
            self.without_bytecode |= !bytecode.runs;
            self.found(step);
            return Ok(layers.into_iter().next());
        }
        let of = bytecode.of.as_ref().and_then(|id| self.plan.step(id));
        let Some(Op::Layer(wheels)) = of.map(|step| &step.op) else {
            return Ok(None);
        };
        let start = Instant::now();
        let runner = Runner::of(self.plan.platform).filter(|_| bytecode.runs);
        let Some(runner) = runner else {
            self.no_bytecode(&format!(
                "no program of {} runs on this machine: install qemu-user-static",
                self.plan.platform
            ));
            self.nothing(step)?;
            return Ok(None);
        };
        let scratch = self.options.store.scratch()?;
        let tree = scratch.path().join("sources");
        let sources = self.sources(wheels, inputs, &tree)?;
        let upper = scratch.path().join("upper");
        let made = if sources.is_empty() {
            BTreeMap::new()
        } else {
            match self.compiled_files(step, below, &tree, &upper, &runner, &sources) {
                Err(BuildError::Sandbox(
                    e @ (SandboxError::NotAllowed { .. } | SandboxError::Overlay { .. }),
                )) => {
                    self.no_bytecode(&format!("{e}; {}", e.help()));
                    return Ok(None);
                }
                made => made?,
            }
        };
        if made.is_empty() {
            self.nothing(step)?;
            return Ok(None);
        }
        let about = bytecode.of.as_ref().map(ToString::to_string);
        let about = format!("byte code of {}", about.unwrap_or_default());
        let spec = self.spec();
        let layer = self.made_layer(step, |file| {
            let written = layer::files(&spec, made, file)?;
            Ok(written.layer.described(about, Vec::new()))
        })?;
        self.finished(&step.id, start);
        Ok(Some(layer))
    }

    /// Says once why the image has no byte code.
    fn no_bytecode(&mut self, why: &str) {
        if !self.without_bytecode {
            tracing::warn!("the image has no byte code of its Python files: {why}");
        }
        self.without_bytecode = true;
    }

    /// Lays the Python files of a layer of wheels below `tree`.
    fn sources(
        &self,
        of: &plan::Layer,
        inputs: &Inputs,
        tree: &Path,
    ) -> Result<Sources, BuildError> {
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
        let mut sources = Sources::new();
        std::fs::create_dir(tree).map_err(|e| failed_at("create", tree, e))?;
        layer::installed(&spec, &installs, &wanted, &mut |path, content| {
            sources.push(path.to_owned());
            write(&tree.join(path), content)
        })?;
        Ok(sources)
    }

    /// Compiles the files below `tree` and returns the byte code of each that compiles, by its path.
    fn compiled_files(
        &mut self,
        step: &Step,
        below: &[Layer],
        tree: &Path,
        upper: &Path,
        runner: &Runner,
        sources: &Sources,
    ) -> Result<BTreeMap<String, Vec<u8>>, BuildError> {
        let system = self.image_of(below)?;
        let mut roots = self.trees(&system)?;
        roots.push(tree.to_owned());
        let sandbox = self.interpreter(Root::layers(roots, upper), runner);
        let ran = self.run_logged(&step.id, "compile Python files", &sandbox);
        let made = ran.and_then(|()| self.normal(upper, sources));
        // This user may not remove files of subordinate user IDs directly.
        for left in [upper.to_owned(), upper.with_extension("work")] {
            if left.exists() {
                Handle::current().block_on(stackforge_sandbox::remove(None, &left))?;
            }
        }
        made
    }

    /// Returns the sandbox in which the image's interpreter runs the script.
    fn interpreter(&self, root: Root, runner: &Runner) -> Sandbox {
        let own = Path::new(OWN);
        let emulator = own.join("emulator");
        let python = format!("/usr/bin/python{}", self.plan.python);
        let script = own.join("steps/bytecode.py");
        let mut command: Vec<PathBuf> = vec![python.into()];
        command.extend(["-I", "-S", "-B"].map(PathBuf::from));
        command.push(script);
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

    /// Reads the byte code that was written in `upper`, in its normal form.
    fn normal(
        &self,
        upper: &Path,
        sources: &Sources,
    ) -> Result<BTreeMap<String, Vec<u8>>, BuildError> {
        let tag = format!("cpython-{}", self.plan.python.to_string().replace('.', ""));
        let upper = root::Root::new(upper);
        let mut made = BTreeMap::new();
        for source in sources {
            if self.cancel.is_cancelled() {
                return Err(BuildError::Stopped);
            }
            let (folder, name) = source.rsplit_once('/').unwrap_or(("", source));
            let stem = name.strip_suffix(".py").unwrap_or(name);
            let path = format!("{folder}/__pycache__/{stem}.{tag}.pyc");
            let most = pyc::MOST_BYTES as u64 + 1;
            // What does not compile has none.
            let Some(bytes) = upper.bytes(&path, most) else {
                continue;
            };
            match pyc::normalized(&bytes) {
                Ok(bytes) => {
                    made.insert(path, bytes);
                }
                Err(e) => tracing::warn!("no byte code of {source}: {e}"),
            }
        }
        Ok(made)
    }

    /// Passes the file of a step's layer to `make`, and stores it.
    fn made_layer(
        &mut self,
        step: &Step,
        make: impl FnOnce(&File) -> Result<Layer, BuildError>,
    ) -> Result<Layer, BuildError> {
        let compiled = super::super::recorded::compiled(self.options.store, self.plan, step);
        self.made(&step.id.to_string(), &step.key, compiled, |_, file| {
            make(file)
        })
    }
}
