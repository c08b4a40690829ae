//! Writes `/etc/shells` as update-shells(8) does: after the existing lines, debianutils' own shells and
//! each package's, by their given and by their real name.

use super::FinishError;
use super::system::System;

const SHELLS: &str = "/etc/shells";
const STATE: &str = "/var/lib/shells.state";
const TEMPLATE: &str = "/usr/share/debianutils/shells";
const OFFERS: &str = "/usr/share/debianutils/shells.d";

pub(super) fn update(system: &mut System<'_>) -> Result<(), FinishError> {
    let mut files = vec![TEMPLATE.to_owned()];
    files.extend(
        system
            .names(OFFERS)
            .iter()
            .map(|name| format!("{OFFERS}/{name}")),
    );
    let mut offered: Vec<String> = Vec::new();
    for file in files {
        for line in system.text(&file)?.unwrap_or_default().lines() {
            let shell = line.split('#').next().unwrap_or_default();
            if shell.is_empty() {
                continue;
            }
            let mut names = vec![shell.to_owned()];
            if let Some((directory, name)) = shell.rsplit_once('/')
                && let Some(real) = system.tree.follow(directory)
            {
                names.push(format!("/{real}/{name}"));
            }
            for name in names {
                if !offered.contains(&name) {
                    offered.push(name);
                }
            }
        }
    }
    let before: Vec<String> = system
        .text(STATE)?
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    let current = match system.text(SHELLS)? {
        Some(text) => text,
        None => system.text(TEMPLATE)?.unwrap_or_default(),
    };
    let (mut text, mut listed) = (String::new(), Vec::new());
    for line in current.lines() {
        let shell = line.split('#').next().unwrap_or_default();
        let gone = before.iter().any(|b| b == shell) && !offered.iter().any(|o| o == shell);
        if shell.is_empty() || (!gone && !listed.contains(&shell)) {
            text.push_str(line);
            text.push('\n');
            listed.push(shell);
        }
    }
    for shell in &offered {
        if !listed.contains(&shell.as_str()) && !before.contains(shell) {
            text.push_str(shell);
            text.push('\n');
        }
    }
    let state: String = offered.iter().map(|shell| format!("{shell}\n")).collect();
    system.file(SHELLS, 0o644, 0, text.into_bytes())?;
    system.file(STATE, 0o644, 0, state.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::Tree;
    use super::super::system::Nothing;
    use super::*;

    #[test]
    fn lists_each_shell_by_both_names() {
        let mut system = System::new(&Nothing, Tree::new().0);
        let mut put = |path: &str, text: &str| {
            system.file(path, 0o644, 0, text.into()).unwrap();
        };
        put(TEMPLATE, "# valid login shells\n/bin/sh\n");
        put(&format!("{OFFERS}/dash"), "/bin/dash\n");
        put("/usr/bin/dash", "");
        update(&mut system).unwrap();
        update(&mut system).unwrap();
        assert_eq!(
            system.text(SHELLS).unwrap().unwrap(),
            "# valid login shells\n/bin/sh\n/usr/bin/sh\n/bin/dash\n/usr/bin/dash\n"
        );
    }
}
