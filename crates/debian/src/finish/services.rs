//! Units and services that are enabled: deb-systemd-helper(1p) and update-rc.d(8).
//!
//! The input is a unit's `[Install]` section, or the LSB header of a script in `/etc/init.d`. The
//! output is the links that enable them and deb-systemd-helper's record of them. Nothing is started.

use super::FinishError;
use super::system::System;

const NOTES: &str = "/var/lib/systemd/deb-systemd-helper-enabled";

pub(super) fn enable(system: &mut System<'_>, unit: &str) -> Result<(), FinishError> {
    let file = format!("/lib/systemd/system/{unit}");
    let Some(text) = system.text(&file)? else {
        return Ok(());
    };
    let mut links = Vec::new();
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| section == "[Install]") else {
            continue;
        };
        let folder = match key.trim() {
            "WantedBy" => "wants",
            "RequiredBy" => "requires",
            // No known package needs the other keys, such as further units or names.
            _ => {
                return Err(FinishError::Unit {
                    unit: unit.to_owned(),
                    line: line.to_owned(),
                });
            }
        };
        for target in value.split_ascii_whitespace() {
            links.push(format!("{target}.{folder}/{unit}"));
        }
    }
    let mut also = String::new();
    for link in links {
        let path = format!("/etc/systemd/system/{link}");
        system.link(&path, &file)?;
        system.file(&format!("{NOTES}/{link}"), 0o644, 0, Vec::new())?;
        also.push_str(&path);
        also.push('\n');
    }
    system.file(
        &format!("{NOTES}/{unit}.dsh-also"),
        0o644,
        0,
        also.into_bytes(),
    )
}

/// Does what `update-rc.d NAME defaults` does where neither insserv nor sysv-rc orders services.
pub(super) fn defaults(system: &mut System<'_>, name: &str) -> Result<(), FinishError> {
    let Some(text) = system.text(&format!("/etc/init.d/{name}"))? else {
        return Ok(());
    };
    let levels = |key: &str| -> Vec<String> {
        text.lines()
            .take_while(|line| !line.starts_with("### END INIT INFO"))
            .find_map(|line| line.strip_prefix(key))
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let (start, stop) = (levels("# Default-Start:"), levels("# Default-Stop:"));
    for (letter, levels) in [('S', start), ('K', stop)] {
        for level in levels {
            let link = format!("/etc/rc{level}.d/{letter}01{name}");
            system.link(&link, &format!("../init.d/{name}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::tree::Tree;
    use super::super::system::Nothing;
    use super::*;

    fn system(path: &str, text: &str) -> System<'static> {
        let mut system = System::new(&Nothing, Tree::new().0);
        system.file(path, 0o644, 0, text.into()).unwrap();
        system
    }

    #[test]
    fn a_unit_is_linked_where_it_is_wanted() {
        let text = "[Unit]\nX=1\n[Install]\nWantedBy=timers.target\n";
        let mut on = system("/lib/systemd/system/a.timer", text);
        enable(&mut on, "a.timer").unwrap();
        let link = "/etc/systemd/system/timers.target.wants/a.timer";
        assert_eq!(
            on.tree.follow(link).unwrap(),
            "usr/lib/systemd/system/a.timer"
        );
        let note = on.text(&format!("{NOTES}/a.timer.dsh-also")).unwrap();
        assert_eq!(note.unwrap(), format!("{link}\n"));
        let mut other = system(
            "/lib/systemd/system/b.service",
            "[Install]\nAlias=c.service\n",
        );
        assert!(enable(&mut other, "b.service").is_err());
    }

    #[test]
    fn a_service_starts_and_stops_at_its_levels() {
        let text = "#!/bin/sh\n### BEGIN INIT INFO\n# Default-Start:     S\n# Default-Stop:      0 6\n### END INIT INFO\n";
        let mut on = system("/etc/init.d/clock", text);
        defaults(&mut on, "clock").unwrap();
        for link in ["rcS.d/S01clock", "rc0.d/K01clock", "rc6.d/K01clock"] {
            let path = format!("/etc/{link}");
            assert_eq!(on.tree.follow(&path).unwrap(), "etc/init.d/clock");
        }
    }
}
