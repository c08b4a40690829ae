use super::*;
use proptest::prelude::*;

fn shown(mirrors: &Mirrors) -> Vec<String> {
    mirrors
        .0
        .iter()
        .map(|mirror| format!("{}={}", mirror.archive, mirror.url))
        .collect()
}

#[test]
fn takes_the_callers_list_before_the_environment_before_apt() {
    let apt = tempfile::tempdir().unwrap();
    std::fs::write(
        apt.path().join("sources.list"),
        "deb http://a.test/debian bookworm main\n",
    )
    .unwrap();
    let choose = |requested: &[&str], environment| {
        let requested: Vec<String> = requested.iter().map(|text| (*text).to_owned()).collect();
        Mirrors::choose(&requested, environment, apt.path()).map(|mirrors| shown(&mirrors))
    };
    assert_eq!(
        choose(&["https://c.test/x/debian/"], Some("http://b.test/debian")).unwrap(),
        ["debian=https://c.test/x/debian"]
    );
    assert_eq!(
        choose(
            &[],
            Some("http://b.test/debian-security, debian=http://u:p@b.test/x")
        )
        .unwrap(),
        [
            "debian-security=http://b.test/debian-security",
            "debian=http://u:p@b.test/x"
        ]
    );
    assert_eq!(
        choose(&[], Some(" ")).unwrap(),
        ["debian=http://a.test/debian"]
    );
    assert_eq!(
        choose(&["ftp://u:p@c.test/debian"], None),
        Err(MirrorError::Address {
            text: "ftp://c.test/debian".into()
        })
    );
    assert_eq!(
        choose(&["http://c.test/x"], None),
        Err(MirrorError::Archive {
            text: "http://c.test/x".into()
        })
    );
    let none = Mirrors::choose(&[], None, Path::new("/nonexistent")).unwrap();
    assert!(
        none.for_archive("debian")
            .unwrap_err()
            .help()
            .contains("STACKFORGE_DEBIAN_MIRROR=\"debian=https://")
    );
}

#[test]
fn a_password_that_falls_into_words_is_not_told() {
    for list in [
        "debian=u:s3cret@h.test/debian",
        "debian=https://u:s3,cret@h.test/debian",
        "debian=https://u:s3 cret@h.test/debian",
        "https://u:s3cret@h.test/other",
        "ftp://u:s3cret@h.test/debian",
    ] {
        let e = Mirrors::choose(&[], Some(list), Path::new("/nonexistent")).unwrap_err();
        let message = format!("{e} {}", e.help());
        assert!(
            !message.contains("cret") && !message.contains("s3"),
            "{message}"
        );
    }
}

#[test]
fn reads_the_hosts_sources() {
    let apt = tempfile::tempdir().unwrap();
    let list = apt.path().join("mirrors");
    std::fs::write(
        &list,
        "http://m.test/debian\tpriority:1\nhttps://n.test/debian/\n",
    )
    .unwrap();
    std::fs::create_dir(apt.path().join("sources.list.d")).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(apt.path().join("sources.list.d").join(name), text).unwrap()
    };
    write(
        "debian.sources",
        &format!(
            "# c\nTypes: deb deb-src\nURIs: http://a.test/debian/\n https://b.test/debian mirror+file:{}\nSuites: bookworm bookworm-updates\nComponents: main contrib\n\n\
             Types: deb\nURIs: http://a.test/debian-security\nSuites: bookworm-security\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\
             Types: deb\nEnabled: no\nURIs: http://off.test/debian\nSuites: bookworm\nComponents: main\n",
            list.display()
        ),
    );
    write(
        "others.list",
        "deb [arch=amd64 signed-by=/x/vendor.gpg] http://v.test/debian bookworm main\n\
         deb http://w.test/linux bookworm stable\ndeb http://p.test/pg bookworm-pgdg main\ndeb-src http://s.test/debian bookworm main\n\
         deb [ arch=arm64 ] http://p.test/ubuntu-ports noble-security main # c\ndeb cdrom:[x]/ bookworm main\ndeb\n",
    );
    write("ignored.save", "deb http://z.test/debian bookworm main\n");
    assert_eq!(
        shown(&Mirrors::of_apt(apt.path())),
        [
            "debian=http://a.test/debian",
            "debian=https://b.test/debian",
            "debian=http://m.test/debian",
            "debian=https://n.test/debian",
            "debian-security=http://a.test/debian-security",
            "ubuntu-ports=http://p.test/ubuntu-ports",
        ]
    );
}

proptest! {
    #[test]
    fn never_panics(text in any::<String>(), line in "deb ?(\\[[a-z= ]{0,9}\\]?)? ?(http://a/b)? ?(bookworm)? ?[main ]{0,5}") {
        let mut mirrors = Mirrors::default();
        mirrors.add_lines(&text);
        mirrors.add_stanzas(&text);
        mirrors.add_lines(&line);
        let _ = Mirrors::parse(std::iter::once(text.as_str()));
        let shown = without_credentials(&format!("http://secret@h/{}", text.replace('@', "")));
        prop_assert!(!shown.contains("secret"));
    }
}
