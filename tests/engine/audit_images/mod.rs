//! Images in every place where images are, audited: umoci makes them, skopeo, Docker and Debian's
//! docker-registry hand them on.

mod made;

use made::{Made, SITE, lib, run};
use serde_json::Value;
use stackforge_binary::samples::compiled::{Built, runpath};
use std::path::{Path, PathBuf};
use support::{self, server};
use support::{Run, Sandbox};

const NEW_ABI: &str = "_ZN3c105checkENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

fn named(soname: &str) -> Built<'_> {
    Built {
        soname: Some(soname),
        ..Built::default()
    }
}

fn needing<'a>(needs: &'a [&'a str]) -> Built<'a> {
    Built {
        needs,
        ..Built::default()
    }
}

/// What every system has: a loader with its configuration, a glibc, `/lib` as a link.
fn system(made: &Made) {
    made.text_file("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
    made.text_file("etc/ld.so.conf.d/own.conf", "/srv/lib # own\n");
    let at = made.folder().join(lib());
    std::fs::create_dir_all(&at).unwrap();
    for name in ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"] {
        let found = run("cc", &[&format!("-print-file-name={name}")]);
        if found.starts_with('/') {
            std::fs::copy(found, at.join(name)).unwrap();
        }
    }
    std::os::unix::fs::symlink("usr/lib", made.folder().join("lib")).unwrap();
    made.text_file(
        &format!("{SITE}/torch-2.13.0.dist-info/METADATA"),
        "Name: torch\n",
    );
    let c10 = Built {
        exports: &[NEW_ABI],
        ..named("libc10.so")
    };
    made.object(&format!("{SITE}/torch/lib/libc10.so"), &c10);
    let cudart = format!("{SITE}/nvidia/cu13/lib/libcudart.so.13");
    made.object(&cudart, &named("libcudart.so.13"));
}

/// Three layers, of which the upper ones mend some of the lowest one's faults.
fn image() -> Made {
    let mut made = Made::new();
    system(&made);
    let site = |path: &str| format!("{SITE}/{path}");
    let good = Built {
        needs: &["libc10.so", "libcudart.so.13", "libcuda.so.1", "libc.so.6"],
        asks: &[NEW_ABI],
        code: &[(&[80, 90], &[]), (&[90, 110], &[90])],
        ..Built::default()
    };
    made.object(&site("good/_C.so"), &good);
    made.object(&site("gone/_C.so"), &needing(&["libgone.so"]));
    made.object(&site("mended/_C.so"), &needing(&["libgone.so"]));
    made.object(&site("env/_C.so"), &needing(&["libenv.so.1"]));
    made.object("opt/own/libenv.so.1", &named("libenv.so.1"));
    made.object(
        &site("linked/_C.so"),
        &needing(&["libhard.so.1", "libsoft.so.1"]),
    );
    made.object(&format!("{}/libhard.so.1.2", lib()), &named("libhard.so.1"));
    let hard = made.folder().join(lib()).join("libhard.so.1");
    std::fs::hard_link(made.folder().join(lib()).join("libhard.so.1.2"), hard).unwrap();
    made.object("srv/real/libsoft.so.1.0", &named("libsoft.so.1"));
    std::os::unix::fs::symlink("real", made.folder().join("srv/lib")).unwrap();
    let soft = made.folder().join("srv/real/libsoft.so.1");
    std::os::unix::fs::symlink("/srv/lib/libsoft.so.1.0", soft).unwrap();
    let floor = Built {
        glibc: Some("GLIBC_2.99"),
        ..Built::default()
    };
    made.object(&site("floor/_C.so"), &floor);
    made.layer();
    made.whiteout(&site("gone/_C.so"));
    made.object(&site("mended/_C.so"), &needing(&["libnew.so.1"]));
    // The loader comes to it through `/lib`.
    made.object(&format!("{}/libnew.so.1", lib()), &named("libnew.so.1"));
    made.layer();
    made.env("LD_LIBRARY_PATH=/opt/own:relative:");
    made
}

fn audit(sandbox: &Sandbox, target: &str) -> (Run, Value) {
    let run = sandbox.run(&["audit", "--json", "--gpu", "h100", target]);
    let document = serde_json::from_str(&run.stdout)
        .unwrap_or_else(|e| panic!("{target}: {e}: {}{}", run.stdout, run.stderr));
    (run, document)
}

/// Code and object of every finding.
fn findings(document: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap().iter();
    findings
        .map(|f| (text(&f["code"]), text(&f["object"])))
        .collect()
}

fn provider<'d>(document: &'d Value, path: &str, name: &str) -> &'d str {
    let objects = document["objects"].as_array().unwrap();
    let object = objects.iter().find(|o| o["path"] == path);
    let object = object.unwrap_or_else(|| panic!("{path} is not in {document:#}"));
    object["providers"][name].as_str().unwrap()
}

