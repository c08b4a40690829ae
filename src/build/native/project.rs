//! Builds the wheel of the app's own project in the sandbox, over the layers of the Python environment.

use super::super::BuildError;
use super::super::base::io as failed_at;
use super::super::service::project;
use super::emulator::{Runner, missing};
use super::environment::variables;
use super::layers::NativeBuilder;
use super::wheels;
use stackforge_image::assemble::Assembled;
use stackforge_plan::Step;
use stackforge_sandbox::{Mount, OWN, Root, Sandbox};
use stackforge_types::Digest;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

/// Longest name of a wheel's file, in bytes.
const LONGEST_NAME: u64 = 255;

impl NativeBuilder<'_, '_> {
    /// Builds the project's wheel, or finds it. `None` if the app is not installed. `below` is the image of the
    /// environment.
    pub async fn project(&mut self, below: &Assembled) -> Result<Option<Digest>, BuildError> {
        let Some((step, project)) = self.plan.project() else {
            return Ok(None);
        };
        if let Some(wheel) = project::made(self.plan, self.options) {
            self.found(step);
            return Ok(Some(wheel));
        }
        let what = "what builds the app";
        let requires = wheels::files(&project.requires, what, self.options, self.on).await?;
        block_in_place(|| self.build_project(step, below, &requires)).map(Some)
    }

    fn build_project(
        &mut self,
        step: &Step,
        below: &Assembled,
        requires: &[PathBuf],
    ) -> Result<Digest, BuildError> {
        let start = Instant::now();
        let platform = self.plan.platform;
        let runner = Runner::of(platform).ok_or_else(|| BuildError::Project {
            why: missing(platform),
        })?;
        let image = self.at_rest(below)?;
        let roots = self.trees(&image)?;
        let scratch = self.options.store.scratch()?;
        let inputs = scratch.path().join("inputs");
        std::fs::create_dir(&inputs).map_err(|e| failed_at("create", &inputs, e))?;
        project::lay(self.plan, self.options, requires, &inputs)?;
        let upper = scratch.path().join("upper");
        let sandbox = sandbox(Root::layers(roots, &upper), &runner, &inputs);
        let ran = self.run_logged(&step.id, "build the app's wheel", &sandbox);
        let made = ran.and_then(|()| self.taken(&upper, start));
        // This user may not remove files of subordinate user IDs directly.
        for left in [upper.clone(), upper.with_extension("work")] {
            if left.exists() {
                Handle::current().block_on(stackforge_sandbox::remove(None, &left))?;
            }
        }
        let wheel = made?;
        self.finished(&step.id, start);
        Ok(wheel)
    }

    /// Stores the wheel that the script left. What the build wrote may be anything, links out of it too.
    fn taken(&self, upper: &Path, start: Instant) -> Result<Digest, BuildError> {
        let unfit = |why: String| BuildError::Project { why };
        let regular = |path: &str| {
            let path = upper.join(path.trim_start_matches('/'));
            let is_file = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file());
            let opened = is_file.then(|| File::open(&path).ok()).flatten();
            opened.ok_or_else(|| unfit("its build left no wheel".to_owned()))
        };
        let is_folder = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
        if !is_folder(&upper.join("opt")) || !is_folder(&upper.join("opt/wheels")) {
            return Err(unfit("its build left no wheel".to_owned()));
        }
        let mut name = String::new();
        let file = regular(project::NAME)?;
        file.take(LONGEST_NAME)
            .read_to_string(&mut name)
            .map_err(|e| unfit(format!("its wheel has no name: {e}")))?;
        if name.contains('/') {
            return Err(unfit(format!("its wheel is named `{name}`")));
        }
        let wheel = regular(&format!("{}/{name}", project::WHEELS))?;
        project::keep(self.plan, self.options, &name, wheel, start)
    }
}

fn sandbox(root: Root, runner: &Runner, inputs: &Path) -> Sandbox {
    let mut command: Vec<PathBuf> = project::command().into_iter().map(PathBuf::from).collect();
    let mut mounts = vec![Mount::read_only(inputs, project::INPUTS)];
    if let Runner::Emulator(program) = runner {
        let emulator = Path::new(OWN).join("emulator");
        command.insert(0, emulator.clone());
        mounts.push(Mount::read_only(program, emulator));
    }
    let mut sandbox = Sandbox::new(root, command);
    for (name, value) in variables() {
        sandbox.env.insert(name.into(), value.into());
    }
    sandbox.mounts = mounts;
    sandbox
}
