//! README and the book: no broken link, every page in the table of contents, commands that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::{Sandbox, markdown_files, project};

/// Pages of the book and the texts of the root folder.
fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
    ]
    .into_iter()
    .map(project)
    .collect();
    found.extend(markdown_files("docs"));
    found
}

/// Text outside of blocks and of code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside = line.split('`').step_by(2);
            out.push_str(&outside.collect::<Vec<_>>().join("`"));
            out.push('\n');
        }
    }
    out
}

/// Targets of links to files of this repository.
fn links(text: &str) -> Vec<String> {
    let parts = text.split("](").skip(1);
    let targets = parts.filter_map(|p| p.split(')').next());
    targets
        .filter(|t| !t.contains("://"))
        .map(str::to_owned)
        .collect()
}

/// Names by which a heading of the page can be linked, as mdBook and code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|l| l.starts_with('#'));
    let name = |l: &str| {
        let words = l.trim_start_matches('#').trim().to_lowercase();
        let kept = words
            .chars()
            .filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(name).collect()
}

fn broken(page: &Path, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        page.to_owned()
    } else {
        page.parent().unwrap().join(file)
    };
    if !path.exists() {
        return true;
    }
    !anchor.is_empty() && !anchors(&std::fs::read_to_string(path).unwrap()).contains(anchor)
}