fn site(path: &str) -> String {
    format!("{SITE}/{path}")
}

#[test]
fn an_image_is_the_same_wherever_it_is() {
    let mut made = image();
    let (targets, _server) = made.everywhere();
    let mut first: Option<Value> = None;
    for target in &targets {
        let (run, document) = audit(&made.sandbox, target);
        assert_eq!(run.code, 1, "{target}: {}", run.stderr);
        assert_eq!(document["target"], target.replace(&made.text(""), "[DIR]/"));
        let first = first.get_or_insert_with(|| document.clone());
        for part in ["kind", "ok", "python", "objects", "findings"] {
            assert_eq!(document[part], first[part], "{part} of {target}");
        }
    }
    let document = first.unwrap();
    let floor = ("SF0907".to_owned(), site("floor/_C.so"));
    assert_eq!(findings(&document), [floor], "{:#}", document["findings"]);
    assert_eq!(document["kind"], "image");
    assert_eq!(document["python"], "3.12");

    let by = |path: &str, name: &str| provider(&document, &site(path), name).to_owned();
    let at = |path: &str| format!("{path} ");
    assert!(by("good/_C.so", "libc.so.6").starts_with(&at(&format!("{}/libc.so.6", lib()))));
    assert!(by("good/_C.so", "libc10.so").contains("torch's preload"));
    assert_eq!(by("good/_C.so", "libcuda.so.1"), "the host's driver");
    assert!(by("env/_C.so", "libenv.so.1").starts_with("opt/own/libenv.so.1 "));
    assert!(by("mended/_C.so", "libnew.so.1").contains(&format!("{}/libnew.so.1", lib())));
    assert!(by("linked/_C.so", "libsoft.so.1").starts_with("srv/real/libsoft.so.1.0 "));
    assert!(by("linked/_C.so", "libhard.so.1").contains(&format!("{}/libhard.so.1", lib())));
    let objects = document["objects"].as_array().unwrap();
    let hard = |o: &&Value| o["path"].as_str().unwrap().contains("libhard");
    assert_eq!(
        objects.iter().filter(hard).count(),
        1,
        "one file of two names"
    );
}

#[test]
fn a_library_path_is_the_images_own() {
    let mut made = image();
    let with = made.load("with");
    // A built image has what its Dockerfile says.
    let tag = format!("{}-built", with);
    let folder = made.sandbox.path("context");
    std::fs::create_dir(&folder).unwrap();
    let text = format!("FROM {with}\nENV LD_LIBRARY_PATH=/nowhere\n");
    std::fs::write(folder.join("Dockerfile"), text).unwrap();
    run(
        "docker",
        &["build", "-q", "-t", &tag, &folder.display().to_string()],
    );
    let (run, document) = audit(&made.sandbox, &format!("docker:{tag}"));
    support::remove(&tag);
    assert_eq!(run.code, 1);
    let lost = ("SF0902".to_owned(), site("env/_C.so"));
    assert!(
        findings(&document).contains(&lost),
        "{:#}",
        document["findings"]
    );
    let finding = document["findings"].as_array().unwrap();
    let finding = finding.iter().find(|f| f["code"] == "SF0902").unwrap();
    insta::assert_snapshot!("without_its_library_path", format!("{finding:#}"));
}

