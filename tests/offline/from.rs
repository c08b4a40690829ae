//! `init --from`: a first stack of what people have, and what it says of files that it cannot take.

use std::path::{Path, PathBuf};
use support::Sandbox;
use support::http::{Reply, Server};

const PROJECTS: [(&str, &[&str]); 10] = [
    ("webui/requirements.txt", &["--gpu", "rtx4090"]),
    ("fastapi/Dockerfile", &["--gpu", "l4"]),
    ("hf-space/Dockerfile", &["--gpu", "a10"]),
    ("vision-lab/environment.yml", &["--gpu", "a100"]),
    ("poetry-ocr/pyproject.toml", &["--gpu", "h100"]),
    ("uv-diffusion/pyproject.toml", &["--gpu", "h100"]),
    ("l4t-robot/Dockerfile", &[]),
    ("vllm-server/Dockerfile", &[]),
    ("finetune/requirements.txt", &["--gpu", "h100"]),
    ("notebook/environment.yaml", &["--gpu", "t4"]),
];

fn of_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn copied(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copied(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// The stack of a file of the sandbox, which `check` reads and finds no error in.
fn stack(sandbox: &Sandbox, args: &[&str]) -> String {
    let all = [&["init", "--offline", "-o", "s.yaml", "--force"], args].concat();
    let run = sandbox.run(&all);
    assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
    let check = sandbox.run(&["check", "s.yaml"]);
    let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    assert_eq!(check.code, 0, "{text}{}", check.stderr);
    text
}

#[test]
fn each_project_becomes_a_stack() {
    for (file, gpu) in PROJECTS {
        let folder = file.split('/').next().unwrap();
        let sandbox = Sandbox::new();
        copied(
            &of_tree(&format!("tests/fixtures/from/{folder}")),
            &sandbox.path(folder),
        );
        let text = stack(&sandbox, &[&["--from", file], gpu].concat());
        insta::assert_snapshot!(folder, text);
    }
}

/// Requirements of 120 public projects: a stack each, and none that cannot be read.
#[test]
fn requirements_of_all_fields_become_stacks() {
    let sandbox = Sandbox::new();
    let mut refused = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(of_tree("tests/ordinary/requirements"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    for file in &files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let from = file.to_str().unwrap();
        let args = [
            "init",
            "--offline",
            "--from",
            from,
            "--gpu",
            "a100",
            "-o",
            "s.yaml",
            "--force",
        ];
        let run = sandbox.run(&args);
        assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        let check = sandbox.run(&["check", "s.yaml"]);
        assert_ne!(check.code, 2, "{name}: {}", check.stderr);
        if check.code != 0 {
            // The stack says so itself, and so does the command.
            let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
            assert!(text.starts_with("# `stackforge check` refuses"), "{text}");
            assert!(
                run.stdout.contains("next: stackforge check"),
                "{}",
                run.stdout
            );
            refused.push(name);
        }
    }
    assert_eq!(files.len(), 120);
    insta::assert_snapshot!(refused.join("\n"));
}

#[test]
fn bad_input_is_told_and_leaves_everything_as_it_was() {
    let sandbox = Sandbox::new();
    let files: [(&str, &[u8]); 20] = [
        ("not-utf8.txt", b"six\n\xff"),
        ("binary.txt", b"six\0\n"),
        ("circle.txt", b"six\n-r other.txt\n"),
        ("other.txt", b"\n-c circle.txt\n"),
        ("includes-requirements.txt", b"six\n-r gone.txt\n"),
        (
            "deep/Dockerfile",
            b"FROM python:3.11\nRUN pip install six\nFROG x\n",
        ),
        (
            "quote/Dockerfile",
            b"FROM python:3.11\nRUN <<EOF\npip install six\n",
        ),
        ("pyproject.toml", b"[project\n"),
        ("environment.yml", b"dependencies: [\n"),
        ("list/environment.yml", b"- python\n"),
        ("setup.py", b"from setuptools import setup\n"),
        ("setup.cfg", b"[options]\n"),
        ("Pipfile", b"[packages]\n"),
        ("uv.lock", b"version = 1\n"),
        ("compose.yaml", b"services:\n  web: {}\n"),
        ("stack.yaml", b"stack: s\nbase: b\nlibraries: {}\n"),
        ("prose.md", b"# A project\n\nIt does this and that.\n"),
        (
            "windows-requirements.txt",
            b"pywin32 ; sys_platform == 'win32'\n",
        ),
        ("train.py", b"import torch\nprint(torch)\n"),
        ("explicit.txt", b"@EXPLICIT\nhttps://h.test/x.conda\n"),
    ];
    let mut told = String::new();
    let many: String = (0..80).map(|n| format!("-r many/{n}.txt\n")).collect();
    sandbox.write("many-requirements.txt", &many);
    for n in 0..80 {
        sandbox.write(&format!("many/{n}.txt"), "six\n");
    }
    sandbox.write("large-requirements.txt", &"six\n".repeat(300_000));
    // A stack of it would be larger than a stack can be.
    let lines: String = (0..20_000).map(|n| format!("package-{n}\n")).collect();
    sandbox.write("long-requirements.txt", &lines);
    for (name, content) in files {
        let path = sandbox.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    let others = [
        "many-requirements.txt",
        "large-requirements.txt",
        "long-requirements.txt",
        "many",
        "deep",
        ".",
        "gone.txt",
    ];
    for name in files
        .iter()
        .map(|f| f.0)
        .filter(|n| *n != "other.txt")
        .chain(others)
    {
        let run = sandbox.run(&[
            "init",
            "--offline",
            "--from",
            name,
            "--gpu",
            "h100",
            "-o",
            "new.yaml",
        ]);
        assert_eq!(run.code, 2, "{name}: {}{}", run.stdout, run.stderr);
        assert!(!sandbox.path("new.yaml").exists(), "{name}");
        told += &format!("{name}\n{}\n", run.stderr);
    }
    insta::assert_snapshot!(told);
}

#[test]
fn a_file_is_replaced_only_by_force() {
    let sandbox = Sandbox::new();
    sandbox.write("requirements.txt", "six\n");
    sandbox.write("s.yaml", "mine\n");
    let args = [
        "init",
        "--offline",
        "--from",
        "requirements.txt",
        "--gpu",
        "h100",
        "-o",
        "s.yaml",
    ];
    let run = sandbox.run(&args);
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("overwritten with `--force` only"),
        "{}",
        run.stderr
    );
    let kept = || std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
    assert_eq!(kept(), "mine\n");
    let run = sandbox.run(&[&args[..], &["--force"]].concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "s.yaml: written; next: stackforge build s.yaml\n")
    );
    assert!(kept().contains("six: auto"));
    // A source is not the stack's own file.
    let run = sandbox.run(&[
        "init",
        "--offline",
        "--from",
        "requirements.txt",
        "--gpu",
        "h100",
        "-o",
        "requirements.txt",
    ]);
    assert_eq!(run.code, 2);
}

#[test]
fn markers_are_judged_for_the_chosen_python_and_platform() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "m/requirements.txt",
        "a ; platform_machine == 'aarch64'\nb ; platform_machine == 'x86_64'\n\
         c==1 ; python_version < '3.12'\nc==2 ; python_version >= '3.12'\n\
         d>=1\nd<2\nd[x]\ne ; extra == 'e'\n",
    );
    let text = stack(&sandbox, &["--from", "m/requirements.txt", "--gpu", "thor"]);
    insta::assert_snapshot!(text);
}

