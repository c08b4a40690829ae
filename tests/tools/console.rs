//! The console blocks of README and docs/ are what the program prints.
//!
//! A comment above each block says which folder of the project it runs in, as in `<!-- console: tests/console/check -->`,
//! or `<!-- console: above stacks -->` for the folder above that one, or why no test runs it: `<!-- not run: it downloads
//! 2.6 GB -->`. In a block, a line `…` stands for any lines, and a
//! `…` in a line for any text. Times and keys are not compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Sandbox, markdown_files, project};

/// One console block of a page.
struct Block {
    page: PathBuf,
    /// Line of its first command, counted from 1.
    line: usize,
    /// The comment above it.
    comment: Option<String>,
    lines: Vec<String>,
}

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![project("README.md")];
    pages.extend(markdown_files("docs"));
    pages
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (at, _) in lines
        .iter()
        .enumerate()
        .filter(|(_, l)| **l == "```console")
    {
        let inside = lines[at + 1..].iter().take_while(|l| **l != "```");
        let comment = at.checked_sub(1).and_then(|above| {
            let inner = lines[above].strip_prefix("<!-- ")?.strip_suffix(" -->")?;
            Some(inner.to_owned())
        });
        blocks.push(Block {
            page: page.to_owned(),
            line: at + 2,
            comment,
            lines: inside.map(|l| (*l).to_owned()).collect(),
        });
    }
    blocks
}

/// The words of a line, without what is another at each run.
fn comparable(line: &str) -> String {
    let words = line.trim_end().split(' ').map(|word| {
        let bare = word.trim_matches(['(', ')', ',']);
        let is_key = bare.len() == 12 && bare.chars().all(|c| c.is_ascii_hexdigit());
        let is_number = |text: &str| text.parse::<f64>().is_ok() && text.contains('.');
        match bare {
            _ if is_key => "KEY",
            _ if is_number(bare) && line.ends_with(" s") => "TIME",
            _ => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a line of a block stands for a printed one.
fn is_line(shown: &str, printed: &str) -> bool {
    let (shown, printed) = (comparable(shown), comparable(printed));
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else {
        return false;
    };
    let mut is_whole = rest.is_empty();
    for part in parts {
        let Some(at) = rest.rfind(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
        is_whole = part.is_empty() || rest.is_empty();
    }
    is_whole
}

/// Whether the lines of a block stand for what was printed.
fn stand_for(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], printed) => printed.is_empty(),
        (["…", rest @ ..], _) => (0..=printed.len()).any(|n| stand_for(rest, &printed[n..])),
        ([line, rest @ ..], [first, others @ ..]) => {
            is_line(line, first) && stand_for(rest, others)
        }
        _ => false,
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Runs a block's commands in a copy of its folder, and says where they print something else.
fn difference(block: &Block, folder: &str) -> Option<String> {
    let sandbox = Sandbox::new();
    let (above, folder) = match folder.strip_prefix("above ") {
        Some(folder) => (true, folder),
        None => (false, folder),
    };
    let from = project(folder);
    let copied = sandbox.path("in").join(from.file_name().unwrap());
    copy(&from, &copied);
    let work = if above { sandbox.path("in") } else { copied };
    let binary = Path::new(env!("CARGO_BIN_EXE_stackforge"));
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let command = |line: &str| -> Command {
        let mut command = sandbox.command_of("sh");
        command
            .args(["-c", &format!("exec 2>&1; {line}")])
            .current_dir(&work)
            .env("PATH", &path)
            .env("HOME", sandbox.path(""))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let mut at = 0;
    while at < block.lines.len() {
        let typed = block.lines[at].strip_prefix("$ ").unwrap_or_else(|| {
            let page = block.page.display();
            panic!("{page}:{}: no command", block.line + at)
        });
        let shown: Vec<&str> = block.lines[at + 1..]
            .iter()
            .map(String::as_str)
            .take_while(|line| !line.starts_with("$ "))
            .collect();
        let out = command(typed).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let printed: Vec<&str> = text.trim_end().lines().collect();
        let end = shown.iter().rposition(|line| !line.is_empty());
        // Dots do not hide a failure.
        let fails = shown.iter().any(|line| line.starts_with("SF"));
        let is_shown = stand_for(&shown[..end.map_or(0, |end| end + 1)], &printed);
        if !is_shown || !(out.status.success() || fails) {
            let page = block.page.display();
            return Some(format!("{page}:{}: $ {typed}\n{text}", block.line + at));
        }
        at += shown.len() + 1;
    }
    None
}

#[test]
fn console_blocks_are_what_is_printed() {
    let (mut faults, mut run) = (Vec::new(), 0);
    for block in pages().iter().flat_map(|page| blocks(page)) {
        let comment = block.comment.as_deref().unwrap_or_default();
        if let Some(folder) = comment.strip_prefix("console: ") {
            run += 1;
            faults.extend(difference(&block, folder));
        } else if !comment.starts_with("not run: ") {
            let page = block.page.display();
            faults.push(format!(
                "{page}:{}: no comment says how it runs",
                block.line
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(run >= 5, "only {run} run");
}

#[test]
fn dots_stand_for_what_is_left_out() {
    assert!(is_line("a … c", "a b b c") && is_line("a…", "a b"));
    assert!(!is_line("a … c", "a b d") && !is_line("a", "a b") && !is_line("b", "a b"));
    assert!(is_line("base  cached", "base  cached"));
    assert!(is_line("tools 6.3 s", "tools 17.0 s") && !is_line("tools 6.3 s", "base 6.3 s"));
    assert!(is_line("x 0123456789ab to do", "x ba9876543210 to do"));
    assert!(stand_for(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(stand_for(&["a", "…"], &["a"]) && !stand_for(&["a"], &["a", "b"]));
}
