//! The plan of the stack that a command names, with a lock that is made first where a build needs one.

use super::args::Common;
use super::lock::locking;
use super::output::{Failure, warn};
use super::session::Session;
use serde_json::Value;
use stackforge_plan::Plan;
use stackforge_plan::project::{Chosen, Planned, Project};

impl Session {
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
        let (Planned { plan, warnings }, new) = locking(common, self, locked, ask)?;
        warn(common, &self.project.report(warnings));
        Ok((chosen, plan, new))
    }
}
