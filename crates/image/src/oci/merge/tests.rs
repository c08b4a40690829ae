use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn header(path: &str, kind: MemberKind, link: Option<&str>) -> Header {
    Header {
        path: path.to_owned(),
        kind,
        size: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: 0,
        link: link.map(str::to_owned),
        xattrs: Vec::new(),
        device: None,
    }
}

/// Parses a member: `dir/`, `file`, `soft -> to`, `hard => to`.
fn member(text: &str) -> Header {
    if let Some((path, to)) = text.split_once(" -> ") {
        return header(path, MemberKind::SymLink, Some(to));
    }
    if let Some((path, to)) = text.split_once(" => ") {
        return header(path, MemberKind::HardLink, Some(to));
    }
    match text.strip_suffix('/') {
        Some(path) => header(path, MemberKind::Directory, None),
        None => header(text, MemberKind::File, None),
    }
}

fn merge(layers: &[&[&str]]) -> Result<BTreeMap<String, Node>, MergeError> {
    let mut merge = Merge::new();
    for layer in layers {
        for text in *layer {
            merge.add(member(text))?;
        }
        merge.end_layer();
    }
    Ok(merge.finish())
}

/// The merged paths, each with its layer.
fn merged(layers: &[&[&str]]) -> Vec<String> {
    let nodes = merge(layers).unwrap();
    nodes
        .iter()
        .map(|(path, n)| format!("{path}@{}", n.layer))
        .collect()
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    let lower: &[&str] = &["d/", "d/a", "d/b/", "d/b/c", "d-e", "x"];
    assert_eq!(
        merged(&[lower, &["d/.wh.a", "d/.wh.b"]]),
        ["d@0", "d-e@0", "x@0"]
    );
    assert_eq!(merged(&[lower, &[".wh.d"]]), ["d-e@0", "x@0"]);
    // The same in either order of members.
    assert_eq!(
        merged(&[lower, &["d/", "d/n", "d/.wh..wh..opq"]]),
        ["d@1", "d-e@0", "d/n@1", "x@0"]
    );
    assert_eq!(
        merged(&[lower, &["d/.wh..wh..opq", "d/n", ".wh.x", "x"]]),
        ["d@0", "d-e@0", "d/n@1", "x@1"]
    );
    assert_eq!(merged(&[lower, &[".wh..wh..opq", "y"]]), ["y@1"]);
    assert_eq!(merged(&[lower, &[".wh..wh.plnk", ".wh.none"]]).len(), 6);
    for nothing in [".wh.", "d/.wh..", "d/.wh..."] {
        assert!(matches!(merge(&[&[nothing]]), Err(MergeError::Whiteout(_))));
    }
}

#[test]
fn files_and_directories_replace_each_other() {
    let lower: &[&str] = &["d/", "d/a", "f"];
    assert_eq!(merged(&[lower, &["d"]]), ["d@1", "f@0"]);
    assert_eq!(
        merged(&[lower, &["f/", "f/a"]]),
        ["d@0", "d/a@0", "f@1", "f/a@1"]
    );
    assert_eq!(merged(&[lower, &["f/g/a"]]), ["d@0", "d/a@0", "f/g/a@1"]);
    assert_eq!(merged(&[lower, &["d/"]]), ["d@1", "d/a@0", "f@0"]);
    assert_eq!(merged(&[&["d/a", "d", "f", "f"]]), ["d@0", "f@0"]);
    assert!(matches!(
        merge(&[&["f", "f/a"]]),
        Err(MergeError::BelowFile(_))
    ));
}

#[test]
fn members_below_links_lie_where_these_lead() {
    let lower: &[&str] = &[
        "usr/lib/",
        "lib -> usr/lib",
        "abs -> /lib/deep",
        "up -> ../../usr",
    ];
    let nodes = merge(&[lower, &["lib/a", "abs/b", "up/c", "lib/.wh.none"]]).unwrap();
    for path in ["usr/lib/a", "usr/lib/deep/b", "usr/c"] {
        assert_eq!(nodes[path].layer, 1, "{path}");
    }
    assert_eq!(nodes["lib"].header.link.as_deref(), Some("usr/lib"));
    assert_eq!(nodes["usr/lib/a"].header.path, "lib/a");
    assert_eq!(merged(&[lower, &["lib/"]])[1], "lib@1");
    assert!(matches!(
        merge(&[&["a -> b", "b -> a", "a/x"]]),
        Err(MergeError::Circle(_))
    ));
    let mut deep = vec!["a -> a/a/a/a".to_owned()];
    deep.push("a/x".to_owned());
    let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
    assert!(merge(&[&deep]).is_err());
    let long = format!("{}x", "d/".repeat(2100));
    assert!(matches!(merge(&[&[&long]]), Err(MergeError::Long(_))));
}

