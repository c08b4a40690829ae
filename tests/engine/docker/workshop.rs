//! What the tests against a real engine share: a base image made of the host's own shell, names
//! that are removed in the end, and a relay that stands between the client and the engine.

use stackforge_engine::docker::Docker;
use stackforge_engine::{
    BuildOutcome, BuildRequest, ContextEntry, EngineError, Event, ImportRequest, Secret, Source,
};
use stackforge_types::Cancel;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

/// Where the engine of the tests listens.
pub fn socket() -> PathBuf {
    let host = std::env::var("DOCKER_HOST").unwrap_or_default();
    match host.strip_prefix("unix://") {
        Some(path) => path.into(),
        None => "/var/run/docker.sock".into(),
    }
}

/// An engine, a base image and a directory of one test. Images whose names came from
/// [`Workshop::name`] are removed when it is dropped.
pub struct Workshop {
    pub docker: Docker,
    pub base: String,
    pub dir: tempfile::TempDir,
    test: &'static str,
    names: std::sync::Mutex<BTreeSet<String>>,
}

impl Workshop {
    pub async fn open(test: &'static str) -> Self {
        let address = format!("unix://{}", socket().display());
        let docker = Docker::connect(Some(&address)).await.unwrap();
        let mut workshop = Workshop {
            docker,
            base: String::new(),
            dir: tempfile::tempdir().unwrap(),
            test,
            names: std::sync::Mutex::default(),
        };
        workshop.base = workshop.name("base");
        let request = ImportRequest {
            reference: workshop.base.clone(),
            labels: BTreeMap::from([("note".into(), workshop.note().into())]),
            env: BTreeMap::from([("PATH".into(), "/bin".into())]),
            platform: None,
        };
        let tar = std::io::Cursor::new(root_file_system());
        let id = workshop.docker.import(tar, &request, &Cancel::new()).await;
        assert!(id.unwrap().starts_with("sha256:"));
        workshop
    }

    /// A label of the base, as hard to quote as the engine allows.
    pub fn note(&self) -> &'static str {
        if self.docker.is_podman() {
            "a b = c"
        } else {
            r#"a "b" $c \d"#
        }
    }

    /// A name for an image of this test.
    pub fn name(&self, what: &str) -> String {
        let name = format!(
            "stackforge-test-{}-{}:{what}",
            self.test,
            std::process::id()
        );
        self.names.lock().unwrap().insert(name.clone());
        name
    }

    /// A request that builds `lines` on the base, tagged `out`.
    pub fn request(&self, lines: &str) -> BuildRequest {
        let text = format!("FROM {}\n{lines}\n", self.base);
        BuildRequest {
            context: vec![file("Dockerfile", text)],
            dockerfile: "Dockerfile".into(),
            tags: vec![self.name("out")],
            ..BuildRequest::default()
        }
    }

    pub async fn build(&self, request: BuildRequest) -> Built {
        self.build_with(&self.docker, request).await
    }

    pub async fn build_with(&self, docker: &Docker, request: BuildRequest) -> Built {
        let mut events = Vec::new();
        let log = self.dir.path().join("build.log");
        let outcome = docker
            .build(request, Some(&log), &Cancel::new(), &mut |event| {
                events.push(event);
            })
            .await;
        Built {
            outcome,
            events,
            log: std::fs::read_to_string(log).unwrap(),
        }
    }

    pub async fn is_tagged(&self, what: &str) -> bool {
        self.docker.image(&self.name(what)).await.unwrap().is_some()
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        let docker = self.docker.clone();
        let names = std::mem::take(&mut *self.names.lock().unwrap());
        // The test's own runtime may be the thing that is being torn down.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                for name in names.iter().rev() {
                    if let Err(error) = docker.remove_image(name).await {
                        eprintln!("{name} stays: {error}");
                    }
                }
            });
        });
        let _ = cleaner.join();
    }
}

pub struct Built {
    pub outcome: Result<BuildOutcome, EngineError>,
    pub events: Vec<Event>,
    pub log: String,
}

impl Built {
    pub fn lines(&self) -> Vec<&str> {
        let lines = self.events.iter().filter_map(|event| match event {
            Event::StepLog { line, .. } => Some(line.as_str()),
            _ => None,
        });
        lines.collect()
    }
}

pub fn file(path: &str, text: impl Into<Vec<u8>>) -> ContextEntry {
    ContextEntry {
        path: path.into(),
        mode: 0o644,
        source: Source::Bytes(text.into()),
    }
}

pub fn secrets(id: &str, value: &str) -> BTreeMap<String, Secret> {
    BTreeMap::from([(id.to_owned(), Secret::new(value))])
}

/// Unlike any other run's, so that no step is cached from one.
fn unique() -> String {
    format!("{:?} {}", std::time::SystemTime::now(), std::process::id())
}

/// A tar with the host's `sh`, `cat` and `sleep` and the libraries that they load: a base for RUN
/// steps on any Linux host whose engine runs on the same architecture.
fn root_file_system() -> Vec<u8> {
    let mut files: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for program in ["sh", "cat", "sleep"] {
        let path = ["/bin", "/usr/bin"]
            .map(|dir| Path::new(dir).join(program))
            .into_iter()
            .find(|path| path.exists())
            .unwrap();
        let listed = Command::new("ldd").arg(&path).output().unwrap();
        for word in String::from_utf8(listed.stdout).unwrap().split_whitespace() {
            if word.starts_with('/') && Path::new(word).exists() {
                files.insert(word.into(), word.into());
            }
        }
        files.insert(Path::new("/bin").join(program), path);
    }
    let mut tar = tar::Builder::new(Vec::new());
    for (name, source) in files {
        let bytes = std::fs::read(source).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o755);
        let name = name.strip_prefix("/").unwrap();
        tar.append_data(&mut header, name, bytes.as_slice())
            .unwrap();
    }
    let unique = unique();
    let mut header = tar::Header::new_gnu();
    header.set_size(unique.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, "etc/unique", unique.as_bytes())
        .unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o1777);
    header.set_size(0);
    tar.append_data(&mut header, "tmp/", std::io::empty())
        .unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "etc/link", "../bin/cat")
        .unwrap();
    tar.into_inner().unwrap()
}

/// A TCP port that leads to the engine's socket until it is cut.
pub struct Relay {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Relay {
    pub async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            // Streams live in this set, so ending the task cuts them all.
            let mut streams = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                streams.spawn(async move {
                    let mut far = UnixStream::connect(socket()).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Relay { address, task }
    }

    /// One whose client gets the end of each line of an answer apart from the line.
    pub async fn open_slow() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((near, _)) = listener.accept().await {
                near.set_nodelay(true).unwrap();
                streams.spawn(async move {
                    let far = UnixStream::connect(socket()).await.unwrap();
                    let (mut from_client, to_client) = near.into_split();
                    let (from_engine, mut to_engine) = far.into_split();
                    let asked = tokio::io::copy(&mut from_client, &mut to_engine);
                    let _ = tokio::join!(asked, line_by_line(from_engine, to_client));
                });
            }
        });
        Relay { address, task }
    }

    pub fn cut(&self) {
        self.task.abort();
    }
}

/// Copies, with a pause before each line break that ends a JSON object.
async fn line_by_line(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = &buffer[..read];
        let mut sent = 0;
        for end in (1..read).filter(|&i| bytes[i] == b'\r' && bytes[i - 1] == b'}') {
            let _ = to.write_all(&bytes[sent..end]).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            sent = end;
        }
        let _ = to.write_all(&bytes[sent..]).await;
    }
    let _ = to.shutdown().await;
}
