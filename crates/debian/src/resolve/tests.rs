use super::super::index::tests::index;
use super::*;
use proptest::prelude::*;

fn names(index_text: &str, wanted: &[&str]) -> Result<String, String> {
    with(index_text, wanted, &[], false)
}

fn with(
    index_text: &str,
    wanted: &[&str],
    installed: &[(&str, &str)],
    base: bool,
) -> Result<String, String> {
    let request = Request {
        wanted: wanted.iter().map(|name| (*name).to_owned()).collect(),
        installed: installed
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
            .collect(),
        base,
        ..Request::default()
    };
    let debs = resolve(&index(index_text), &request).map_err(|error| error.to_string())?;
    let shown: Vec<String> = debs
        .iter()
        .map(|deb| format!("{}={}", deb.name, deb.version))
        .collect();
    Ok(shown.join(" "))
}

#[test]
fn follows_dependencies_first_and_keeps_to_versions() {
    let text = "app 1\n Depends: lib (>= 2), data\n Pre-Depends: pre\nlib 2\n Depends: app\nlib 1\ndata 1\n Recommends: more\nmore 1\npre 1";
    assert_eq!(names(text, &["app"]).unwrap(), "pre=1 lib=2 data=1 app=1");
    let error = names(
        "app 1\n Depends: mid\nmid 1\n Depends: lib (>= 3)\nlib 2",
        &["app"],
    );
    assert_eq!(
        error.unwrap_err(),
        "nothing satisfies `lib (>= 3)`, asked for by `app` → `mid`"
    );
}

#[test]
fn takes_the_first_alternative_unless_another_is_chosen() {
    let text = "app 1\n Depends: aa | bb\nother 1\n Depends: bb\naa 1\nbb 1";
    assert_eq!(names(text, &["app"]).unwrap(), "aa=1 app=1");
    assert_eq!(
        names(text, &["app", "other"]).unwrap(),
        "bb=1 app=1 other=1"
    );
    let missing = "app 1\n Depends: gone | bb (>= 2) | cc\nbb 1\ncc 1";
    assert_eq!(names(missing, &["app"]).unwrap(), "cc=1 app=1");
    let hostile = "app 1\n Depends: aa | bb, cc\ncc 1\n Conflicts: aa\naa 1\nbb 1";
    assert_eq!(names(hostile, &["app"]).unwrap(), "bb=1 cc=1 app=1");
    let merged = "app 1\n Depends: usrmerge | usr-is-merged\nusrmerge 1\nusr-is-merged 1";
    assert_eq!(names(merged, &["app"]).unwrap(), "usr-is-merged=1 app=1");
}

#[test]
fn virtual_names_go_to_the_real_package_then_priority_then_name() {
    let text = "app 1\n Depends: mta\nzz 1\n Provides: mta\naa 1\n Provides: mta\nyy 1\n Provides: mta\n Priority: important\n";
    assert_eq!(names(text, &["app"]).unwrap(), "yy=1 app=1");
    assert_eq!(
        names(&format!("{text}mta 1\n"), &["app"]).unwrap(),
        "mta=1 app=1"
    );
    let versioned = "app 1\n Depends: mta (>= 2)\naa 1\n Provides: mta\nbb 1\n Provides: mta (= 1)\ncc 1\n Provides: mta (= 2)";
    assert_eq!(names(versioned, &["app"]).unwrap(), "cc=1 app=1");
    assert_eq!(names(text, &["mta"]).unwrap(), "yy=1");
}

#[test]
fn honours_pins_and_says_what_clashes() {
    let text = "lib 2\nlib 1\napp 1\n Depends: lib (= 1)";
    assert_eq!(names(text, &["lib"]).unwrap(), "lib=2");
    assert_eq!(names(text, &["lib=1"]).unwrap(), "lib=1");
    assert_eq!(
        names(text, &["lib=3"]).unwrap_err(),
        "package `lib` is not there in version 3; the archive has 2, 1"
    );
    assert_eq!(
        names(text, &["lib", "app"]).unwrap_err(),
        "`lib (= 1)`, asked for by `app`, does not accept `lib` 2, asked for by `lib`"
    );
    assert_eq!(
        names("python3 1", &["pyhton3"]).unwrap_err(),
        "no package `pyhton3` in the archive's suites; did you mean `python3`?"
    );
    assert_eq!(
        names("python3 1", &["other", "python3", "python4"]).unwrap_err(),
        "no package `other` in the archive's suites\nno package `python4` in the archive's suites; did you mean `python3`?"
    );
}