#[test]
fn hard_links_become_what_they_lead_to() {
    let nodes = merge(&[
        &["a", "b"],
        &["c => b", "d => c", ".wh.b", "s -> x", "t => s"],
    ])
    .unwrap();
    for path in ["c", "d"] {
        let node = &nodes[path];
        assert_eq!(node.layer, 1);
        assert_eq!(
            node.content,
            Member {
                layer: 0,
                member: 1
            }
        );
        assert_eq!(
            (&node.header.path[..], node.header.kind),
            ("b", MemberKind::File)
        );
    }
    assert!(!nodes.contains_key("b"));
    assert_eq!(nodes["t"].header.link.as_deref(), Some("x"));
    assert!(matches!(
        merge(&[&["a => b"]]),
        Err(MergeError::NoTarget { .. })
    ));
    assert!(matches!(
        merge(&[&["d/", "a => d"]]),
        Err(MergeError::ToDirectory { .. })
    ));
}

#[test]
fn two_hundred_thousand_files_are_quick_to_replace_and_to_hide() {
    let mut merge = Merge::new();
    for layer in 0..2 {
        for i in 0..100_000 {
            merge.add(member(&format!("d{}/f{i}", i % 100))).unwrap();
            // Each whiteout hides what is left of its directory: no path may be visited twice.
            merge
                .add(member(&format!("d{}/.wh..wh..opq", i % 100)))
                .unwrap();
        }
        merge.end_layer();
        assert_eq!(merge.lower.len(), 100_000);
        assert!(merge.lower.values().all(|n| n.layer == layer));
    }
}

#[test]
fn a_file_that_becomes_a_directory_again_still_hides_what_was_below() {
    assert_eq!(merged(&[&["b/d/"], &["b", "b/"]]), ["b@1"]);
}

/// A slow merge that visits every path, for names without links.
fn slow(layers: &[Vec<String>]) -> BTreeMap<String, usize> {
    let mut all: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        for text in layer {
            let (dir, name) = text.rsplit_once('/').unwrap_or(("", text));
            let prefix = if dir.is_empty() {
                String::new()
            } else {
                format!("{dir}/")
            };
            if name == ".wh..wh..opq" {
                all.retain(|p, (l, _)| *l == number || !p.starts_with(&prefix));
            } else if let Some(hidden) = name.strip_prefix(".wh.") {
                let path = format!("{prefix}{hidden}");
                let below = format!("{path}/");
                all.retain(|p, (l, _)| *l == number || (*p != path && !p.starts_with(&below)));
            }
        }
        for text in layer.iter().filter(|t| !t.contains(".wh.")) {
            let path = text.trim_end_matches('/').to_owned();
            let directory = text.ends_with('/');
            if !directory {
                let below = format!("{path}/");
                all.retain(|p, _| !p.starts_with(&below));
            }
            for (at, _) in path.match_indices('/') {
                if all
                    .get(&path[..at])
                    .is_some_and(|(_, directory)| !directory)
                {
                    all.remove(&path[..at]);
                }
            }
            all.insert(path, (number, directory));
        }
    }
    all.into_iter()
        .map(|(path, (layer, _))| (path, layer))
        .collect()
}

proptest! {
    #[test]
    fn it_agrees_with_the_slow_way(layers in proptest::collection::vec(
        proptest::collection::vec("([ab]/){0,2}([ab]|[ab]/d/|[ab]/|\\.wh\\.[ab]|\\.wh\\.\\.wh\\.\\.opq)", 0..6), 1..4)
    ) {
        let texts: Vec<Vec<&str>> =
            layers.iter().map(|l| l.iter().map(String::as_str).collect()).collect();
        let texts: Vec<&[&str]> = texts.iter().map(|l| &l[..]).collect();
        if let Ok(nodes) = merge(&texts) {
            let found: BTreeMap<String, usize> =
                nodes.into_iter().map(|(path, n)| (path, n.layer)).collect();
            prop_assert_eq!(found, slow(&layers));
        }
    }

    #[test]
    fn no_members_make_it_panic(members in proptest::collection::vec(
        "([ab]/){0,3}(\\.wh\\.)?[ab](/| -> (\\.\\./|/)?[ab](/[ab])?| => [ab](/[ab])?)?", 0..20)
    ) {
        let mut merge = Merge::new();
        for text in &members {
            let _ = merge.add(member(text));
        }
        merge.end_layer();
        for (path, node) in merge.finish() {
            prop_assert!(node.header.kind != MemberKind::HardLink, "{path}");
        }
    }
}
