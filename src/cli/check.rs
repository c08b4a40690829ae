//! `stackforge check`.

use super::Outcome;
use super::args::{Common, StackArgs};
use super::output::{json, print};
use super::session::Session;

pub fn run(common: &Common, args: &StackArgs) -> Outcome {
    let session = Session::open(common, &args.stack)?;
    if !session.stack.matrix.is_empty() {
        return super::matrix::check(common, &session);
    }
    let target = session.target()?;
    let locked = session.lock()?.is_some();
    if locked {
        session.locked(&target)?;
    }
    let stack = &session.stack;
    let sms: Vec<String> = target
        .sms
        .iter()
        .map(|s| format!("sm_{}", s.digits()))
        .collect();
    if common.json {
        json(&serde_json::json!({ "ok": true, "diagnostics": [], "locked": locked }));
    } else {
        print(&format!(
            "{}: ok for {} on {}, {}\n",
            stack.stack.value,
            sms.join(", "),
            stack.platform.value,
            if locked { "locked" } else { "not locked yet" },
        ));
    }
    Ok(())
}
