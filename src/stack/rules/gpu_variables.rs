//! Variables of the image by which containers get no GPU. Those by which none starts are refused where the stack is read.

use super::case::Case;
use super::environment::Environment;
use crate::diag::Diagnostic;
use crate::spec::service::gpu_variables::fault;

/// A stack is for GPUs, so a variable that hides them is most likely a mistake.
pub fn gpus_are_hidden(case: &Case<'_>, _: &Environment<'_>, findings: &mut Vec<Diagnostic>) {
    let Some(image) = &case.stack.image else {
        return;
    };
    for (name, span) in &image.env_spans {
        let fault = image.env.get(name).and_then(|value| fault(name, value));
        findings.extend(fault.map(|fault| fault.diagnostic(name).at(*span)));
    }
}
