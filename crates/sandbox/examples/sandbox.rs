//! Runs a program of a root file system, without a network and without root:
//! `sandbox ROOT PROGRAM [ARGUMENT...]`.
//!
//! What it writes is lost at its end; `/` as the root is this machine's own.

use std::error::Error;
use std::process::ExitCode;

use stackforge_sandbox::{Cancel, Limits, Root, Sandbox, child_main};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    // The sandbox starts this program again, as its launcher, before there are threads.
    if let Some(code) = child_main() {
        return Ok(code);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [root, command @ ..] = arguments.as_slice() else {
        return Err("usage: sandbox ROOT PROGRAM [ARGUMENT...]".into());
    };
    let mut sandbox = Sandbox::new(Root::directory(root), command);
    sandbox.limits = Limits {
        memory: Some(1 << 30),
        pids: Some(100),
        cpus: None,
    };
    let mut line = |_, text: &[u8]| println!("{}", String::from_utf8_lossy(text));
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(sandbox.run(&Cancel::new(), &mut line))?;
    println!("{:?}", outcome.end);
    Ok(u8::try_from(outcome.code()).unwrap_or(u8::MAX).into())
}
