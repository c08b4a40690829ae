//! Runs a program with this machine's files, no network and half a gigabyte: `sandboxed PROGRAM...`.

use std::process::ExitCode;

use stackforge_sandbox::{Cancel, Limits, Root, Sandbox, child_main};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    if let Some(code) = child_main() {
        return Ok(code);
    }
    let command: Vec<String> = std::env::args().skip(1).collect();
    let mut sandbox = Sandbox::new(Root::directory("/"), &command);
    sandbox.limits = Limits {
        memory: Some(1 << 29),
        pids: Some(20),
        cpus: None,
    };
    let mut line = |_, text: &[u8]| println!("{}", String::from_utf8_lossy(text));
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(sandbox.run(&Cancel::new(), &mut line))?;
    println!("{:?}", outcome.end);
    Ok(u8::try_from(outcome.code()).unwrap_or(u8::MAX).into())
}
