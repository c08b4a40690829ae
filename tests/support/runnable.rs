//! An image of busybox that can be run.

use super::layers::{Member, configured};
use serde_json::json;
use std::path::Path;

const TOOLS: [&str; 18] = [
    "sh", "cat", "echo", "id", "pwd", "ls", "sleep", "kill", "touch", "mount", "grep", "stty",
    "tty", "wget", "setsid", "env", "true", "printenv",
];
const ENTRY: &str =
    "#!/bin/sh\necho entry\necho \"$@\"\npwd\necho $(id -u) $(id -g)\necho $SAID\necho $HOME\n";
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/srv/app:/bin/sh\n";

/// Writes the image as a layout with the tag `v1`.
pub fn image(directory: &Path, config: serde_json::Value) {
    let busybox: &'static [u8] = std::fs::read("/bin/busybox")
        .expect("Debian's busybox-static")
        .leak();
    let mut members = vec![
        Member::Folder("bin"),
        Member::Program("bin/busybox", busybox),
        Member::Program("entry", ENTRY.as_bytes()),
        Member::Folder("etc"),
        Member::File("etc/group", "app:x:1001:\nvideo:x:44:app\n"),
        Member::File("etc/passwd", PASSWD),
        Member::Folder("srv"),
        Member::Folder("tmp"),
    ];
    members.extend(TOOLS.map(|tool| Member::Link(format!("bin/{tool}").leak(), "busybox")));
    configured(directory, &[&members], config);
}

/// A configuration with an entry point, a command, a variable, a user and a directory that no layer has.
pub fn config() -> serde_json::Value {
    json!({
        "Entrypoint": ["/entry"],
        "Cmd": ["of", "the", "image"],
        "Env": ["SAID=from the image"],
        "User": "app",
        "WorkingDir": "/made/for/it",
    })
}
