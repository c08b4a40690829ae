//! Writes `/etc/pam.d/common-*` as pam-auth-update(8) does for the profile that Debian itself ships,
//! `unix`. Another profile that asks to be enabled is not understood.

use super::FinishError;
use super::system::System;

const PROFILES: &str = "/usr/share/pam-configs";
const TYPES: [&str; 5] = [
    "auth",
    "account",
    "password",
    "session",
    "session-noninteractive",
];
const PERMIT: &str = "[default=1]\t\t\tpam_permit.so";

pub(super) fn update(system: &mut System<'_>) -> Result<(), FinishError> {
    if system.exists("/etc/pam.d/common-auth") {
        return Ok(());
    }
    let mut seen = Vec::new();
    let mut unix = None;
    for name in system.names(PROFILES) {
        let text = system
            .text(&format!("{PROFILES}/{name}"))?
            .unwrap_or_default();
        let enabled = text.lines().any(|line| line == "Default: yes");
        if name == "unix" {
            unix = Some(text);
        } else if enabled {
            return Err(FinishError::Profile { name });
        } else {
            seen.push(name);
        }
    }
    let Some(unix) = unix else {
        return Err(FinishError::Missing {
            path: format!("{PROFILES}/unix"),
        });
    };
    for kind in TYPES {
        let template = format!("/usr/share/pam/common-{kind}");
        let template = system
            .text(&template)?
            .ok_or(FinishError::Missing { path: template })?;
        let (config, saved) = write(&template, &unix, kind);
        system.file(
            &format!("/etc/pam.d/common-{kind}"),
            0o644,
            0,
            config.into_bytes(),
        )?;
        system.file(
            &format!("/var/lib/pam/{kind}"),
            0o644,
            0,
            saved.into_bytes(),
        )?;
    }
    let seen: String = std::iter::once("unix".to_owned())
        .chain(seen)
        .map(|name| name + "\n")
        .collect();
    system.file("/var/lib/pam/seen", 0o644, 0, seen.into_bytes())
}

/// Returns a block of the profile: the indented lines below `Name:`.
fn block(profile: &str, name: &str) -> Option<Vec<String>> {
    let mut lines = profile
        .lines()
        .skip_while(|line| line.trim_end() != format!("{name}:"));
    lines.next()?;
    Some(
        lines
            .take_while(|line| line.starts_with([' ', '\t']))
            .map(|line| line.trim().to_owned())
            .collect(),
    )
}

fn write(template: &str, profile: &str, kind: &str) -> (String, String) {
    let word = kind.trim_end_matches("-noninteractive");
    let mut title = word.to_owned();
    title[..1].make_ascii_uppercase();
    let lines = block(profile, &format!("{title}-Initial"))
        .or_else(|| block(profile, &title))
        .unwrap_or_default();
    let primary = profile
        .lines()
        .any(|line| line == format!("{title}-Type: Primary"));
    let mut saved = String::new();
    if !primary {
        saved.push_str(&format!("Module: null\n{PERMIT}\n"));
    }
    saved.push_str(&format!("Module: unix\n{}\n", lines.join("\n")));
    let mut config = String::new();
    let mut skipping = false;
    for line in template.lines() {
        if line.starts_with("# here's the fallback") || line.starts_with("# end of pam-auth-update")
        {
            skipping = false;
        }
        if skipping {
            continue;
        }
        config.push_str(line);
        config.push('\n');
        let first = line.starts_with("# here are the per-package modules (the \"Primary\" block)");
        let second =
            line.starts_with("# and here are more per-package modules (the \"Additional\" block)");
        skipping = first || second;
        if first && !primary {
            config.push_str(&format!("{word}\t{PERMIT}\n"));
        } else if (first && primary) || (second && !primary) {
            for (at, line) in lines.iter().enumerate() {
                config.push_str(&module(word, line, lines.len() - at));
            }
        }
    }
    (config, saved)
}

/// Writes a line `control module options`, with `end` replaced by the number of modules to the end of
/// the block.
fn module(word: &str, line: &str, to_end: usize) -> String {
    let close = if line.starts_with('[') {
        line.find(']').map_or(0, |at| at + 1)
    } else {
        0
    };
    let control_end = line[close..]
        .find([' ', '\t'])
        .map_or(line.len(), |at| close + at);
    let (control, rest) = line.split_at(control_end);
    let control = control.replace("=end", &format!("={to_end}"));
    let name_start = rest.len() - rest.trim_start().len();
    let (space, rest) = rest.split_at(name_start);
    let (name, options) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    format!("{word}\t{control}{space}{name} {options}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_the_two_blocks() {
        let template = "# here are the per-package modules (the \"Primary\" block)\n$x\n# here's the fallback if no module succeeds\ny\n# and here are more per-package modules (the \"Additional\" block)\n$z\n# end of pam-auth-update config\n";
        let profile = "Name: Unix\nAuth-Type: Primary\nAuth:\n\t[success=end default=ignore]\tpam_unix.so nullok try\nAuth-Initial:\n\t[success=end default=ignore]\tpam_unix.so nullok\nSession-Type: Additional\nSession:\n\trequired\tpam_unix.so\n";
        let (auth, saved) = write(template, profile, "auth");
        assert!(
            auth.contains("block)\nauth\t[success=1 default=ignore]\tpam_unix.so nullok\n# here's")
        );
        assert!(auth.contains("\"Additional\" block)\n# end"));
        assert_eq!(
            saved,
            "Module: unix\n[success=end default=ignore]\tpam_unix.so nullok\n"
        );
        let (session, saved) = write(template, profile, "session-noninteractive");
        assert!(session.contains("session\t[default=1]\t\t\tpam_permit.so\n"));
        assert!(session.contains("\"Additional\" block)\nsession\trequired\tpam_unix.so \n# end"));
        assert!(saved.starts_with("Module: null\n"));
    }
}