#[test]
fn no_link_is_broken() {
    let mut seen = 0;
    let mut faults = Vec::new();
    for page in pages() {
        for target in links(&prose(&std::fs::read_to_string(&page).unwrap())) {
            seen += 1;
            if broken(&page, &target) {
                faults.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(seen > 100, "only {seen} links were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The book is a folder of its own: a link that leaves it leads nowhere once it is a site.
#[test]
fn every_page_of_the_book_is_in_its_contents_and_links_within_it() {
    let docs = project("docs");
    let contents = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&contents).iter().map(|l| docs.join(l)).collect();
    let book = pages()
        .into_iter()
        .filter(|p| p.starts_with(&docs) && !p.ends_with("SUMMARY.md"));
    let book: BTreeSet<PathBuf> = book.collect();
    assert_eq!(book, listed);
    for page in book {
        for target in links(&prose(&std::fs::read_to_string(&page).unwrap())) {
            let path = page
                .parent()
                .unwrap()
                .join(target.split('#').next().unwrap());
            let path = path.canonicalize().unwrap();
            assert!(
                path.starts_with(docs.canonicalize().unwrap()),
                "{}: {target}",
                page.display()
            );
        }
    }
}

#[test]
fn the_readme_is_short() {
    let text = std::fs::read_to_string(project("README.md")).unwrap();
    assert!(text.lines().count() <= 170);
}

/// Commands of code in a line and of console blocks are commands of the program, and so are their options.
#[test]
fn every_command_and_option_exists() {
    let mut seen = BTreeSet::new();
    let mut faults = Vec::new();
    for page in pages()
        .iter()
        .filter(|p| !p.ends_with("commands.md") && !p.ends_with("rules.md"))
    {
        let text = std::fs::read_to_string(page).unwrap();
        let code = text
            .split("`stackforge ")
            .skip(1)
            .map(|p| p.split('`').next().unwrap());
        let console = text.lines().filter_map(|l| l.strip_prefix("$ stackforge "));
        for call in code.chain(console) {
            let call = call
                .split(" # ")
                .next()
                .unwrap()
                .split(" -- ")
                .next()
                .unwrap();
            let words: Vec<&str> = call.split_whitespace().collect();
            let Some(command) = words
                .first()
                .filter(|w| w.chars().all(|c| c.is_ascii_lowercase()))
            else {
                continue;
            };
            let options = words.iter().filter_map(|w| {
                let w = w.trim_start_matches('[').trim_end_matches([']', '…']);
                w.starts_with("--")
                    .then(|| w.split(['|', '=']).next().unwrap().trim_end_matches(']'))
            });
            for option in std::iter::once("").chain(options) {
                seen.insert(((*command).to_owned(), option.to_owned(), page.clone()));
            }
        }
    }
    assert!(seen.len() > 60, "only {} were found", seen.len());
    let mut helps = std::collections::BTreeMap::new();
    for (command, option, page) in seen {
        let help = helps.entry(command.clone()).or_insert_with(|| {
            let below = match command.as_str() {
                "cache" => vec!["ls", "gc", "verify", "export", "import"],
                _ => Vec::new(),
            };
            let sandbox = Sandbox::new();
            let own = sandbox.run(&[&command, "--help"]);
            let more = below
                .iter()
                .map(|b| sandbox.run(&[&command, b, "--help"]).stdout);
            let text = if own.code == 0 {
                own.stdout
            } else {
                String::new()
            };
            text + &more.collect::<String>()
        });
        if help.is_empty() || !help.contains(&option) {
            faults.push(format!("{}: stackforge {command} {option}", page.display()));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The names in backquotes that begin the rows of a page's tables.
fn rows(text: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.filter_map(|row| row.split('|').next());
    let names = names.flat_map(|names| names.split('`').step_by(2));
    let names = names.map(|name| name.trim_matches([',', ' ']).to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The keys that the program knows where it refuses one of a configuration.
fn known_keys(configuration: &str) -> Vec<String> {
    let sandbox = support::tiny();
    sandbox.write("config.yaml", configuration);
    let config = sandbox.path("config.yaml").display().to_string();
    let run = sandbox.run_with(
        &["plan", "tiny.yaml", "--json"],
        &[("STACKFORGE_CONFIG", &config)],
    );
    let document = support::document(&run);
    let message = document["diagnostics"][0]["message"].as_str().unwrap();
    let known = message.split("expected one of ").nth(1).unwrap();
    let known = known.split(" at line").next().unwrap();
    known.split(", ").map(str::to_owned).collect()
}

/// Variables that the program reads: their names stand in the code, where it asks for them.
fn variables_read() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![project("src"), project("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                for asks in ["env(\"", "env = \"", "var_os(\"", "var(\"", ": &str = \""] {
                    let after = text.split(asks).skip(1);
                    let names = after.filter_map(|rest| rest.split('"').next());
                    found.extend(
                        names
                            .filter(|n| n.starts_with("STACKFORGE_"))
                            .map(str::to_owned),
                    );
                }
            }
        }
    }
    found
}

#[test]
fn the_page_of_the_configuration_has_every_key_and_variable() {
    let page = rows(&std::fs::read_to_string(project("docs/configuration.md")).unwrap());
    let mut known: BTreeSet<String> = known_keys("no-such-key: 1\n").into_iter().collect();
    assert!(known.remove("cache"));
    let of_cache = known_keys("cache: { no-such-key: 1 }\n");
    known.extend(of_cache.iter().map(|key| format!("cache.{key}")));
    let mut variables = variables_read();
    // A shell sets it, to ask for completions.
    assert!(variables.remove("STACKFORGE_COMPLETE"));
    assert!(variables.len() >= 4, "{variables:?}");
    known.extend(variables);
    known.extend(["DOCKER_HOST", "DOCKER_CONTEXT", "NO_COLOR"].map(str::to_owned));
    assert_eq!(page, known);
}

/// What was typed while the README's picture was recorded, without what is the beginning of a longer line.
fn typed() -> Vec<String> {
    let picture = std::fs::read_to_string(project("docs/pictures/first.svg")).unwrap();
    let lines = picture.split(">$ ").skip(1);
    let lines = lines.filter_map(|rest| rest.split('<').next());
    let lines: BTreeSet<&str> = lines.collect();
    let is_whole = |line: &&&str| {
        let longer = |other: &&str| other.len() > line.len() && other.starts_with(**line);
        !lines.iter().any(longer)
    };
    lines
        .iter()
        .filter(is_whole)
        .map(|line| (*line).to_owned())
        .collect()
}

#[test]
fn the_picture_is_of_the_commands_that_the_script_records() {
    let script = std::fs::read_to_string(project("scripts/recording.sh")).unwrap();
    let recorded = script
        .split('\'')
        .filter(|part| part.starts_with("stackforge "));
    let recorded: BTreeSet<&str> = recorded.collect();
    assert!(!recorded.is_empty());
    assert_eq!(typed(), Vec::from_iter(recorded));
}
