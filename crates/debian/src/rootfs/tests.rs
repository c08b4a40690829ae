use super::super::deb::tests::deb_of;
use super::*;
use tar::EntryType::{Directory, Link, Regular, Symlink};

type Data<'a> = &'a [(&'a str, EntryType, &'a str, &'a [u8])];

use tar::EntryType;

struct Fixture {
    directory: tempfile::TempDir,
    debs: Vec<PathBuf>,
}

impl Fixture {
    fn new() -> Self {
        Fixture {
            directory: tempfile::tempdir().unwrap(),
            debs: Vec::new(),
        }
    }

    fn deb(mut self, name: &str, fields: &str, files: &[(&str, &str)], data: Data<'_>) -> Self {
        let control =
            format!("Package: {name}\nVersion: 1\nArchitecture: all\n{fields}Description: x\n");
        let path = self
            .directory
            .path()
            .join(format!("{name}{}.deb", self.debs.len()));
        std::fs::write(&path, deb_of(&control, files, data)).unwrap();
        self.debs.push(path);
        self
    }

    fn write(&self) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        write_rootfs(&self.debs, "amd64", 500, &mut out).map_err(|error| error.to_string())?;
        Ok(out)
    }

    fn members(&self) -> Vec<(Member, String)> {
        let mut members = Vec::new();
        for_each_member(self.write().unwrap().as_slice(), |member, content| {
            let mut text = String::new();
            content.read_to_string(&mut text)?;
            members.push((member, text));
            Ok::<_, MemberError>(())
        })
        .unwrap();
        members
    }

    fn text(&self, path: &str) -> String {
        self.members()
            .into_iter()
            .find(|(member, _)| member.path == path)
            .unwrap()
            .1
    }
}

#[test]
fn lays_packages_out_with_usr_merged() {
    let fixture = Fixture::new()
        .deb(
            "libc",
            "",
            &[],
            &[
                ("./", Directory, "", b""),
                ("./lib64/", Directory, "", b""),
                ("./lib64/ld.so", Regular, "", b"elf"),
                ("./lib/x.so", Symlink, "../lib64/ld.so", b""),
                ("./lib64/copy", Link, "./lib64/ld.so", b""),
            ],
        )
        .deb(
            "shell",
            "",
            &[("./conffiles", "/etc/sh.conf\n")],
            &[
                ("./bin/", Directory, "", b""),
                ("./bin/sh", Regular, "", b"sh"),
                ("./etc/", Directory, "", b""),
                ("./etc/sh.conf", Regular, "", b"hello"),
            ],
        );
    let members = fixture.members();
    let find = |path: &str| {
        members
            .iter()
            .find(|(member, _)| member.path == path)
            .map(|(member, _)| member)
    };
    assert_eq!(members[0].0.path, "");
    assert_eq!(
        find("bin").unwrap().kind,
        PackedKind::Symlink {
            target: "usr/bin".into()
        }
    );
    assert_eq!(
        find("lib64").unwrap().kind,
        PackedKind::Symlink {
            target: "usr/lib64".into()
        }
    );
    assert_eq!(
        find("usr/lib64/copy").unwrap().kind,
        PackedKind::Hardlink {
            target: "usr/lib64/ld.so".into()
        }
    );
    assert_eq!(
        find("usr/lib/x.so").unwrap().kind,
        PackedKind::Symlink {
            target: "../lib64/ld.so".into()
        }
    );
    assert!(find("usr/bin/sh").is_some() && find("bin/sh").is_none());
    assert!(members.iter().all(|(member, _)| member.mtime <= 500));
    let mut paths: Vec<&str> = members
        .iter()
        .map(|(member, _)| member.path.as_str())
        .collect();
    paths.sort_unstable();
    let count = paths.len();
    paths.dedup();
    assert_eq!(paths.len(), count, "a path was written twice");
    assert_eq!(
        fixture.text("var/lib/dpkg/info/shell.list"),
        "/bin\n/bin/sh\n/etc\n/etc/sh.conf\n"
    );
    let status = fixture.text("var/lib/dpkg/status");
    assert!(status.contains("Package: shell\nStatus: install ok unpacked\n"));
    assert!(status.contains("Conffiles:\n /etc/sh.conf 5d41402abc4b2a76b9719d911017c592\n"));
}

#[test]
fn who_replaces_wins_in_either_order() {
    let older: Data<'_> = &[("./usr/x", Regular, "", b"older")];
    let newer: Data<'_> = &[("./usr/x", Regular, "", b"newer")];
    for swapped in [false, true] {
        let mut fixture = Fixture::new().deb("older", "", &[], older).deb(
            "newer",
            "Replaces: older (<< 2)\n",
            &[],
            newer,
        );
        if swapped {
            fixture.debs.reverse();
        }
        assert_eq!(fixture.text("usr/x"), "newer");
        assert_eq!(fixture.text("var/lib/dpkg/info/older.list"), "");
    }
}

#[test]
fn refuses_what_dpkg_would_refuse() {
    let file: Data<'_> = &[("./usr/x", Regular, "", b"1")];
    let alias: Data<'_> = &[("./lib/x", Regular, "", b"1")];
    let merged: Data<'_> = &[("./usr/lib/x", Regular, "", b"1")];
    let cases: &[(Fixture, &str)] = &[
        (
            Fixture::new()
                .deb("aa", "", &[], file)
                .deb("bb", "", &[], file),
            "packages `bb` and `aa` both ship `/usr/x`",
        ),
        (
            Fixture::new()
                .deb("aa", "", &[], alias)
                .deb("bb", "", &[], merged),
            "both ship `/usr/lib/x`",
        ),
        (
            Fixture::new()
                .deb("aa", "", &[], file)
                .deb("bb", "Replaces: aa (>> 1)\n", &[], file),
            "both ship",
        ),
        (
            Fixture::new()
                .deb("aa", "", &[], file)
                .deb("aa", "", &[], &[]),
            "given twice",
        ),
        (
            Fixture::new().deb("aa", "", &[], &[("./x", Link, "./usr/x", b"")]),
            "hard link `/x`",
        ),
        (
            Fixture::new().deb(
                "aa",
                "",
                &[],
                &[("./x", Regular, "", b""), ("./x/y", Regular, "", b"")],
            ),
            "below `/x`",
        ),
        (
            Fixture::new().deb("aa", "", &[], &[("./x/../y", Regular, "", b"")]),
            "package `aa`",
        ),
        (
            Fixture::new().deb("aa", "", &[], &[("./usr", Regular, "", b"")]),
            "the system's layout",
        ),
        (
            Fixture::new().deb(
                "aa",
                "",
                &[],
                &[("./var/lib/dpkg/status", Regular, "", b"")],
            ),
            "dpkg's own",
        ),
    ];
    for (fixture, reason) in cases {
        let error = fixture.write().unwrap_err();
        assert!(error.contains(reason), "{error} / {reason}");
    }
    let mut other = Fixture::new().deb("aa", "", &[], file);
    let bytes = deb_of("Package: bb\nVersion: 1\nArchitecture: arm64\n", &[], &[]);
    other.debs.push(other.directory.path().join("bb.deb"));
    std::fs::write(&other.debs[1], bytes).unwrap();
    assert_eq!(
        other.write().unwrap_err(),
        "package `bb` is for arm64, the root file system for amd64"
    );
}

#[test]
fn same_packages_same_bytes() {
    let data: Data<'_> = &[
        ("./usr/x", Regular, "", b"1"),
        ("./usr/y", Symlink, "x", b""),
    ];
    let fixture = Fixture::new()
        .deb("aa", "", &[("./postinst", "#!/bin/sh\n")], data)
        .deb("bb", "", &[], &[]);
    assert_eq!(fixture.write().unwrap(), fixture.write().unwrap());
}
