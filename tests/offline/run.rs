//! `run --print`: the command that starts a container on each device, and why; and what is refused before anything
//! starts.

use support::{Run, Sandbox, document, machines, tiny};

/// Variables of the user who runs the tests.
const MODELS: [&str; 5] = [
    "HF_HOME",
    "HF_HUB_CACHE",
    "TRANSFORMERS_CACHE",
    "TORCH_HOME",
    "XDG_CACHE_HOME",
];

fn device(machine: fn(&Sandbox)) -> Sandbox {
    let sandbox = Sandbox::new();
    machine(&sandbox);
    sandbox
}

fn run(sandbox: &Sandbox, args: &[&str], env: &[(&str, &str)]) -> Run {
    let mut command = sandbox.command();
    for name in MODELS {
        command.env_remove(name);
    }
    let out = command
        .arg("run")
        .args(args)
        .env("HOME", sandbox.path("home"))
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let dir = sandbox.path("").display().to_string();
    let text =
        |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(dir.trim_end_matches('/'), "[DIR]");
    Run {
        code: out.status.code().unwrap_or(-1),
        stdout: text(&out.stdout),
        stderr: text(&out.stderr),
    }
}

fn print(sandbox: &Sandbox, args: &[&str]) -> String {
    let run = run(
        sandbox,
        &[&["--print", "--root", "machine"], args].concat(),
        &[],
    );
    format!("exit {}\n{}{}", run.code, run.stderr, run.stdout)
}

macro_rules! shows {
    ($($name:ident: $machine:path, $args:expr;)*) => {
        $(#[test]
        fn $name() {
            insta::assert_snapshot!(stringify!($name), print(&device($machine), &$args));
        })*
    };
}

shows! {
    on_thor: machines::thor_r38, ["app:1"];
    on_orin: machines::orin_with_runtime, ["app:1"];
    on_orin_without_the_runtime: machines::orin_r36, ["app:1"];
    on_a_server_with_cdi: machines::h100, ["app:1"];
    on_a_server_with_the_toolkit: machines::h100_with_toolkit, ["app:1"];
    on_a_server_without_either: machines::a100_old_driver, ["app:1"];
    on_a_laptop: machines::laptop, ["app:1"];
    on_a_gpu_without_its_driver: machines::no_driver, ["app:1"];
    one_gpu_by_cdi: machines::h100, ["app:1", "--gpus", "0"];
    a_gpu_that_is_not_there: machines::h100, ["app:1", "--gpus", "7"];
    two_gpus_by_the_toolkit: machines::h100_with_toolkit, ["app:1", "--gpus", "0,1"];
    one_gpu_by_the_runtime: machines::thor_r38, ["app:1", "--gpus", "0"];
    no_gpu: machines::h100, ["app:1", "--gpus", "none"];
    all_gpus_of_a_laptop: machines::laptop, ["app:1", "--gpus", "all"];
    everything_that_can_be_asked_for: machines::h100, [
        "host:5000/team/app:1", "-d", "--name", "vllm", "-p", "8000", "-p", "127.0.0.1:80:8080",
        "-e", "GREETING=it's a test", "-e", "HF_TOKEN", "--volume", "/data:/data:ro",
        "--volume", "named:/var/lib/x", "--shm-size", "8GiB", "--entrypoint", "python3",
        "--model-cache", "/srv/models", "--", "-c", "print(\"a b\")\n",
    ];
}

#[test]
fn a_stack_goes_by_the_name_of_its_image() {
    let sandbox = tiny();
    machines::laptop(&sandbox);
    let shown = print(&sandbox, &["tiny.yaml", "-q"]);
    assert!(shown.ends_with(" tiny:latest\n"), "{shown}");
}

#[test]
fn the_users_models_are_shared_and_the_cache_around_them_is_not() {
    let sandbox = device(machines::laptop);
    std::fs::create_dir_all(sandbox.path("home/.cache/huggingface")).unwrap();
    let args = ["--print", "--root", "machine", "app:1"];
    let usual = run(&sandbox, &args, &[]);
    insta::assert_snapshot!("models_in_the_usual_place", usual.stderr + &usual.stdout);
    let own = run(
        &sandbox,
        &args,
        &[("HF_HUB_CACHE", "/hub"), ("TORCH_HOME", "torch")],
    );
    insta::assert_snapshot!("models_where_variables_say", own.stderr + &own.stdout);
    let none = run(&sandbox, &[&args[..], &["--no-model-cache"]].concat(), &[]);
    assert!(!none.stdout.contains("huggingface"), "{}", none.stdout);
}

#[test]
fn json_has_the_arguments_and_the_reasons() {
    let sandbox = device(machines::thor_r38);
    let args = [
        "--print", "--root", "machine", "--json", "app:1", "--", "a b",
    ];
    insta::assert_json_snapshot!(document(&run(&sandbox, &args, &[])));
}

fn refused(sandbox: &Sandbox, args: &[&str]) -> String {
    let run = run(sandbox, args, &[]);
    assert_eq!(run.stdout, "");
    format!("exit {}\n{}", run.code, run.stderr)
}

macro_rules! refuses {
    ($($name:ident: $args:expr;)*) => {
        $(#[test]
        fn $name() {
            let sandbox = tiny();
            sandbox.write("plain/etc/passwd", "");
            insta::assert_snapshot!(stringify!($name), refused(&sandbox, &$args));
        })*
    };
}

// No engine answers, so these are the native engine's.
refuses! {
    a_stack_that_is_not_built: ["tiny.yaml", "--engine", "native"];
    an_image_that_is_nowhere: ["nothing:1", "--engine", "native"];
    a_reference_offline: ["127.0.0.1:9/x:1", "--offline", "--engine", "native"];
    a_directory_that_is_no_image: ["./plain"];
    a_path_that_is_not_there: ["./gone"];
    a_root_that_is_not_there: ["rootfs:gone"];
    a_root_without_a_program: ["rootfs:plain"];
    a_root_in_an_engine: ["rootfs:plain", "--engine", "docker"];
    a_root_as_a_container_s_command: ["rootfs:plain", "--print"];
    a_detached_sandbox: ["rootfs:plain", "-d", "--", "x"];
    a_named_sandbox: ["rootfs:plain", "--name", "x", "--", "x"];
    a_mapped_port: ["rootfs:plain", "-p", "80:8000", "--", "x"];
    a_named_volume: ["rootfs:plain", "--volume", "data:/data", "--", "x"];
    an_option_of_a_volume: ["rootfs:plain", "--volume", "/:/data:z", "--", "x"];
    a_volume_of_nothing: ["rootfs:plain", "--volume", "./gone:/data", "--", "x"];
    a_line_of_no_engine: ["tiny.yaml", "--print", "--engine", "native"];
}