#[test]
fn what_windows_and_pipes_write_is_read() {
    let sandbox = Sandbox::new();
    let utf16: Vec<u8> = "\u{feff}six==1.17.0\r\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    std::fs::write(sandbox.path("frozen.txt"), utf16).unwrap();
    let text = stack(&sandbox, &["--from", "frozen.txt", "--gpu", "h100"]);
    assert!(text.contains("  six: \"1.17.0\"\n"), "{text}");
    sandbox.write("list", "six==1.17.0\n");
    let mut command = sandbox.command();
    command.args([
        "init",
        "--offline",
        "--from",
        "-",
        "--gpu",
        "h100",
        "-o",
        "-",
    ]);
    let out = command
        .stdin(std::fs::File::open(sandbox.path("list")).unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.contains("  six: \"1.17.0\"\n") && text.contains("from stdin"),
        "{text}"
    );
}

#[test]
fn a_stack_elsewhere_names_files_from_its_own_folder() {
    let sandbox = Sandbox::new();
    let wheels =
        "./wheels/mine-1.0-py3-none-any.whl\n./wheels/old-1.0-cp36-cp36m-linux_x86_64.whl\n";
    sandbox.write("requirements.txt", wheels);
    std::fs::create_dir(sandbox.path("stacks")).unwrap();
    let run = sandbox.run(&[
        "init",
        "--offline",
        "--from",
        "requirements.txt",
        "--gpu",
        "h100",
        "-o",
        "stacks/s.yaml",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let text = std::fs::read_to_string(sandbox.path("stacks/s.yaml")).unwrap();
    assert!(
        text.contains("  mine: \"../wheels/mine-1.0-py3-none-any.whl\"\n"),
        "{text}"
    );
    let words: Vec<&str> = text.split_whitespace().filter(|w| *w != "#").collect();
    let words = words.join(" ");
    assert!(
        !text.contains("\n  old:") && words.contains("a wheel that does not fit Python"),
        "{text}"
    );
}

#[test]
fn a_dockerfiles_instructions_of_every_form_are_read() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "p/docker/Dockerfile",
        "# escape=`\nARG TAG=12.8.1-devel\nFROM --platform=linux/amd64 nvidia/cuda:${TAG}-ubuntu24.04 as Base\n\
         ENV A=\"x y\" B=z\nENV OLD some text\nRUN apt-get install -y `\n  # a comment\n  vim `\n\n  tini=0.19*\n\
         RUN [\"pip\", \"install\", \"transformers==4.57.1\"]\nRUN [\"/bin/sh\", \"-c\", \"pip install peft && true\"]\n\
         FROM base AS made\nRUN <<END\nset -e\npip install \\\n  trl\nEND\nRUN python3 <<END\nimport x\nEND\n\
         FROM made\nCOPY --from=0 /x /y\nCOPY <<END /etc/motd\nhello\nEND\n\
         RUN pip install $(cat list) \"a${UNSET}\" b${B} && if true; then pip install c; fi\n\
         RUN pip install d && (cd /src && pip install .) && uv sync --extra server\n\
         ADD https://h.test/m.bin /m/\nONBUILD RUN true\nMAINTAINER me\nEXPOSE 80-82 $PORT 53/UDP\nVOLUME /a /b\n\
         USER app:users\nSTOPSIGNAL 9\nHEALTHCHECK NONE\nENTRYPOINT python3 -m \"my app\"\nCMD run $A\n",
    );
    sandbox.write(
        "p/pyproject.toml",
        "[project]\nname = \"p\"\nrequires-python = \">=3.9\"\ndependencies = [\"httpx\"]\n\
         [project.optional-dependencies]\nserver = [\"fastapi\"]\nother = [\"flask\"]\n",
    );
    let text = stack(
        &sandbox,
        &["--from", "p/docker/Dockerfile", "--gpu", "h100"],
    );
    insta::assert_snapshot!(text);
}

