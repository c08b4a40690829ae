//! How much memory `diagnose` takes, which Python measures.

use support::Sandbox;

/// 30 MB with colours, progress bars and a line of a megabyte; the failure is in the middle.
#[test]
fn a_large_log_takes_no_more_memory_than_a_small_one() {
    let filler = "\x1b[32m[17/402]\x1b[0m nvcc -gencode arch=compute_90,code=sm_90 -c kernel.cu\n\
                  Downloading  10%\rDownloading  20%\rDownloading 100%\r\n";
    let lines = (15 << 20) / filler.len() * 2;
    let mut log = filler.repeat(lines / 2);
    log += &"x".repeat(1 << 20);
    log += "\nc++: fatal error: Killed signal terminated program cc1plus\n";
    log += &filler.repeat(lines / 2);
    let small = peak(
        "small.log",
        "c++: fatal error: Killed signal terminated program cc1plus\n",
    );
    let large = peak("large.log", &log);
    assert_eq!(large.0, lines as u64 + 2);
    assert!(large.1 < small.1 + 4096, "{} KiB, {} KiB", small.1, large.1);
}

/// Line of the first match, and the most memory that the process had, in KiB.
fn peak(name: &str, log: &str) -> (u64, i64) {
    let sandbox = Sandbox::new();
    sandbox.write(name, log);
    let measure = "import os, subprocess, sys
p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
sys.stdout.buffer.write(p.stdout.read())
sys.stderr.write(str(os.wait4(p.pid, 0)[2].ru_maxrss))";
    let mut command = std::process::Command::new("python3");
    let inner = sandbox.command();
    command
        .current_dir(sandbox.path(""))
        .envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .args(["-c", measure])
        .arg(inner.get_program())
        .args(["diagnose", "--json", name]);
    let out = command.output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let kib = String::from_utf8(out.stderr).unwrap().parse().unwrap();
    (document["matches"][0]["line"].as_u64().unwrap(), kib)
}
