//! An image that is made file by file with umoci, and its copies in every place where images are.

use super::server::{Kind, Server, skopeo};
use stackforge_binary::samples::compiled::Built;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::Sandbox;

pub const SITE: &str = "opt/venv/lib/python3.12/site-packages";

pub fn run(program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    let out = command.args(args).output();
    let out = out.unwrap_or_else(|e| panic!("{program}: {e}; `scripts/setup.sh tests` sets it up"));
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {error}");
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Where the loader looks by default.
pub fn lib() -> String {
    format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH)
}

/// A layout `layout` with the tag `made`, and what it is made of; goes with its copies.
pub struct Made {
    pub sandbox: Sandbox,
    layers: usize,
    images: Vec<String>,
}

impl Made {
    pub fn new() -> Self {
        let made = Self {
            sandbox: Sandbox::new(),
            layers: 0,
            images: Vec::new(),
        };
        run("umoci", &["init", "--layout", &made.text("layout")]);
        made.umoci("new", &[]);
        made
    }

    pub fn text(&self, name: &str) -> String {
        self.sandbox.path(name).display().to_string()
    }

    fn umoci(&self, command: &str, args: &[&str]) {
        let image = format!("{}:made", self.text("layout"));
        run("umoci", &[&[command, "--image", &image], args].concat());
    }

    /// The folder of the next layer.
    pub fn folder(&self) -> PathBuf {
        self.sandbox.path(&format!("layer{}", self.layers))
    }

    pub fn text_file(&self, path: &str, text: &str) {
        self.sandbox
            .write(&format!("layer{}/{path}", self.layers), text);
    }

    pub fn object(&self, path: &str, built: &Built<'_>) {
        built.write(&self.folder().join(path));
    }

    /// Everything that was put into the folder becomes a layer.
    pub fn layer(&mut self) {
        let folder = self.folder().display().to_string();
        self.umoci("insert", &[&folder, "/"]);
        self.layers += 1;
    }

    pub fn whiteout(&self, path: &str) {
        self.umoci("insert", &["--whiteout", &format!("/{path}")]);
    }

    pub fn env(&self, variable: &str) {
        self.umoci("config", &["--config.env", variable]);
    }

    /// A copy in the engine, under a name that no other run uses.
    pub fn load(&mut self, tag: &str) -> String {
        let unique = self.sandbox.path("");
        let unique = unique.file_name().unwrap().to_string_lossy().to_lowercase();
        let unique: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("stackforge-audit-{unique}:{tag}");
        let archive = self.text(&format!("load-{tag}.tar"));
        let copy = format!("docker-archive:{archive}:{name}");
        skopeo(&["copy", "-q", &self.source(), &copy]);
        self.images.push(name.clone());
        run("docker", &["load", "-qi", &archive]);
        name
    }

    pub fn source(&self) -> String {
        format!("oci:{}:made", self.text("layout"))
    }

    /// Copies it to what skopeo calls `to`, with these options.
    pub fn copy(&self, options: &[&str], to: &str) {
        let source = self.source();
        skopeo(&[&["copy", "-q"], options, &[&source, to]].concat());
    }

    /// Targets that are the same image, and the registry that has one of them.
    pub fn everywhere(&mut self) -> (Vec<String>, Server) {
        let loaded = self.load("everywhere");
        let saved = self.text("saved.tar");
        run("docker", &["save", "-o", &saved, &loaded]);
        let file = |name: &str| self.text(name);
        self.copy(&[], &format!("oci-archive:{}:made", file("archive.tar")));
        let zstd = format!("oci:{}:made", file("zstd"));
        self.copy(&["--dest-compress-format", "zstd"], &zstd);
        let server = Server::start(Kind::Open);
        let place = format!("{}/team/app:v1", server.host);
        let to = format!("docker://{place}");
        self.copy(&["--dest-tls-verify=false"], &to);
        let targets = vec![
            self.source(),
            format!("oci:{}", file("layout")),
            file("layout"),
            format!("oci:{}:made", file("zstd")),
            format!("oci-archive:{}:made", file("archive.tar")),
            file("archive.tar"),
            format!("docker-archive:{saved}"),
            format!("docker-archive:{saved}:{loaded}"),
            format!("docker:{loaded}"),
            format!("registry:{place}"),
            format!("docker://{place}"),
        ];
        (targets, server)
    }

    /// A layer's blob, the lowest is 0.
    pub fn blob(&self, layer: usize) -> PathBuf {
        let layout = self.sandbox.path("layout");
        let read = |path: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let blob = |of: &serde_json::Value| {
            let digest = of["digest"].as_str().unwrap();
            layout.join("blobs/sha256").join(&digest["sha256:".len()..])
        };
        let index = read(&layout.join("index.json"));
        let manifest = read(&blob(&index["manifests"][0]));
        blob(&manifest["layers"][layer])
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for image in &self.images {
            let _ = Command::new("docker").args(["rmi", "-f", image]).output();
        }
    }
}
