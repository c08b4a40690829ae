//! The judges of pipelines.

use support::python as judges;

/// The schemas of GitHub, GitLab and Kubernetes come inside these packages.
const PACKAGES: [&str; 2] = ["check-jsonschema==0.39.0", "kubernetes-validate==1.37.0"];

/// Runs a module of the judges; the output where it refuses.
pub fn run(arguments: &[&str]) -> Result<(), String> {
    judges::run(&PACKAGES, arguments).map(|_| ())
}
