//! Arguments, variables, the files of a machine, and logs.

use super::{EVIL, World};

/// Every command with a foreign text where it takes a text.
pub fn arguments() -> World {
    let mut world = World::new();
    let e = EVIL;
    world.env("STACKFORGE_STORE", e);
    for args in [
        &["init", "--gpu", e][..],
        &["init", "--root", e],
        &["init", "--offline", "--from", e, "--gpu", "h100"],
        &["init", "--gpu", "h100", "-o", e],
        &["init", "--gpu", "h100", "-o", "/nowhere\u{1b}[2J/x"],
        &["check", e],
        &["check", e, "--driver", e],
        &["lock", e],
        &["lock", e, "--upgrade", e],
        &["matrix", e],
        &["matrix", e, "--emit", e],
        &["plan", e, "--variant", e],
        &["render", e, "-o", e],
        &["build", e],
        &["build", e, "-o", e],
        &["build", e, "--push", e],
        &["validate", e],
        &["run", e],
        &["run", e, "--engine", "native"],
        &["run", "--print", e],
        &[
            "run",
            "x",
            "--print",
            "-e",
            &format!("A={e}"),
            "--volume",
            &format!("/{e}:/x"),
        ],
        &["run", "x", "--gpus", e],
        &["run", "x", "-p", e],
        &["run", "x", "--print", "--name", e, "--model-cache", e],
        &["push", e, e],
        &["pull", e],
        &["pull", "127.0.0.1:9/x", "-o", e],
        &["pull", "127.0.0.1:9/x", "--limit-rate", e],
        &["update", e],
        &["doctor", "--root", e],
        &["audit", e],
        &["audit", "/bin/true", "--gpu", e],
        &["audit", "/bin/true", "--python", e],
        &["sbom", e],
        &["attach", e, "--stack", e],
        &["inspect", e],
        &["inspect", "127.0.0.1:9/x", "--print", e],
        &["sign", e, "--key", e],
        &["sign", "127.0.0.1:9/x", "--key", "env://X\u{1b}[2J"],
        &["sign", "--generate-key", e],
        &["verify", e, "--key", e],
        &["cache", "ls", e],
        &["cache", "gc", "--max-size", e],
        &["cache", "import", e],
        &["cache", "export", e],
        &["cache", "verify", "--help"],
        &["diagnose", e],
        &["explain", e],
        &["schema", e],
        &["schema"],
        &["completions", e],
        &["completions", "bash"],
        &["man", e],
        &["man"],
        &["check", "--help"],
    ] {
        world.case(args);
    }
    world
}

/// A machine's files and logs, as somebody else wrote them.
pub fn machine() -> World {
    let mut world = World::new();
    for path in [
        "usr/lib/os-release",
        "etc/os-release",
        "proc/cpuinfo",
        "proc/meminfo",
        "proc/version",
        "proc/driver/nvidia/version",
        "sys/module/nvidia/version",
        "etc/nv_tegra_release",
        "proc/device-tree/model",
        "proc/device-tree/compatible",
        "etc/docker/daemon.json",
        "usr/local/cuda/version.json",
    ] {
        let text = format!(
            "PRETTY_NAME=\"{EVIL}\"\nNAME={EVIL}\nmodel name\t: {EVIL}\nMemTotal: {EVIL}\n{EVIL}\n"
        );
        world.sandbox.write(&format!("machine/{path}"), &text);
    }
    let line = EVIL.replace(['\n', '\r'], "");
    world.sandbox.write(
        "machine/etc/os-release",
        &format!("PRETTY_NAME=\"{line}\"\nVERSION_ID=\"{line}\"\n"),
    );
    world.sandbox.write(
        "machine/proc/cpuinfo",
        &format!("processor\t: 0\nmodel name\t: {line}\n"),
    );
    world
        .sandbox
        .write("machine/proc/device-tree/model", &format!("{line}\0"));
    world.case(&["doctor", "--root", "machine"]);
    world.case(&["init", "--root", "machine", "-o", "-"]);
    let log = [
        format!("ModuleNotFoundError: No module named '{line}'"),
        format!("ImportError: {line}libx.so.1{line}: cannot open shared object file: No such file"),
        format!("{line}Killed signal terminated program cc1plus {line}"),
        format!("undefined symbol: {line}_ZN3c105checkESs{line}"),
        format!("#6 [builder 1/1] RUN | {line} error: {line}"),
    ];
    world.sandbox.write("log", &log.join("\n"));
    world.sandbox.write(&format!("{EVIL}.log"), &log.join("\n"));
    world.sandbox.write("nothing", &line);
    world.case(&["diagnose", "log"]);
    world.case(&["diagnose", &format!("{EVIL}.log")]);
    world.case(&["diagnose", "nothing"]);
    world
}
