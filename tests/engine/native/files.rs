//! Libraries that a stack takes from files: wheels and a source distribution of its own folder and of addresses
//! that no index has, and constraints out of pip's files.

use super::{ok, out};
use std::process::Command;
use support::exported::{exported, unexplained};
use support::http::{Reply, Server};
use support::{CleanUp, Sandbox};

const NAME: &str = "stackforge-test-files";

/// Writes `acme_core` (wheel, requires six, extra `net`), `acme_net` (wheel), `acme_tools` (sdist, requires
/// acme-core) into the folder.
const MAKE: &str = r#"
import base64, gzip, hashlib, io, sys, tarfile, zipfile
folder, text = sys.argv[1], sys.argv[2]
def wheel(name, version, requires, code):
    info = f"{name}-{version}.dist-info"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(l + "\n" for l in requires)
    files = {f"{name}/__init__.py": code, f"{info}/METADATA": meta,
             f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(f"{folder}/{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path), content)
wheel("acme_core", "1.0+corp.1", ["Requires-Dist: six", "Requires-Dist: acme-net ; extra == 'net'",
      "Provides-Extra: net"], f"import six\nTEXT = {text!r}\n")
wheel("acme_net", "2.0", ["Requires-Dist: idna"], "import idna\n")
gz = gzip.GzipFile(f"{folder}/acme_tools-0.3.tar.gz", "w", mtime=0)
with gz, tarfile.open(fileobj=gz, mode="w") as archive:
    for path, content in {
        "PKG-INFO": "Metadata-Version: 2.1\nName: acme-tools\nVersion: 0.3\nRequires-Dist: acme-core\n",
        "pyproject.toml": "[build-system]\nrequires = ['setuptools==80.9.0']\nbuild-backend = 'setuptools.build_meta'\n"
            "[project]\nname = 'acme-tools'\nversion = '0.3'\ndependencies = ['acme-core']\n",
        "acme_tools.py": "import acme_core\n",
    }.items():
        entry = tarfile.TarInfo("acme_tools-0.3/" + path)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content.encode()))
"#;

fn make(sandbox: &Sandbox, text: &str) {
    let folder = sandbox.path("wheels");
    std::fs::create_dir_all(&folder).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", MAKE]).arg(&folder).arg(text);
    assert!(python.status().unwrap().success());
}

fn stack(url: &str, more: &str) -> String {
    format!(
        "stack: {NAME}\nbase: debian-bookworm\ntarget: {{ platform: linux/amd64, gpu: [h100] }}\n\
         python: \"3.11\"\nlibraries:\n  \"acme-core[net]\": ./wheels/acme_core-1.0+corp.1-py3-none-any.whl\n  \
         acme-net: {url}\n  acme-tools: {{ file: wheels/acme_tools-0.3.tar.gz }}\n\
         constraints: [constraints.txt, \"pip<1\"]\njit: false\n{more}"
    )
}

#[test]
fn files_that_a_stack_names_are_locked_by_digest_and_installed_by_both_engines() {
    let _clean = CleanUp::of(&[NAME]);
    let sandbox = Sandbox::new();
    make(&sandbox, "first");
    let name = "acme_net-2.0-py3-none-any.whl";
    let wheel = std::fs::read(sandbox.path("wheels").join(name)).unwrap();
    std::fs::remove_file(sandbox.path("wheels").join(name)).unwrap();
    let server = Server::start(move |request, _| Reply::honest(&wheel, "\"1\"", request));
    let url = format!("{}/d/{name}", server.url);
    sandbox.write(
        "constraints.txt",
        "# of the team\nidna==3.10  # as tested\n",
    );
    sandbox.write("s.yaml", &stack(&url, ""));

    ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    let text = std::fs::read_to_string(sandbox.path("s.lock")).unwrap();
    assert!(!text.contains("127.0.0.1"), "{text}");
    let lock = stackforge_stack::lock::Lock::from_toml(&text).unwrap();
    let section = &lock.platforms[0];
    let wheels: Vec<String> = (section.wheels.iter())
        .filter(|w| w.name != "six")
        .map(|w| format!("{} {} via {}", w.name, w.version, w.via.join(" ")))
        .collect();
    let expected = [
        "acme-core 1.0+corp.1 via ",
        "acme-net 2.0 via ",
        "idna 3.10 via acme-net",
    ];
    assert_eq!(wheels, expected);
    assert!(section.wheel("six").is_some());
    assert_eq!(section.builds[0].name, "acme-tools");
    let asked = server.log().len();
    let again = ok(&sandbox.run(&["lock", "s.yaml", "--json"]));
    assert_eq!(again["changed"], false);
    assert_eq!(server.log().len(), asked, "a locked file is not asked for");

    let docker = format!("{NAME}:docker");
    ok(&sandbox.run(&[
        "build", "s.yaml", "--json", "--engine", "docker", "-t", &docker,
    ]));
    // Another store, which has none of the files.
    let native = format!("{NAME}:native");
    sandbox.warm("other");
    let store = sandbox.path("other");
    let mut build = vec!["build", "s.yaml", "--json", "--engine", "native"];
    build.extend([
        "-t",
        &native,
        "-o",
        "docker",
        "--store",
        store.to_str().unwrap(),
    ]);
    let built = ok(&sandbox.run(&build));
    assert_eq!(built["validation"]["ok"], true);
    assert!(server.log().len() > asked);
    let differ = unexplained(&exported(&docker), &exported(&native));
    assert!(differ.is_empty(), "{differ:#?}");
    let script = "import acme_tools, acme_net, acme_core; print(acme_core.TEXT)";
    let ran = out("docker", &["run", "--rm", &native, "python", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&ran).trim(), "first");

    // The file has other content now: nothing takes it for what is locked.
    make(&sandbox, "second");
    let third = sandbox.path("third");
    let mut build = vec!["build", "s.yaml", "--engine", "native", "-o"];
    build.extend(["oci:out", "--store", third.to_str().unwrap()]);
    let refused = sandbox.run(&build);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("SF0215"), "{}", refused.stderr);
    let refused = sandbox.run(&["lock", "s.yaml"]);
    assert!(
        refused.stderr.contains("--upgrade acme-core"),
        "{}",
        refused.stderr
    );
    ok(&sandbox.run(&["lock", "s.yaml", "--json", "--upgrade", "acme-core"]));
    assert_ne!(
        std::fs::read_to_string(sandbox.path("s.lock")).unwrap(),
        text
    );

    // Another constraint makes the lock stale.
    sandbox.write("constraints.txt", "idna==3.9\n");
    let stale = sandbox.run(&["plan", "s.yaml"]);
    assert!(stale.stderr.contains("constraints"), "{}", stale.stderr);
}