#[test]
fn logins_of_where_a_library_comes_from_are_written_nowhere() {
    let uv = r#"
[project]
name = "x"
version = "1"
requires-python = ">=3.10"
dependencies = ["kept", "cloned", "fetched"]
[[tool.uv.index]]
name = "own"
url = "https://user:hidden@wheels.example/simple"
explicit = true
[tool.uv.sources]
kept = { index = "own" }
cloned = { git = "https://hidden@code.example/cloned", rev = "v1" }
fetched = { url = "https://user:hidden@wheels.example/fetched-1-py3-none-any.whl" }
"#;
    let poetry = r#"
[tool.poetry]
name = "x"
version = "1"
[[tool.poetry.source]]
name = "own"
url = "https://user:hidden@wheels.example/simple"
priority = "explicit"
[tool.poetry.dependencies]
python = ">=3.10"
kept = { version = "^1.0", source = "own" }
cloned = { git = "https://hidden@code.example/cloned", rev = "v1" }
fetched = { url = "https://user:hidden@wheels.example/fetched-1-py3-none-any.whl" }
"#;
    for text in [uv, poetry] {
        let sandbox = Sandbox::new();
        sandbox.write("pyproject.toml", text);
        let args = [
            "init",
            "--offline",
            "--from",
            "pyproject.toml",
            "--gpu",
            "a100",
            "-o",
        ];
        let run = sandbox.run(&[&args[..], &["s.yaml"]].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
        let stack = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
        assert!(
            !format!("{stack}{}", run.stderr).contains("hidden"),
            "{stack}"
        );
        let index = "index: \"https://wheels.example/simple\"";
        assert!(stack.contains(index), "{stack}");
        assert!(
            stack.contains("login") && stack.contains("code.example"),
            "{stack}"
        );
    }
}

#[test]
fn without_an_index_every_pin_stays_as_it_is() {
    let sandbox = Sandbox::new();
    sandbox.write("requirements.txt", "six==1.16.0\n");
    let all = [
        "init",
        "--from",
        "requirements.txt",
        "--gpu",
        "h100",
        "-o",
        "s.yaml",
        "--force",
    ];
    let init = |arguments: &[&str]| {
        let mut command = sandbox.command();
        command.args([&all[..], arguments].concat());
        // Nobody listens there.
        let out = command
            .env("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
            .output()
            .unwrap();
        assert!(out.status.success());
        let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
        assert!(text.contains("  six: \"1.16.0\"\n"), "{text}");
        let [stdout, stderr] = [out.stdout, out.stderr].map(|b| String::from_utf8(b).unwrap());
        (stdout, stderr)
    };
    let (stdout, stderr) = init(&[]);
    assert_eq!(stdout, "s.yaml: written; next: stackforge build s.yaml\n");
    let said = "the index does not say which releases have wheels (";
    assert!(stderr.starts_with(said), "{stderr}");
    assert!(
        stderr.contains("`stackforge lock` will ask again"),
        "{stderr}"
    );
    for quiet in ["--offline", "--quiet"] {
        assert_eq!(init(&[quiet]).1, "", "{quiet}");
    }
}

#[test]
fn of_two_with_the_same_modules_the_better_one_stays() {
    let sandbox = Sandbox::new();
    let text = "opencv-python>=4.8\nsix\nopencv-contrib-python\n\
        onnxruntime\nonnxruntime-gpu; platform_machine == 'aarch64'\n";
    sandbox.write("requirements.txt", text);
    let text = stack(&sandbox, &["--from", "requirements.txt", "--gpu", "h100"]);
    let left_out = "  # `opencv-python>=4.8` (requirements.txt:1): `opencv-contrib-python` has the same modules";
    assert!(text.contains(left_out), "{text}");
    for kept in ["six", "opencv-contrib-python", "onnxruntime"] {
        assert!(text.contains(&format!("\n  {kept}: auto\n")), "{text}");
    }
    assert!(!text.contains("\n  opencv-python:"), "{text}");
}

#[test]
fn a_page_that_cannot_be_read_leaves_only_its_own_pins_as_they_are() {
    let index = Server::start(|request, _| {
        let page = |body: &str| Reply {
            length: Some(body.len()),
            body: body.as_bytes().to_vec(),
            ..Reply::status(200).header("Content-Type", "text/html")
        };
        match request.path.as_str() {
            "/simple/thing/" => page(
                "<a href='a'>thing-1.0-cp39-cp39-manylinux_2_17_x86_64.whl</a> \
                 <a href='b'>thing-1.1-py3-none-any.whl</a>",
            ),
            "/simple/broken/" => Reply::status(403),
            _ => Reply::status(404),
        }
    });
    let sandbox = Sandbox::new();
    sandbox.write("requirements.txt", "thing==1.0\nbroken==1.0\n");
    let init = |arguments: &[&str]| {
        let all = ["init", "--from", "requirements.txt", "--gpu", "h100"];
        let rest = ["-o", "s.yaml", "--force"];
        let out = sandbox
            .command()
            .args([&all[..], &rest, arguments].concat())
            .env("UV_DEFAULT_INDEX", format!("{}/simple", index.url))
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        let text = std::fs::read_to_string(sandbox.path("s.yaml")).unwrap();
        assert!(
            text.contains("  thing: \"1.1\"") && text.contains("  broken: \"1.0\"\n"),
            "{text}"
        );
        [out.stdout, out.stderr].map(|b| String::from_utf8(b).unwrap())
    };
    let [_, stderr] = init(&[]);
    let said = "the index does not say which releases of broken have wheels (";
    assert!(stderr.contains(said), "{stderr}");
    let [stdout, _] = init(&["--json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["unread"], serde_json::json!(["broken"]));
}

#[test]
fn a_base_is_chosen_by_its_name() {
    let sandbox = Sandbox::new();
    sandbox.write("requirements.txt", "six==1.16.0\n");
    let text = stack(
        &sandbox,
        &[
            "--from",
            "requirements.txt",
            "--gpu",
            "h100",
            "--base",
            "debian-trixie",
        ],
    );
    assert!(
        text.contains("base: debian-trixie\n") && text.contains("python: \"3.13\"\n"),
        "{text}"
    );
    let refused = |base: &str, gpu: &str| {
        let run = sandbox.run(&[
            "init",
            "--from",
            "requirements.txt",
            "--gpu",
            gpu,
            "--base",
            base,
            "-o",
            "new.yaml",
        ]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""));
        assert!(!sandbox.path("new.yaml").exists());
        run.stderr
    };
    insta::assert_snapshot!(refused("debain-trixie", "h100"));
    // A base of arm64 alone.
    insta::assert_snapshot!(refused("l4t-r36", "h100"));
}
