//! Clones git sources before they are compiled. Only this step of a build has a network, and the only
//! programs in it are git and a shell of the base.

use super::super::BuildError;
use super::super::base::io as failed_at;
use super::super::secrets::{ca_bundle, proxies};
use super::compile::write;
use super::layers::NativeBuilder;
use super::toolchain::Toolchain;
use crate::render::builder;
use stackforge_plan::{Cloned, Compile};
use stackforge_sandbox::{Network, Root};
use stackforge_stack::catalog::template;
use stackforge_types::Digest;
use std::path::PathBuf;

impl NativeBuilder<'_, '_> {
    /// Returns a tree of the store with all clones of a library and their submodules in `opt/source`.
    pub fn cloned(
        &self,
        toolchain: &Toolchain,
        compile: &Compile,
        clones: &[Cloned],
    ) -> Result<PathBuf, BuildError> {
        let script = template(self.options.overlay, "steps/clone.sh").unwrap_or_default();
        let key = serde_json::json!({
            "cloned": clones,
            "script": Digest::of(script.as_bytes()),
        });
        let key = Digest::of(key.to_string().as_bytes());
        self.options.store.tree(&key, |into| {
            let scratch = self.options.store.scratch()?;
            let inputs = scratch.path();
            self.lay_scripts(inputs)?;
            for (name, text) in builder(compile) {
                write(&inputs.join("build").join(name), text.as_bytes())?;
            }
            if let Some(path) = ca_bundle() {
                let ca = std::fs::read(&path).map_err(|e| failed_at("read", &path, e))?;
                write(&inputs.join("ca"), &ca)?;
            }
            let root = Root::layers(toolchain.system.clone(), into);
            let command = ["/bin/sh", "/dev/stackforge/steps/clone.sh"];
            let mut sandbox = self.sandbox(root, &command, inputs)?;
            sandbox.network = Network::Host;
            for (name, value) in proxies() {
                sandbox.env.insert(name.into(), value.into());
            }
            self.fill(
                &sandbox,
                into,
                &format!("the source of {}", compile.library),
            )
        })
    }
}
