//! What a maintainer script does on a fresh installation.
//!
//! The input is the text of a `preinst` or `postinst`. The output is the effects of its debhelper
//! sections, and the rest of it. A section is understood only if it is, line by line, one of the forms
//! that debhelper generates. The rest has to be empty, or known by its digest ([`super::known`]).
//! Nothing is ever guessed, and nothing is run.

use stackforge_types::Digest;

use super::alternatives::Alternative;
use super::known::Effect;

/// A script that is not understood, with the first such line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotUnderstood {
    pub line: String,
}

/// The effects of the sections, in order, and the rest of the script.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub effects: Vec<Effect>,
    pub rest: String,
}

const BEGIN: &str = "# Automatically added by ";
const END: &str = "# End automatically added section";
/// The condition of sections that run on configuration. It holds on a fresh installation.
const CONFIGURING: &str = r#"if [ "$1" = "configure" ] || [ "$1" = "abort-upgrade" ] || [ "$1" = "abort-deconfigure" ] || [ "$1" = "abort-remove" ] ; then"#;

/// Parses a script. `packages` tells whether a package is installed, because some sections act only if
/// a program exists.
pub(super) fn parse(text: &str, packages: &dyn Fn(&str) -> bool) -> Result<Script, NotUnderstood> {
    let mut script = Script {
        effects: Vec::new(),
        rest: String::new(),
    };
    let mut lines = text.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let Some(tool) = line.strip_prefix(BEGIN) else {
            script.rest.push_str(line);
            continue;
        };
        let mut section: Vec<&str> = Vec::new();
        loop {
            match lines.next().map(str::trim) {
                Some(END) => break,
                Some(line) if line.is_empty() || line.starts_with('#') => {}
                Some(line) => section.push(line),
                None => return Err(not_understood(line)),
            }
        }
        let tool = tool.trim().split('/').next().unwrap_or_default();
        let effect = understand(tool, &section, packages)
            .ok_or_else(|| not_understood(section.first().unwrap_or(&line)))?;
        script.effects.extend(effect);
    }
    Ok(script)
}

fn not_understood(line: &str) -> NotUnderstood {
    NotUnderstood {
        line: line.trim().chars().take(120).collect(),
    }
}

fn understand(
    tool: &str,
    section: &[&str],
    packages: &dyn Fn(&str) -> bool,
) -> Option<Option<Effect>> {
    match tool {
        "dh_installdeb" => maintscript(section).then_some(None),
        "dh_installmenu" => (!packages("menu")
            && section
                == [
                    r#"if [ "$1" = "configure" ] && [ -x "`command -v update-menus`" ] && [ -x "$DPKG_ROOT`command -v update-menus`" ]; then"#,
                    "update-menus",
                    "fi",
                ])
        .then_some(None),
        "dh_installtmpfiles" => (!packages("systemd")
            && !packages("systemd-standalone-tmpfiles")
            && tmpfiles(section))
        .then_some(None),
        "dh_installsystemd" => systemd(section),
        "dh_installinit" => init(section),
        "dh_installalternatives" => alternatives(section),
        "dh_python3" => python(section).then_some(None),
        _ => None,
    }
}

