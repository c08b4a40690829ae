//! Every command, fed with text that steers terminals: in arguments, files, images, registries and
//! engines. Nothing of it is printed as it is, in text, in colour or in JSON.

mod images;
mod machines;
mod servers;
mod stacks;

use proxy::Proxy;
use std::collections::BTreeSet;
use support::{self, proxy};
use support::{Sandbox, schemas};

/// A colour that stackforge does not use.
const FOREIGN_COLOUR: &str = "\u{1b}[38;5;213m";
/// Begins a line that only a foreign text can begin.
const FORGED: &str = "FORGED";
/// A title, a cleared screen, a bell, the same as C1 controls, colours, characters that are deleted,
/// turned around or not seen, and a line of its own.
const EVIL: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\u{9d}0;x\u{9c}\u{8}\u{7f}\r\u{1b}[38;5;213mred\
\u{202e}drow\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}\nFORGED: all is well\n";

/// A sandbox with files, servers and commands that read them.
struct World {
    sandbox: Sandbox,
    env: Vec<(String, String)>,
    servers: Vec<Proxy>,
    cases: Vec<Vec<String>>,
}

impl World {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        sandbox.write("config.yaml", "");
        let config = sandbox.path("config.yaml").display().to_string();
        let gone = format!("unix://{}", sandbox.path("no-engine").display());
        Self {
            env: vec![
                ("STACKFORGE_CONFIG".to_owned(), config),
                ("DOCKER_HOST".to_owned(), gone),
            ],
            sandbox,
            servers: Vec::new(),
            cases: Vec::new(),
        }
    }

    fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    fn case(&mut self, args: &[&str]) {
        self.cases
            .push(args.iter().map(|a| (*a).to_owned()).collect());
    }

    /// Runs every case in every mode; how many showed that there was something to escape.
    fn judge(&self) -> usize {
        let mut escaped = 0;
        for case in &self.cases {
            let mut shows = false;
            for mode in ["--color=never", "--color=always", "--json"] {
                shows |= self.run(case, mode);
            }
            escaped += usize::from(shows);
        }
        escaped
    }

    fn run(&self, case: &[String], mode: &str) -> bool {
        let mut command = self.sandbox.command();
        command.args(case).arg(mode).envs(self.env.iter().cloned());
        if mode == "--color=always" {
            command.arg("-vv");
        }
        command
            .env_remove("NO_COLOR")
            .stdin(std::process::Stdio::null());
        let out = command.output().unwrap();
        let mut shows = false;
        for bytes in [&out.stdout, &out.stderr] {
            let text = std::str::from_utf8(bytes).unwrap();
            let context = || format!("{case:?} {mode}: {text:?}");
            assert!(!text.contains(FOREIGN_COLOUR), "{}", context());
            let plain = match mode {
                "--color=always" => without_colours(text),
                _ => text.to_owned(),
            };
            let bad = plain.chars().find(|c| steers(*c));
            assert!(bad.is_none(), "{bad:?} in {}", context());
            assert!(
                !plain.lines().any(|l| l.starts_with(FORGED)),
                "{}",
                context()
            );
            shows |= plain.contains("\\u{") || plain.contains("\\u0") || plain.contains("\\u2");
        }
        if let (Ok(stdout), Ok(stderr)) = (str::from_utf8(&out.stdout), str::from_utf8(&out.stderr))
        {
            let args: Vec<&str> = case.iter().map(String::as_str).chain([mode]).collect();
            schemas::check(&args, stdout, stderr);
        }
        let has_document = mode == "--json" && !case.iter().any(|arg| arg == "--help");
        if has_document && out.status.code() != Some(2) && !out.stdout.is_empty() {
            let document: Result<serde_json::Value, _> = serde_json::from_slice(&out.stdout);
            let text = || String::from_utf8_lossy(&out.stdout);
            assert!(
                document.is_ok() || NO_JSON.contains(&case[0].as_str()),
                "{}",
                text()
            );
        }
        shows
    }
}

/// Commands whose answer is another document.
const NO_JSON: [&str; 3] = ["completions", "man", "init"];

/// What a terminal obeys or does not show. Written down a second time: the test's own judgement.
fn steers(c: char) -> bool {
    let other = |c| c != '\n' && c != '\t';
    (c.is_control() && other(c))
        || "\u{ad}\u{61c}\u{180e}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\
\u{202c}\u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{e0041}"
            .contains(c)
}

/// Text without colour sequences.
fn without_colours(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';');
        match end.filter(|end| part[*end..].starts_with('m')) {
            Some(end) => out.push_str(&part[end + 1..]),
            None => {
                out.push_str("\u{1b}[");
                out.push_str(part);
            }
        }
    }
    out
}

/// A text as a double-quoted scalar of YAML, a string of TOML, or one of JSON.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match u32::from(c) {
        code @ (0..0x20 | 0x22 | 0x5c | 0x7f..0x10000) => format!("\\u{code:04x}"),
        code @ 0x10000.. => format!("\\U{code:08x}"),
        _ => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

fn worlds() -> Vec<World> {
    vec![
        stacks::stacks(),
        stacks::locks(),
        stacks::settings(),
        images::layouts(),
        images::trees(),
        images::store(),
        servers::registry(),
        servers::refusing(),
        servers::engine(),
        machines::arguments(),
        machines::machine(),
    ]
}

#[test]
fn no_command_is_forgotten() {
    let listed = |args: &[&str]| -> BTreeSet<String> {
        let help = Sandbox::new().run(args).stdout;
        let lines = help.split("Commands:\n").nth(1).unwrap().lines();
        let names = lines.take_while(|l| !l.is_empty());
        let names = names.filter(|l| l.starts_with("  ") && !l.starts_with("   "));
        let names = names.map(|l| l.split_whitespace().next().unwrap().to_owned());
        names.filter(|n| n != "help").collect()
    };
    let worlds = worlds();
    let cases: Vec<&Vec<String>> = worlds.iter().flat_map(|w| &w.cases).collect();
    let driven: BTreeSet<String> = cases.iter().map(|c| c[0].clone()).collect();
    assert_eq!(driven, listed(&["--help"]));
    let of_cache = cases.iter().filter(|c| c[0] == "cache");
    let of_cache: BTreeSet<String> = of_cache.map(|c| c[1].clone()).collect();
    assert_eq!(of_cache, listed(&["cache", "--help"]));
}

// The number is a bound for the cases that show an escape: the others refuse the text without
// repeating it.
macro_rules! judged {
    ($($name:ident: $world:path, $least:expr;)*) => {
        $(#[test]
        fn $name() {
            let escaped = $world().judge();
            assert!(escaped >= $least, "only {escaped} cases had something to escape");
        })*
    };
}

judged! {
    stack_files: stacks::stacks, 65;
    locks: stacks::locks, 25;
    settings_and_catalogs: stacks::settings, 9;
    images_at_rest: images::layouts, 30;
    directories_and_wheels: images::trees, 4;
    a_store: images::store, 5;
    a_registry_of_variants: servers::registry, 30;
    a_registry_that_refuses: servers::refusing, 40;
    an_engine: servers::engine, 4;
    arguments: machines::arguments, 33;
    a_machine_and_its_logs: machines::machine, 2;
}
