//! Debian's docker-registry on a port of loopback, with a store of its own, and skopeo.

use stackforge_types::Digest;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `user` and `s3cret`, as htpasswd -B writes them.
const HTPASSWD: &str = "user:$2b$04$grySH2nW7vsloS5N.zhJK.lsGBHz30iXu5MZmrWH2hP8ntCYJjn9W\n";

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Open,
    Htpasswd,
    Tls,
}

pub struct Server {
    child: Child,
    pub dir: tempfile::TempDir,
    pub host: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Server {
    pub fn start(kind: Kind) -> Self {
        // Another process may take the port between these two steps; then the next one is tried.
        for _ in 0..5 {
            if let Some(server) = Self::try_start(kind) {
                return server;
            }
        }
        panic!("docker-registry does not start; `scripts/setup.sh tests` installs it");
    }

    fn try_start(kind: Kind) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let host = format!("127.0.0.1:{port}");
        let root = dir.path().display();
        let mut config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage:\n  filesystem: {{ rootdirectory: {root}/store }}\n  delete: {{ enabled: true }}\nhttp:\n  addr: {host}\n  secret: test\n"
        );
        match kind {
            Kind::Open => {}
            Kind::Htpasswd => {
                std::fs::write(dir.path().join("htpasswd"), HTPASSWD).unwrap();
                config += &format!("auth:\n  htpasswd: {{ realm: test, path: {root}/htpasswd }}\n");
            }
            Kind::Tls => {
                run(Command::new("openssl")
                    .args([
                        "req",
                        "-x509",
                        "-newkey",
                        "ec",
                        "-pkeyopt",
                        "ec_paramgen_curve:P-256",
                    ])
                    .args(["-nodes", "-days", "2", "-subj", "/CN=test", "-addext"])
                    .args([
                        "subjectAltName=IP:127.0.0.1",
                        "-addext",
                        "basicConstraints=critical,CA:FALSE",
                        "-keyout",
                        "key.pem",
                        "-out",
                        "cert.pem",
                    ])
                    .current_dir(dir.path()));
                config +=
                    &format!("  tls: {{ certificate: {root}/cert.pem, key: {root}/key.pem }}\n");
            }
        }
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        Self::serve(dir, host)
    }

    /// The same server with another configuration.
    pub fn again(mut self, config: &str) -> Self {
        std::fs::write(self.dir.path().join("config.yml"), config).unwrap();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::spawn(self.dir.path());
        assert!(Self::answers(&mut self.child, &self.host));
        self
    }

    fn spawn(dir: &Path) -> Child {
        let log = std::fs::File::create(dir.join("log")).unwrap();
        Command::new("docker-registry")
            .arg("serve")
            .arg(dir.join("config.yml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .expect("`scripts/setup.sh tests` installs docker-registry")
    }

    fn serve(dir: tempfile::TempDir, host: String) -> Option<Self> {
        let mut child = Self::spawn(dir.path());
        if Self::answers(&mut child, &host) {
            return Some(Self { child, dir, host });
        }
        child.kill().unwrap();
        child.wait().unwrap();
        None
    }

    fn answers(child: &mut Child, host: &str) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            if TcpStream::connect(host).is_ok() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

fn run(command: &mut Command) -> String {
    let out = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}; `scripts/setup.sh tests` installs it"));
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap()
}

/// skopeo with plain HTTP for both ends and without a policy of the system.
pub fn skopeo(arguments: &[&str]) -> String {
    run(Command::new("skopeo")
        .args([
            "--insecure-policy",
            "--override-os",
            "linux",
            "--override-arch",
            "amd64",
        ])
        .args(arguments))
}

/// An image of two layers as an OCI layout `image` with the tag `v1`, made from a seed.
pub fn layout(dir: &Path, seed: u64) -> PathBuf {
    let root = dir.join(format!("image{seed}"));
    let blobs = root.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let put = |bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        digest
    };
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut layers, mut ids) = (Vec::new(), Vec::new());
    for (name, size) in [("small", 3_000), ("large", 700_000)] {
        let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(size)
            .collect();
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(size as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content.as_slice())
            .unwrap();
        let tar = tar.into_inner().unwrap();
        ids.push(format!("\"{}\"", Digest::of(&tar)));
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, &tar).unwrap();
        let gzip = gzip.finish().unwrap();
        layers.push(format!(
            r#"{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"{}","size":{}}}"#,
            put(&gzip),
            gzip.len()
        ));
    }
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        ids.join(",")
    );
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{}]}}"#,
        put(config.as_bytes()),
        config.len(),
        layers.join(",")
    );
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{}","size":{},"annotations":{{"org.opencontainers.image.ref.name":"v1"}}}}]}}"#,
        put(manifest.as_bytes()),
        manifest.len()
    );
    std::fs::write(root.join("index.json"), index).unwrap();
    std::fs::write(root.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    root
}
