use super::*;
use proptest::prelude::*;

/// Builds a `Packages` file from `NAME VERSION` lines, each followed by indented fields.
pub(crate) fn packages(text: &str) -> String {
    let mut out = String::new();
    for line in text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.trim().is_empty())
    {
        let line = line.trim();
        if line.contains(": ") {
            out.push_str(&format!("{line}\n"));
            continue;
        }
        let (name, version) = line.split_once(' ').unwrap();
        out.push_str(&format!(
            "\nPackage: {name}\nVersion: {version}\nArchitecture: amd64\nFilename: pool/{name}.deb\nSize: 7\nSHA256: {}\n",
            "0f".repeat(32)
        ));
    }
    out
}

pub(crate) fn index(text: &str) -> PackageIndex {
    let mut builder = IndexBuilder::new("amd64");
    builder.add("debian", packages(text).as_bytes()).unwrap();
    builder.finish()
}

#[test]
fn prefers_the_newest_version_over_suites() {
    let mut builder = IndexBuilder::new("amd64");
    builder
        .add(
            "debian",
            packages("aa 1.9\nbb 1\n  Provides: virtual (= 3), other").as_bytes(),
        )
        .unwrap();
    builder
        .add(
            "debian-security",
            packages("aa 1.10\nbb 1\ncc 1\n  Essential: yes\n  Priority: required").as_bytes(),
        )
        .unwrap();
    let index = builder.finish();
    assert_eq!(
        index
            .versions("aa")
            .map(|p| p.version())
            .collect::<Vec<_>>(),
        ["1.10", "1.9"]
    );
    assert_eq!(
        index.newest("aa").unwrap().locked().archive,
        "debian-security"
    );
    assert_eq!(index.newest("bb").unwrap().locked().archive, "debian");
    assert_eq!(
        index.packages().map(|p| p.name()).collect::<Vec<_>>(),
        ["aa", "bb", "cc"]
    );
    assert_eq!(
        index.providers("virtual").next().unwrap().provides(),
        [("virtual", Some("3")), ("other", None)]
    );
    assert!(index.newest("cc").unwrap().essential());
    assert!(index.newest("dd").is_none() && index.newest("").is_none());
}

#[test]
fn leaves_out_other_architectures_and_refuses_bad_rows() {
    let mut builder = IndexBuilder::new("amd64");
    builder
        .add(
            "debian",
            packages("aa 1").replace("amd64", "arm64").as_bytes(),
        )
        .unwrap();
    assert_eq!(builder.finish().packages().count(), 0);
    for (from, to) in [
        ("Filename: pool", "Filename: /pool"),
        ("Size: 7", "Size: x"),
        ("0f0f", "zz"),
        ("aa", "A/b"),
        ("Version: 1", "Version: -"),
    ] {
        let mut builder = IndexBuilder::new("amd64");
        assert!(
            builder
                .add("debian", packages("aa 1").replacen(from, to, 1).as_bytes())
                .is_err(),
            "{to}"
        );
    }
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..500), row in "(Package|Version|Provides|Size|x)(: [ab1(=,]{0,6})?\n") {
        let mut builder = IndexBuilder::new("amd64");
        let _ = builder.add("debian", bytes.as_slice());
        let _ = builder.add("debian", format!("{}{row}", packages("aa 1")).as_bytes());
        let index = builder.finish();
        prop_assert!(index.packages().count() <= 2);
    }
}
