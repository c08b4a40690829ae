//! Libraries are found where the loader finds them: against a base's files, and against `ldd`.

use super::{audit, findings, providers};
use stackforge_binary::samples::compiled::{Built, rpath, runpath};
use std::collections::BTreeMap;
use std::process::Command;
use support::Sandbox;

#[test]
fn a_base_is_judged_by_its_files() {
    let sandbox = Sandbox::new();
    let machine = std::env::consts::ARCH;
    let write = |path: &str, built: Built<'_>| built.write(&sandbox.path(path));
    let libc = Built {
        soname: Some("libc.so.6"),
        defines: Some("GLIBC_2.28"),
        ..Built::default()
    };
    write(&format!("base/lib/{machine}-linux-gnu/libc.so.6"), libc);
    write("base/opt/own/libown.so", Built::default());
    sandbox.write("base/etc/ld.so.conf", "include ld.so.conf.d/*.conf\n");
    sandbox.write("base/etc/ld.so.conf.d/own.conf", "/opt/own\n");
    let module = Built {
        needs: &["libown.so", "libgone.so"],
        glibc: Some("GLIBC_2.34"),
        ..Built::default()
    };
    write("base/usr/lib/python3.12/site-packages/x/_C.so", module);

    let inside = "base/usr/lib/python3.12/site-packages";
    let (_, document) = audit(&sandbox, &[inside, "--sysroot", "base"]);
    let errors = findings(&document, "error");
    let at = |code: &str, path: &str| (code.to_owned(), path.to_owned());
    assert_eq!(errors, [at("SF0902", "x/_C.so"), at("SF0907", "x/_C.so")]);
    assert_eq!(document["python"], "3.12");
    assert_eq!(
        providers(&document)["x/_C.so"]["libown.so"],
        "/opt/own/libown.so"
    );

    // The same as a root file system of its own.
    let (_, whole) = audit(&sandbox, &["base"]);
    let module = format!("{}/x/_C.so", &inside[5..]);
    assert_eq!(
        findings(&whole, "error"),
        [at("SF0902", &module), at("SF0907", &module)]
    );
    let own = "opt/own/libown.so (in a default directory)";
    assert_eq!(providers(&whole)[&module]["libown.so"], own);
}

/// What the machine's own loader says of the object: the path of each library, relative to the
/// directory, or `not found`.
fn judged(sandbox: &Sandbox, object: &str) -> BTreeMap<String, String> {
    let root = sandbox.path("tree").canonicalize().unwrap();
    let output = Command::new("ldd").arg(root.join(object)).output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (name, path) = line.trim().split_once(" => ")?;
        let path = path.split(" (").next()?;
        let real = std::fs::canonicalize(path).ok();
        let inside = real
            .as_ref()
            .and_then(|p| p.strip_prefix(&root).ok()?.to_str());
        Some((name.to_owned(), inside.unwrap_or(path).to_owned()))
    };
    listing.lines().filter_map(line).collect()
}

/// The same by the audit: what the object needs, and what that needs in turn.
fn resolved(sandbox: &Sandbox, object: &str) -> BTreeMap<String, String> {
    let (_, document) = audit(sandbox, &["tree"]);
    let providers = providers(&document);
    let mut found = BTreeMap::new();
    let mut left = vec![object.to_owned()];
    while let Some(path) = left.pop() {
        for (name, by) in providers.get(&path).into_iter().flatten() {
            let by = match by.split_once(" (") {
                None | Some((_, "where no search leads)")) => "not found",
                Some((path, _)) => path,
            }
            .to_owned();
            if found.insert(name.clone(), by.clone()).is_none() {
                left.push(by);
            }
        }
    }
    found
}

#[test]
fn libraries_are_found_where_the_loader_finds_them() {
    let both = "$ORIGIN/../mid:$ORIGIN/../deep";
    for (case, needs, search) in [
        ("RPATH serves those below", "libplain.so", rpath(both)),
        ("RUNPATH does not", "libplain.so", runpath(both)),
        ("RPATH stops at a RUNPATH below", "librun.so", rpath(both)),
        (
            "what is loaded is taken",
            "libplain.so libleaf.so",
            runpath("$ORIGIN/../mid:${ORIGIN}/../other"),
        ),
    ] {
        let sandbox = Sandbox::new();
        let write = |path: &str, needs: &[&str], search: &[&str]| {
            let built = Built {
                soname: path.rsplit('/').next(),
                needs,
                search,
                ..Built::default()
            };
            built.write(&sandbox.path(&format!("tree/{path}")));
        };
        write("deep/libleaf.so", &[], &[]);
        write("other/libleaf.so", &[], &[]);
        write("mid/libplain.so", &["libleaf.so"], &[]);
        write(
            "mid/librun.so",
            &["libleaf.so"],
            &[&runpath("$ORIGIN/nowhere")],
        );
        let needs: Vec<&str> = needs.split(' ').collect();
        write("top/x.so", &needs, &[&search]);
        let judged = judged(&sandbox, "top/x.so");
        assert_eq!(judged.len(), 2, "{case}");
        assert_eq!(resolved(&sandbox, "top/x.so"), judged, "{case}");
    }
}
