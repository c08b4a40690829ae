//! A program on a terminal, which `script` makes.

use super::world::{self, World, each};
use std::io::{Read as _, Write as _};
use std::process::Stdio;

/// What a terminal shows of a program to which `keys` are typed once it says `ready`.
fn on_terminal(w: &World, script: &str, keys: &[u8]) -> (i32, String) {
    let inner = w.command(&[], &["sh", "-c", script]);
    let words = std::iter::once(inner.get_program()).chain(inner.get_args());
    let quoted: Vec<String> = words
        .map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")))
        .collect();
    let line = format!("stty rows 33 cols 101; exec {}", quoted.join(" "));
    let mut outer = w.sandbox.command_of("script");
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    let mut child = outer
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut shown = Vec::new();
    let mut byte = [0];
    let mut typed = keys.is_empty();
    // The input stays open: its end would be the terminal's.
    while let Ok(1) = output.read(&mut byte) {
        shown.extend(byte);
        if !typed && shown.ends_with(b"ready\r\n") {
            input.write_all(keys).unwrap();
            typed = true;
        }
    }
    let status = child.wait().unwrap();
    let shown = String::from_utf8_lossy(&shown);
    // On a busy machine the command's own line is shown, and taken away before the program begins.
    let programs = shown.rsplit("\u{1b}[2K").next().unwrap_or_default();
    (status.code().unwrap_or(-1), programs.to_owned())
}

#[test]
fn it_has_a_terminal_of_its_own_and_of_the_same_size() {
    each(|w| {
        let (code, shown) = on_terminal(
            w,
            "tty; stty size; echo $TERM; echo again > /dev/tty; exit 5",
            b"",
        );
        assert_eq!(shown, "/dev/pts/0\r\n33 101\r\nxterm\r\nagain\r\n");
        assert_eq!(code, 5);
    });
}

#[test]
fn ctrl_c_is_the_programs() {
    each(|w| {
        let (code, shown) = on_terminal(w, "echo ready; sleep 96123", b"\x03");
        // The kernel signals before it echoes `^C`: the program may have closed the terminal by then.
        let shown = shown.strip_suffix("^C").unwrap_or(&shown);
        assert_eq!((code, shown), (130, "ready\r\n"));
        let script = "trap 'echo got; exit 9' INT; echo ready; while :; do sleep 0.1; done";
        let (code, shown) = on_terminal(w, script, b"\x03");
        assert_eq!((code, shown.as_str()), (9, "ready\r\n^Cgot\r\n"));
        assert!(!world::runs("96123"));
    });
}

#[test]
fn what_is_typed_arrives() {
    each(|w| {
        let (code, shown) = on_terminal(w, "echo ready; cat; echo end", b"typed\n\x04");
        assert_eq!(
            (code, shown.as_str()),
            (0, "ready\r\ntyped\r\ntyped\r\nend\r\n")
        );
    });
}
