//! The common start of most commands: the project, the store and the user's configuration.

use super::args::Common;
use super::output::Failure;
use super::signals::stop_on_signal;
use stackforge_image::store::Store;
use stackforge_plan::Plan;
use stackforge_plan::project::Project;
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

    /// Marks the steps as cached that a build would find.
    pub fn mark(&self, plan: &mut Plan) {
        plan.mark_cached(|plan, step| stackforge_build::cached(&self.store, plan, step));
    }
}

/// Returns the memory that programs of an image can have on this machine, in GB.
pub fn memory_gb() -> Option<f64> {
    stackforge_types::system::memory().map(|bytes| bytes as f64 / 1e9)
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

/// Returns the one variant that was named, if any.
pub(super) fn only(variants: &[String]) -> Result<Option<&str>, Failure> {
    match variants {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => Err(Failure::of(
            Diagnostic::error(
                codes::BAD_VALUE,
                format!(
                    "{} variants were named, and this is written for one",
                    variants.len()
                ),
            )
            .help("name one `--variant`; manifests of `--kubernetes` take several"),
        )),
    }
}