#[test]
fn what_is_removed_above_was_a_fault_below() {
    let mut made = Made::new();
    system(&made);
    made.object(&site("gone/_C.so"), &needing(&["libgone.so"]));
    made.layer();
    let (below, document) = audit(&made.sandbox, &made.source());
    assert_eq!(below.code, 1);
    assert_eq!(
        findings(&document),
        [("SF0902".to_owned(), site("gone/_C.so"))]
    );
    made.whiteout(&site("gone"));
    let (above, document) = audit(&made.sandbox, &made.source());
    assert_eq!(
        (above.code, findings(&document)),
        (0, vec![]),
        "{document:#}"
    );
    assert!(!above.stdout.contains("gone/_C.so"));
}

#[test]
fn a_file_of_several_names_is_the_one_that_python_imports() {
    let mut made = Made::new();
    system(&made);
    let own = Built {
        needs: &["libown.so.1"],
        search: &[&runpath("$ORIGIN")],
        ..Built::default()
    };
    made.object(&site("own/_C.so"), &own);
    made.object(&site("own/libown.so.1"), &named("libown.so.1"));
    // What installed it keeps it in a cache, of which it made links.
    let cache = made.folder().join("home/user/.cache/uv/archive-v0/x");
    std::fs::create_dir_all(&cache).unwrap();
    for (file, name) in [
        ("own/_C.so", "_C.so"),
        ("own/libown.so.1", "libown.so.1-cached"),
    ] {
        std::fs::hard_link(made.folder().join(site(file)), cache.join(name)).unwrap();
    }
    made.layer();
    let (run, document) = audit(&made.sandbox, &made.source());
    assert_eq!((run.code, findings(&document)), (0, vec![]), "{document:#}");
    let provider = provider(&document, &site("own/_C.so"), "libown.so.1");
    assert!(provider.starts_with(&site("own/libown.so.1")), "{provider}");
}

