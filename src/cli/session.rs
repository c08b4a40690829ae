//! The common start of most commands: the project, the store and the user's configuration.

use super::args::Common;
use super::lock;
use super::output::{Failure, warn};
use super::signals::stop_on_signal;
use serde_json::Value;
use stackforge_image::store::Store;
use stackforge_plan::Plan;
use stackforge_plan::project::{Chosen, Planned, Project};
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_types::Cancel;
use std::path::Path;

pub struct Session {
    pub project: Project,
    pub store: Store,
    pub config: Config,
}

impl Session {
    pub fn open(common: &Common, path: &Path) -> Result<Self, Failure> {
        Ok(Self {
            project: Project::open(path, common.catalog.as_deref())?,
            store: Store::open(common.store.as_deref())?,
            config: Config::load()?,
        })
    }

    /// Returns the file's stack or the named variant, and its plan. Prints warnings.
    pub fn plan(&self, common: &Common, variant: Option<&str>) -> Result<(Chosen, Plan), Failure> {
        let (chosen, plan, _) = self.plan_locking(common, variant, true)?;
        Ok((chosen, plan))
    }

    /// As [`Session::plan`]. Unless `locked`, makes or renews the lock where the stack needs it, and returns what it
    /// made.
    pub fn plan_locking(
        &self,
        common: &Common,
        variant: Option<&str>,
        locked: bool,
    ) -> Result<(Chosen, Plan, Option<Value>), Failure> {
        let chosen = self.project.choose(variant)?;
        let ask = |project: &Project| project.plan(&chosen);
        let (Planned { plan, warnings }, new) = lock::locking(common, self, locked, ask)?;
        warn(common, &self.project.report(warnings));
        Ok((chosen, plan, new))
    }

    /// Marks the steps as cached that a build would find.
    pub fn mark(&self, plan: &mut Plan) {
        plan.mark_cached(|plan, step| stackforge_build::cached(&self.store, plan, step));
    }
}

/// Returns the memory of this machine, in GB.
pub fn memory_gb() -> Option<f64> {
    let info = rustix::system::sysinfo();
    let bytes = (info.totalram as f64) * f64::from(info.mem_unit);
    (bytes > 0.0).then_some(bytes / 1e9)
}

/// Returns a runtime for commands that wait for engines and servers.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| {
            Failure::of(Diagnostic::error(
                codes::STORE_IO,
                format!("start the runtime: {e}"),
            ))
        })
}

/// Runs work until Ctrl-C. What the work has begun then stays as it is.
pub async fn until_stopped<T, E: Into<Failure>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    let cancel = Cancel::new();
    stop_on_signal(&cancel);
    tokio::select! {
        done = work => done.map_err(Into::into),
        () = cancel.cancelled() => Err(Failure::of(Diagnostic::error(codes::INTERRUPTED, "interrupted while bytes moved")
                .help("what arrived is kept; the next run goes on from there"),
        )),
    }
}
