//! Accounts as base-passwd, shadowconfig(8) and adduser(8) would leave them.
//!
//! The input is base-passwd's master files, `/etc/login.defs` and the day that the system is made for.
//! The output is passwd(5), group(5), shadow(5) and gshadow(5). No account ever gets a password.

use super::FinishError;
use super::system::System;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
const SHADOW: &str = "/etc/shadow";
const GSHADOW: &str = "/etc/gshadow";
/// Number of the group `shadow` in base-passwd's master file.
const SHADOW_GID: u64 = 42;
/// Number of `nogroup`, the group of a system account without a group of its own.
const NOGROUP: u64 = 65_534;
/// Range of numbers for adduser's system accounts (`FIRST_SYSTEM_UID`, `LAST_SYSTEM_UID`).
const SYSTEM: std::ops::RangeInclusive<u64> = 100..=999;

pub(super) fn masters(system: &mut System<'_>) -> Result<(), FinishError> {
    system.copy("/usr/share/base-passwd/passwd.master", PASSWD)?;
    system.copy("/usr/share/base-passwd/group.master", GROUP)
}

fn field(line: &str, at: usize) -> &str {
    line.split(':').nth(at).unwrap_or_default()
}

/// Replaces each line's password by `x`, and returns the names with their former passwords and their
/// last field.
fn unshadowed(text: &str) -> (String, Vec<(String, String, String)>) {
    let mut moved = Vec::new();
    let lines = text.lines().map(|line| {
        let mut fields: Vec<&str> = line.split(':').collect();
        if let [name, password, ..] = fields[..] {
            let last = fields.last().copied().unwrap_or_default().to_owned();
            moved.push((name.to_owned(), password.to_owned(), last));
            fields[1] = "x";
        }
        fields.join(":") + "\n"
    });
    (lines.collect(), moved)
}

/// Does what `pwconv` and `grpconv` do on a system without shadow files. `day` counts from 1970-01-01.
pub(super) fn shadow(system: &mut System<'_>, day: u64) -> Result<(), FinishError> {
    if system.exists(SHADOW) || !system.exists(PASSWD) || !system.exists(GROUP) {
        return Ok(());
    }
    let definitions = system.text("/etc/login.defs")?.unwrap_or_default();
    let days = aging(&definitions);
    let (passwd, moved) = unshadowed(&system.text(PASSWD)?.unwrap_or_default());
    let shadow: String = moved
        .iter()
        .map(|(name, password, _)| format!("{name}:{password}:{day}:{days}:::\n"))
        .collect();
    let (group, moved) = unshadowed(&system.text(GROUP)?.unwrap_or_default());
    let gshadow: String = moved
        .iter()
        .map(|(name, password, members)| format!("{name}:{password}::{members}\n"))
        .collect();
    system.file(PASSWD, 0o644, 0, passwd.into_bytes())?;
    system.file(GROUP, 0o644, 0, group.into_bytes())?;
    system.file(SHADOW, 0o640, SHADOW_GID, shadow.into_bytes())?;
    system.file(GSHADOW, 0o640, SHADOW_GID, gshadow.into_bytes())
}

/// Returns the least and most days between changes of a password and the days of warning
/// (login.defs(5)).
fn aging(definitions: &str) -> String {
    let of = |name: &str, default: &'static str| {
        definitions
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name))
            .find(|rest| rest.starts_with([' ', '\t']))
            .map_or(default.to_owned(), |rest| rest.trim().to_owned())
    };
    format!(
        "{}:{}:{}",
        of("PASS_MIN_DAYS", ""),
        of("PASS_MAX_DAYS", ""),
        of("PASS_WARN_AGE", "")
    )
}

/// Does what `adduser --system --no-create-home` does: nothing if the name exists.
pub(super) fn system_user(
    system: &mut System<'_>,
    name: &str,
    home: &str,
    day: u64,
) -> Result<(), FinishError> {
    let mut passwd = system.text(PASSWD)?.unwrap_or_default();
    if passwd.lines().any(|line| field(line, 0) == name) {
        return Ok(());
    }
    let group = system.text(GROUP)?.unwrap_or_default();
    let is_used = |id: u64| {
        let id = id.to_string();
        passwd
            .lines()
            .chain(group.lines())
            .any(|l| field(l, 2) == id)
    };
    let uid = SYSTEM
        .into_iter()
        .find(|uid| !is_used(*uid))
        .ok_or_else(|| FinishError::Damaged {
            path: PASSWD.to_owned(),
        })?;
    let shadowed = system.exists(SHADOW);
    let password = if shadowed { "x" } else { "!" };
    passwd.push_str(&format!(
        "{name}:{password}:{uid}:{NOGROUP}::{home}:/usr/sbin/nologin\n"
    ));
    system.file(PASSWD, 0o644, 0, passwd.into_bytes())?;
    if shadowed {
        let mut shadow = system.text(SHADOW)?.unwrap_or_default();
        shadow.push_str(&format!("{name}:!:{day}::::::\n"));
        system.file(SHADOW, 0o640, SHADOW_GID, shadow.into_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::Tree;
    use super::super::system::Nothing;
    use super::*;

    fn system() -> System<'static> {
        let mut system = System::new(&Nothing, Tree::new().0);
        let put = |s: &mut System<'_>, path: &str, text: &str| {
            s.file(path, 0o644, 0, text.as_bytes().to_vec()).unwrap();
        };
        put(&mut system, PASSWD, "root:*:0:0:root:/root:/bin/bash\n");
        put(&mut system, GROUP, "root:*:0:\nadm:*:4:root\n");
        put(
            &mut system,
            "/etc/login.defs",
            "# PASS_MAX_DAYS 1\nPASS_MAX_DAYS\t99999\nPASS_MIN_DAYS 0\nPASS_WARN_AGE 7\n",
        );
        system
    }

    #[test]
    fn moves_passwords_to_shadow() {
        let mut system = system();
        shadow(&mut system, 19_723).unwrap();
        let text = |path| system.text(path).unwrap().unwrap();
        assert_eq!(text(PASSWD), "root:x:0:0:root:/root:/bin/bash\n");
        assert_eq!(text(SHADOW), "root:*:19723:0:99999:7:::\n");
        assert_eq!(text(GSHADOW), "root:*::\nadm:*::root\n");
    }

    #[test]
    fn an_account_gets_the_first_free_number_once() {
        let mut system = system();
        shadow(&mut system, 1).unwrap();
        system_user(&mut system, "_apt", "/nonexistent", 1).unwrap();
        system_user(&mut system, "_apt", "/nonexistent", 1).unwrap();
        let passwd = system.text(PASSWD).unwrap().unwrap();
        assert!(passwd.ends_with("_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n"));
        assert_eq!(passwd.lines().count(), 2);
    }
}