#[test]
fn torch_without_one_of_its_wheels_is_named() {
    let mut made = Made::new();
    system(&made);
    let torch = |path: &str, needs: &[&str]| {
        let built = Built {
            search: &[&runpath("$ORIGIN:$ORIGIN/../../nvidia/cusparselt/lib")],
            ..needing(needs)
        };
        made.object(&site(&format!("torch/lib/{path}")), &built);
    };
    torch("libtorch_cpu.so", &["libc10.so"]);
    torch(
        "libtorch_cuda.so",
        &["libtorch_cpu.so", "libcusparseLt.so.0"],
    );
    torch("libtorch.so", &["libtorch_cpu.so", "libtorch_cuda.so"]);
    let wheel = site("nvidia/cusparselt");
    let path = format!("{wheel}/lib/libcusparseLt.so.0");
    made.object(&path, &named("libcusparseLt.so.0"));
    made.layer();
    let (run, document) = audit(&made.sandbox, &made.source());
    assert_eq!((run.code, findings(&document)), (0, vec![]), "{document:#}");
    made.whiteout(&wheel);
    let (run, document) = audit(&made.sandbox, &made.source());
    assert_eq!(run.code, 1, "{document:#}");
    let lost = ("SF0902".to_owned(), site("torch/lib/libtorch_cuda.so"));
    assert_eq!(findings(&document), [lost]);
    let message = document["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("`libcusparseLt.so.0`"), "{message}");
}

/// One of an audit's objects, without what depends on where it lies.
fn bare(objects: &Value, ending: &str) -> Value {
    let objects = objects.as_array().unwrap().iter();
    let mut ends = objects.filter(|o| o["path"].as_str().unwrap().ends_with(ending));
    let mut object = ends.next().unwrap().clone();
    for key in ["path", "package", "providers"] {
        object.as_object_mut().unwrap().remove(key).unwrap();
    }
    object
}

#[test]
fn a_large_object_is_read_from_its_layer_as_from_its_file() {
    let mut made = Made::new();
    system(&made);
    let large = Built {
        needs: &["libc10.so", "libcudart.so.13"],
        asks: &[NEW_ABI],
        code: &[(&[80, 90], &[90]), (&[110], &[])],
        between: 60 << 20,
        ..named("liblarge.so.1")
    };
    made.object(&site("large/_C.so"), &large);
    // The usual layout: all that is read lies at its start and its end.
    let usual = Built {
        needs: &["libc10.so"],
        after: 60 << 20,
        ..named("libusual.so.1")
    };
    made.object(&site("large/_U.so"), &usual);
    let file = |name: &str| made.folder().join(site(name)).display().to_string();
    let files = ["large/_C.so", "large/_U.so"].map(|name| {
        assert!(std::fs::metadata(file(name)).unwrap().len() > 48 << 20);
        bare(&audit(&made.sandbox, &file(name)).1["objects"], "so")
    });
    made.layer();
    let name = made.load("large");
    for target in [made.source(), format!("docker:{name}")] {
        let (run, document) = audit(&made.sandbox, &target);
        assert_eq!((run.code, findings(&document)), (0, vec![]), "{document:#}");
        assert_eq!(
            bare(&document["objects"], "large/_C.so"),
            files[0],
            "{target}"
        );
        assert_eq!(
            bare(&document["objects"], "large/_U.so"),
            files[1],
            "{target}"
        );
    }
}

#[test]
fn a_wheel_that_lies_in_a_layer_is_opened_there() {
    let mut made = Made::new();
    system(&made);
    // What it needs is nowhere, and its code is for no GPU that is meant: nobody imports it.
    let large = Built {
        needs: &["libnowhere.so.1"],
        code: &[(&[110], &[])],
        between: 60 << 20,
        ..Built::default()
    };
    let folder = made.folder().join("opt/wheels");
    made.object("opt/wheels/x/_C.so", &large);
    let file = folder.join("x/_C.so").display().to_string();
    let alone = bare(&audit(&made.sandbox, &file).1["objects"], "so");
    let wheel = "x-1.0-cp312-cp312-manylinux_2_28_x86_64.whl";
    let script = "import shutil, sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED) as z:\n    z.write('x/_C.so')\nshutil.rmtree('x')\n";
    let made_it = std::process::Command::new("python3")
        .args(["-c", script, wheel])
        .current_dir(&folder)
        .status();
    assert!(made_it.unwrap().success());
    made.layer();
    let name = made.load("packed");
    for target in [made.source(), format!("docker:{name}")] {
        let (run, document) = audit(&made.sandbox, &target);
        assert_eq!((run.code, findings(&document)), (0, vec![]), "{document:#}");
        let packed = &document["packed"];
        assert_eq!(packed[0]["path"], format!("opt/wheels/{wheel}/x/_C.so"));
        assert_eq!(packed[0]["package"], "x");
        assert_eq!(bare(packed, "so"), alone, "{target}");
    }
    let shown = made
        .sandbox
        .run(&["audit", "--gpu", "h100", &made.source()]);
    let (_, shown) = shown.stdout.split_once("in wheels that").unwrap();
    assert!(shown.contains(&format!("{wheel}/x/_C.so  11.0")), "{shown}");
}

/// Numbers that depend on compilers and clocks.
fn without_numbers(text: &str) -> String {
    let varies = |word: &str| {
        let bare = word.trim_start_matches("0x");
        bare.len() > 1 && bare.chars().all(|c| c.is_ascii_hexdigit())
    };
    let mut out = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        if varies(word) && word.contains(|c: char| c.is_ascii_digit()) {
            out.push_str(&part.replace(word, "[N]"))
        } else {
            out.push_str(part)
        }
    }
    out
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = at.min(bytes.len() - 1);
    bytes[at] ^= 0xff;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn an_image_that_cannot_be_read_says_why() {
    let mut made = Made::new();
    made.object(&site("user/_C.so"), &needing(&["libgone.so"]));
    made.layer();
    let (targets, server) = made.everywhere();
    let engine = targets.iter().find_map(|t| t.strip_prefix("docker:stack"));
    let engine = format!("stack{}", engine.unwrap());
    let arch = match std::env::consts::ARCH {
        "aarch64" => ["arm64", "amd64"],
        _ => ["amd64", "arm64"],
    };
    let other = format!("linux/{}", arch[1]);
    let varies = [
        (engine.as_str(), "[IMAGE]"),
        (server.host.as_str(), "[HOST]"),
        (arch[0], "[ARCH]"),
        (arch[1], "[OTHER]"),
    ];
    let dir = made.text("");
    let refusal = |args: &[&str]| {
        let run = made.sandbox.run(&[&["audit", "--json"], args].concat());
        let document: Value = serde_json::from_str(&run.stdout).unwrap();
        let diagnostic = &document["diagnostics"][0];
        let text = |key: &str| diagnostic[key].as_str().unwrap_or_default().to_owned();
        let plain = |text: &str| {
            let named = varies.iter();
            named.fold(text.replace(&dir, "[DIR]/"), |t, (from, to)| {
                t.replace(from, to)
            })
        };
        let message = without_numbers(&plain(&text("message")));
        let (args, code, help) = (plain(&args.join(" ")), text("code"), text("help"));
        let help = if help.is_empty() {
            help
        } else {
            format!("  help: {help}\n")
        };
        format!("{args}\n  exit {}, {code}: {message}\n{help}", run.code)
    };

    let layout = made.text("layout");
    let mut refusals = String::new();
    refusals += &refusal(&[&format!("oci:{layout}:gone")]);
    refusals += &refusal(&[&format!("oci:{}", made.text("gone"))]);
    refusals += &refusal(&["docker:stackforge-audit-gone:latest"]);
    refusals += &refusal(&[&format!("registry:{}/team/app:gone", server.host)]);
    refusals += &refusal(&[&format!("registry:{}/team/App:v1", server.host)]);
    insta::assert_snapshot!("no_such_image", refusals);

    let mut refusals = String::new();
    for target in [
        format!("oci:{layout}:made"),
        format!("docker-archive:{}", made.text("saved.tar")),
        format!("docker:{engine}"),
        format!("registry:{}/team/app:v1", server.host),
    ] {
        refusals += &refusal(&[&target, "--platform", &other]);
    }
    insta::assert_snapshot!("no_such_platform", refusals);

    let mut refusals = String::new();
    let cut = PathBuf::from(made.text("cut.tar"));
    let whole = std::fs::read(made.sandbox.path("archive.tar")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    refusals += &refusal(&[&format!("oci-archive:{}", cut.display())]);
    run("gzip", &["-k", &made.text("saved.tar")]);
    refusals += &refusal(&[&format!("docker-archive:{}", made.text("saved.tar.gz"))]);
    // In the time that gzip's header holds: nothing but the digest can tell.
    flip(&made.blob(0), 4);
    refusals += &refusal(&[&made.source()]);
    flip(&made.blob(0), 4);
    let json = made.sandbox.run(&["audit", "--json", &made.source()]);
    assert!(
        json.stdout.contains("SF0902"),
        "it is whole again: {}",
        json.stdout
    );
    let blob = made.blob(0);
    let bytes = std::fs::read(&blob).unwrap();
    std::fs::write(&blob, &bytes[..bytes.len() - 20]).unwrap();
    refusals += &refusal(&[&made.source()]);
    std::fs::remove_file(&blob).unwrap();
    refusals += &refusal(&[&made.source()]);
    insta::assert_snapshot!("damaged", refusals);
}