/// Whether the section only calls `dpkg-maintscript-helper`, which acts on upgrades only.
fn maintscript(section: &[&str]) -> bool {
    let helper = "dpkg-maintscript-helper ";
    let actions = [
        "rm_conffile",
        "mv_conffile",
        "symlink_to_dir",
        "dir_to_symlink",
    ];
    section.iter().all(|line| {
        line.strip_prefix(helper)
            .and_then(|rest| rest.strip_suffix(r#" -- "$@""#))
            .is_some_and(|rest| {
                plain(rest) && actions.contains(&rest.split(' ').next().unwrap_or_default())
            })
    })
}

fn tmpfiles(section: &[&str]) -> bool {
    let [condition, inner, call, fi, end] = section else {
        return false;
    };
    *condition == CONFIGURING
        && *inner == r#"if [ -x "$(command -v systemd-tmpfiles)" ]; then"#
        && call.starts_with(r#"systemd-tmpfiles ${DPKG_ROOT:+--root="$DPKG_ROOT"} --create "#)
        && call.ends_with(" || true")
        && (*fi, *end) == ("fi", "fi")
}

fn systemd(section: &[&str]) -> Option<Option<Effect>> {
    let (condition, section) = section.split_first()?;
    if *condition != CONFIGURING {
        return None;
    }
    let quoted = |line: &str, before: &str, after: &str| {
        let unit = line.strip_prefix(before)?.strip_suffix(after)?;
        let unit = unit.strip_prefix('\'')?.strip_suffix('\'')?;
        plain(unit).then(|| unit.to_owned())
    };
    let quiet = " >/dev/null || true";
    // This starts units where systemd is running, which it is not here.
    if let [
        running,
        reload,
        old,
        restart,
        "else",
        start,
        "fi",
        invoke,
        "fi",
        "fi",
    ] = section
        && *running == "if [ -d /run/systemd/system ]; then"
        && *reload == "systemctl --system daemon-reload >/dev/null || true"
        && *old == r#"if [ -n "$2" ]; then"#
        && *restart == "_dh_action=restart"
        && *start == "_dh_action=start"
        && invoke.starts_with("deb-systemd-invoke $_dh_action '")
        && invoke.ends_with(quiet)
        && plain(&invoke["deb-systemd-invoke $_dh_action '".len()..invoke.len() - quiet.len()])
    {
        return Some(None);
    }
    let section = match section {
        [first, rest @ ..] if quoted(first, "deb-systemd-helper unmask ", quiet).is_some() => rest,
        all => all,
    };
    if let [was, enable, "else", update, "fi", "fi"] = section {
        let unit = quoted(was, "if deb-systemd-helper --quiet was-enabled ", "; then")?;
        let same = quoted(enable, "deb-systemd-helper enable ", quiet)? == unit
            && quoted(update, "deb-systemd-helper update-state ", quiet)? == unit;
        return same.then_some(Some(Effect::Unit(unit)));
    }
    None
}

fn init(section: &[&str]) -> Option<Option<Effect>> {
    if let [first, second, "fi"] = section
        && first.starts_with(r#"if [ "$1" = "install" ] && [ -n "$2" ] && [ -e "/etc/init.d/"#)
        && second.starts_with("chmod +x ")
    {
        // This is for a script that an earlier version had disabled.
        return Some(None);
    }
    let [condition, exists, update, "fi", "fi"] = section else {
        return None;
    };
    let name = exists
        .strip_prefix(r#"if [ -x "/etc/init.d/"#)?
        .strip_suffix(r#"" ]; then"#)?;
    let call = format!("update-rc.d {name} defaults >/dev/null || exit 1");
    (*condition == CONFIGURING && *update == call && plain(name))
        .then(|| Some(Effect::Init(name.to_owned())))
}

fn alternatives(section: &[&str]) -> Option<Option<Effect>> {
    let (first, rest) = section.split_first()?;
    let (last, calls) = rest.split_last()?;
    let condition = CONFIGURING.replace("] ; then", "]; then");
    if *first != condition || *last != "fi" {
        return None;
    }
    let all = Alternative::commands(&calls.join("\n"))?;
    Some(Some(Effect::Alternative(all)))
}

/// Whether the section only compiles byte code. It is not made here, because that needs the Python that
/// is being installed.
fn python(section: &[&str]) -> bool {
    let compiles = |line: &str| {
        ["py3compile -p ", "pypy3compile -p "]
            .iter()
            .any(|call| line.starts_with(call) && plain(line.trim_end_matches(" || true")))
    };
    let asks = |line: &str| {
        [
            "if command -v py3compile >/dev/null 2>&1; then",
            "if command -v pypy3compile >/dev/null 2>&1; then",
            "if which py3compile >/dev/null 2>&1; then",
            "if which pypy3compile >/dev/null 2>&1; then",
        ]
        .contains(&line)
    };
    !section.is_empty()
        && section
            .chunks(3)
            .all(|c| matches!(c, [ask, call, "fi"] if asks(ask) && compiles(call)))
}

/// Whether a text has no expansion, no redirection and no second command.
fn plain(text: &str) -> bool {
    !text
        .chars()
        .any(|c| "$`;&|<>()\"".contains(c) || c.is_control())
}

/// Whether the rest of a script does nothing.
pub(super) fn is_empty(rest: &str) -> bool {
    rest.lines().map(str::trim).all(|line| {
        line.is_empty()
            || line.starts_with('#')
            || ["set -e", "set -eu", "exit 0", ":", "set +eu"].contains(&line)
    })
}

/// Returns the digest of the rest of a package's script. Version, triplet and architecture are replaced
/// by placeholders, because they may differ in scripts that do the same.
pub(super) fn digest(rest: &str, version: &str, architecture: &str) -> String {
    let mut text = rest.replace(version, "@VERSION@");
    if let Some(triplet) = triplet(architecture) {
        text = text.replace(triplet, "@TRIPLET@");
    }
    text = text.replace(&format!(":{architecture}"), ":@ARCHITECTURE@");
    Digest::of(text.as_bytes()).hex()[..16].to_owned()
}

/// Returns the name of an architecture's library directory.
pub(super) fn triplet(architecture: &str) -> Option<&'static str> {
    match architecture {
        "amd64" => Some("x86_64-linux-gnu"),
        "arm64" => Some("aarch64-linux-gnu"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(tool: &str, body: &str) -> String {
        format!("#!/bin/sh\nset -e\n{BEGIN}{tool}/13.11.4\n{body}\n{END}\nexit 0\n")
    }

    fn effects(text: &str) -> Option<Vec<Effect>> {
        let script = parse(text, &|_| false).ok()?;
        is_empty(&script.rest).then_some(script.effects)
    }

    #[test]
    fn understands_debhelpers_sections() {
        let enable = format!(
            "{CONFIGURING}\n\t# why\n\tdeb-systemd-helper unmask 'a.timer' >/dev/null || true\n\
             if deb-systemd-helper --quiet was-enabled 'a.timer'; then\n\
             deb-systemd-helper enable 'a.timer' >/dev/null || true\nelse\n\
             deb-systemd-helper update-state 'a.timer' >/dev/null || true\nfi\nfi"
        );
        assert_eq!(
            effects(&section("dh_installsystemd", &enable)),
            Some(vec![Effect::Unit("a.timer".into())])
        );
        let remove = r#"dpkg-maintscript-helper rm_conffile /etc/a 1.2\~ -- "$@""#;
        assert_eq!(effects(&section("dh_installdeb", remove)), Some(vec![]));
        let init = format!(
            "{CONFIGURING}\nif [ -x \"/etc/init.d/a\" ]; then\nupdate-rc.d a defaults >/dev/null || exit 1\nfi\nfi"
        );
        assert_eq!(
            effects(&section("dh_installinit", &init)),
            Some(vec![Effect::Init("a".into())])
        );
        let python = "if command -v py3compile >/dev/null 2>&1; then\n\tpy3compile -p a \nfi";
        assert_eq!(effects(&section("dh_python3", python)), Some(vec![]));
    }

    #[test]
    fn guesses_nothing() {
        for (tool, body) in [
            ("dh_installdeb", "rm -rf /"),
            (
                "dh_installdeb",
                r#"dpkg-maintscript-helper rm_conffile /a 1; rm -rf / -- "$@""#,
            ),
            ("dh_installsysusers", "systemd-sysusers"),
            ("dh_installsystemd", "deb-systemd-helper enable 'a'"),
            ("dh_python3", "py3compile -p a"),
            ("dh_installmenu", "update-menus --all"),
        ] {
            assert!(parse(&section(tool, body), &|_| false).is_err(), "{body}");
        }
        assert!(parse(&format!("{BEGIN}dh_installdeb/1\n"), &|_| false).is_err());
        assert!(!is_empty("#!/bin/sh\nset -e\nmkdir /x\n"));
    }

    #[test]
    fn a_digest_sees_through_version_and_architecture() {
        let text = |version: &str, triplet: &str| format!("clean {version} /usr/lib/{triplet}\n");
        assert_eq!(
            digest(&text("1.2-3", "x86_64-linux-gnu"), "1.2-3", "amd64"),
            digest(&text("1.2-4", "aarch64-linux-gnu"), "1.2-4", "arm64"),
        );
        assert_ne!(digest("a", "1.2-3", "amd64"), digest("b", "1.2-3", "amd64"));
    }
}
