//! The example service, whole: built by both engines, started, called over HTTP, and built again after a line of
//! its code changed.

use serde_json::Value;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{CleanUp, Sandbox, has_turn, project};

const TAG: &str = "stackforge-test-detector:latest";
const CLASSES: [&str; 4] = ["bolt", "nut", "screw", "washer"];

/// A started service; it ends with the value.
struct Service {
    run: Child,
    port: u16,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.run.id().to_string()).status();
        let _ = self.run.wait();
    }
}

impl Service {
    /// Starts an image by `stackforge run` and waits until it is healthy.
    fn start(sandbox: &Sandbox, image: &[&str]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let (published, listens) = (format!("{port}:{port}"), port.to_string());
        let run = sandbox
            .command()
            .args([
                "run",
                "--gpus",
                "none",
                "--no-model-cache",
                "-p",
                &published,
            ])
            .args(image)
            .args(["--", "--port", &listens])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(sandbox.path("run.log")).unwrap())
            .spawn()
            .unwrap();
        let mut service = Self { run, port };
        let start = Instant::now();
        while service.get("/health").is_none() {
            let ended = service.run.try_wait().unwrap();
            assert!(
                ended.is_none() && start.elapsed() < Duration::from_secs(240),
                "{image:?}: {ended:?}: {}",
                std::fs::read_to_string(sandbox.path("run.log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(300));
        }
        service
    }

    fn curl(&self, path: &str, args: &[&str]) -> Option<Value> {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let curl = ["-sS", "--noproxy", "*", "-m", "30", url.as_str()];
        let out = Command::new("curl").args(curl).args(args).output().unwrap();
        serde_json::from_slice(&out.stdout).ok()
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.curl(path, &[])
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let header = "content-type: application/json";
        let body = body.to_string();
        self.curl(path, &["-H", header, "-d", &body]).unwrap()
    }
}

/// Asks for the class of a grey picture, and with a picture of the wrong size.
fn detected(service: &Service) -> Value {
    assert_eq!(service.get("/health").unwrap()["device"], "cpu");
    let wrong = service.post("/detect", &serde_json::json!({ "rows": [[0.5]] }));
    assert_eq!(wrong["detail"], "a picture has 16 rows of 16 values");
    let grey = vec![vec![0.5; 16]; 16];
    let answer = service.post("/detect", &serde_json::json!({ "rows": grey }));
    assert!(CLASSES.contains(&answer["class"].as_str().unwrap()));
    let scores = answer["scores"].as_object().unwrap().values();
    let sum: f64 = scores.map(|score| score.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-4, "{answer}");
    answer
}

/// Builds the service; where the mirror has dropped an OS package since the lock was made, with new ones.
fn built(sandbox: &Sandbox, args: &[&str]) -> Value {
    let args = [&["build", "service/stack.yaml", "--json"][..], args].concat();
    let mut run = sandbox.run(&args);
    if run.stdout.contains("SF0210") {
        let locked = sandbox.run(&["lock", "service/stack.yaml", "--upgrade-os"]);
        assert_eq!(locked.code, 0, "{}", locked.stderr);
        run = sandbox.run(&args);
    }
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    serde_json::from_str(&run.stdout).unwrap()
}

fn done(document: &Value) -> Vec<&str> {
    let steps = document["steps"].as_array().unwrap().iter();
    let done = steps.filter(|step| step["cached"] == false);
    done.map(|step| step["id"].as_str().unwrap()).collect()
}

/// In the demo's sandbox, whose store has torch and CUDA's libraries already.
pub fn the_example_service_answers_from_both_engines(sandbox: &Sandbox) {
    let _clean = CleanUp::of(&["stackforge-test-detector"]);
    let copied = Command::new("cp")
        .arg("-r")
        .arg(project("examples/service"))
        .arg(sandbox.path("service"))
        .status();
    assert!(copied.unwrap().success());

    let native = ["--engine", "native", "-o", "oci:image"];
    built(sandbox, &native);
    let at_rest = ["--engine", "native", "oci:image"];
    let first = detected(&Service::start(sandbox, &at_rest));

    // A changed line: nothing but the project and the image is made again, and the new code answers.
    let code = sandbox.path("service/detector/model.py");
    let text = std::fs::read_to_string(&code).unwrap();
    let changed = text.replace("manual_seed(7)", "manual_seed(8)");
    assert_ne!(text, changed);
    std::fs::write(&code, changed).unwrap();
    let again = built(sandbox, &native);
    assert_eq!(done(&again), ["project", "app", "service"], "{again:#}");
    let second = detected(&Service::start(sandbox, &at_rest));
    assert_ne!(first["scores"], second["scores"]);

    // The Docker engine installs torch anew for it, which takes minutes.
    if !has_turn("the example service by the Docker engine", 1, 4) {
        return;
    }
    std::fs::write(&code, text).unwrap();
    built(sandbox, &["--engine", "docker", "-t", TAG]);
    let by_docker = detected(&Service::start(sandbox, &["--engine", "docker", TAG]));
    assert_eq!(first, by_docker);
}