#[test]
fn conflicts_name_both_chains() {
    let text = "app 1\n Depends: aa, bb\naa 1\nbb 1\n Breaks: aa (<< 2)";
    assert_eq!(
        names(text, &["app"]).unwrap_err(),
        "`bb`, asked for by `app` → `bb`, excludes `aa (<< 2)` and so `aa`, asked for by `app` → `aa`"
    );
    assert!(names(&text.replace("<< 2", "<< 1"), &["app"]).is_ok());
    // The usual way to allow only one package of a kind.
    let kind = "aa 1\n Provides: mta\n Conflicts: mta\nbb 1\n Provides: mta";
    assert!(names(kind, &["aa"]).is_ok());
    assert!(names(kind, &["aa", "bb"]).is_err());
    let installed = with("aa 1\n Conflicts: old", &["aa"], &[("old", "1")], false);
    assert_eq!(
        installed.unwrap_err(),
        "`aa`, asked for by `aa`, excludes `old` and so `old`, asked for by `old` (installed)"
    );
}

#[test]
fn a_base_has_what_is_required_and_what_is_installed_stays() {
    let text = "apt 1\n Depends: lib\nlib 1\nsh 1\n Essential: yes\ncore 1\n Priority: required\nextra 1\n Depends: lib, sh";
    assert_eq!(
        with(text, &["extra"], &[], true).unwrap(),
        "core=1 lib=1 apt=1 sh=1 extra=1"
    );
    let installed = [("lib", "1"), ("sh", "1"), ("apt", "1"), ("core", "1")];
    assert_eq!(
        with(text, &["extra"], &installed, false).unwrap(),
        "extra=1"
    );
    assert_eq!(with(text, &["lib"], &installed, true).unwrap(), "");
    let newer = "extra 1\n Depends: lib (>= 2)\nlib 2";
    assert_eq!(
        with(newer, &["extra"], &[("lib", "1")], false).unwrap(),
        "lib=2 extra=1"
    );
    let provided =
        "extra 1\n Depends: virtual\nlib 1\n Provides: virtual\naa 1\n Provides: virtual";
    assert_eq!(
        with(provided, &["extra"], &[("lib", "1")], false).unwrap(),
        "extra=1"
    );
}

proptest! {
    /// For any index the result is closed or an error, and the same each time.
    #[test]
    fn result_is_closed(rows in proptest::collection::vec(("[a-d]{2}", 1u8..4, proptest::collection::vec("[a-d]{2}( \\([<>=]{2} [1-3]\\))?( \\| [a-d]{2})?", 0..3)), 1..9)) {
        let mut text = String::new();
        for (name, version, depends) in &rows {
            text.push_str(&format!("{name} {version}\n Depends: {}\n", depends.join(", ").replace("><", ">=").replace("<>", "<=").replace("=<", "<=").replace("=>", ">=").replace("==", ">=")));
        }
        let text = text.replace("Depends: \n", "Section: x\n");
        let index = index(&text);
        let request = Request { wanted: vec![rows[0].0.clone()], ..Request::default() };
        if let Ok(debs) = resolve(&index, &request) {
            prop_assert_eq!(&debs, &resolve(&index, &request).unwrap());
            let chosen: BTreeMap<&str, &str> = debs.iter().map(|deb| (deb.name.as_str(), deb.version.as_str())).collect();
            prop_assert_eq!(chosen.len(), debs.len());
            for deb in &debs {
                let package = index.versions(&deb.name).find(|package| package.version() == deb.version).unwrap();
                for group in parse_relations(package.depends(), "amd64").unwrap() {
                    let met = group.iter().any(|alternative| chosen.get(alternative.name).is_some_and(|version| alternative.accepts(version)));
                    prop_assert!(met, "{:?} {:?}", deb.name, group);
                }
            }
        }
    }
}
