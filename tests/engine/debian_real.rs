//! Debian's real archive, from a signed index to a working system in a container.
//!
//! Needs the network, a mirror that this machine knows (apt's sources or
//! `STACKFORGE_DEBIAN_MIRROR`) and Docker.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use stackforge_debian::Keyring;
use stackforge_debian::LockedDeb;
use stackforge_debian::archive::{ArchiveError, Source, debian_suites, fetch_index};
use stackforge_debian::configure::{CONFIGURE, INSTALL};
use stackforge_debian::fetch::fetch_debs;
use stackforge_debian::index::PackageIndex;
use stackforge_debian::mirror::Mirrors;
use stackforge_debian::release::{Release, ReleaseError};
use stackforge_debian::resolve::{Request, resolve};
use stackforge_debian::rootfs::write_rootfs;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;

const BOOKWORM: &[u8] = include_bytes!("../../images/keyrings/debian-archive-bookworm.gpg");
const TRIXIE: &[u8] = include_bytes!("../../images/keyrings/debian-archive-trixie.gpg");
/// Where bookworm's security key and its Ed25519 key, the second and third of three, begin.
const SECURITY: usize = 8700;
const STABLE: usize = 17409;
const WANTED: [&str; 3] = ["python3", "python3-venv", "ca-certificates"];
const EPOCH: u64 = 1_704_067_200;
const DAY: Duration = Duration::from_secs(86_400);

struct Archive {
    fetcher: Fetcher,
    mirrors: Mirrors,
    cache: tempfile::TempDir,
}

impl Archive {
    fn new() -> Self {
        Archive {
            fetcher: Fetcher::new(RetryPolicy::default()).unwrap(),
            mirrors: Mirrors::discover(&[]).unwrap(),
            cache: tempfile::tempdir().unwrap(),
        }
    }

    async fn index(
        &self,
        codename: &str,
        keyring: &[u8],
        architecture: &str,
    ) -> Result<PackageIndex, ArchiveError> {
        let keyring = Keyring::parse(keyring).unwrap();
        let source = Source {
            fetcher: &self.fetcher,
            mirrors: &self.mirrors,
            keyring: &keyring,
            cache: self.cache.path(),
            now: SystemTime::now(),
        };
        fetch_index(source, &debian_suites(codename), architecture).await
    }

    async fn release(&self, archive: &str, suite: &str) -> Vec<u8> {
        let mirror = self.mirrors.for_archive(archive).unwrap()[0];
        let url = format!("{mirror}/dists/{suite}/InRelease");
        let answer = self.fetcher.get(&url, None, 1 << 24).await.unwrap();
        answer.body.into()
    }

    async fn fetch(&self, debs: &[LockedDeb]) -> Vec<PathBuf> {
        fetch_debs(
            &self.fetcher,
            &self.mirrors,
            self.cache.path(),
            debs,
            &|_| {},
        )
        .await
        .unwrap()
    }

    fn cached(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.cache.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| path.is_file()).collect()
    }
}

fn request(wanted: &[&str], installed: BTreeMap<String, String>) -> Request {
    Request {
        wanted: wanted.iter().map(|name| (*name).to_owned()).collect(),
        base: installed.is_empty(),
        installed,
        ..Request::default()
    }
}

#[tokio::test]
async fn closures_of_both_architectures() {
    let archive = Archive::new();
    for architecture in ["amd64", "arm64"] {
        let index = archive
            .index("bookworm", BOOKWORM, architecture)
            .await
            .unwrap();
        assert!(index.packages().count() > 60_000);
        let debs = resolve(&index, &request(&WANTED, BTreeMap::new())).unwrap();
        assert!((90..180).contains(&debs.len()), "{}", debs.len());
        for name in [
            "libc6",
            "dpkg",
            "apt",
            "base-passwd",
            "python3.11",
            "usr-is-merged",
        ] {
            assert!(debs.iter().any(|deb| deb.name == name), "{name}");
        }
        for deb in &debs {
            deb.check().unwrap();
            assert!([architecture, "all"].contains(&deb.architecture.as_str()));
        }
        assert_eq!(
            debs,
            resolve(&index, &request(&WANTED, BTreeMap::new())).unwrap()
        );
    }
    let trixie = archive.index("trixie", TRIXIE, "arm64").await.unwrap();
    assert!(trixie.newest("python3.13").is_some() && trixie.newest("python3.11").is_none());
}

#[tokio::test]
async fn a_tampered_release_is_refused() {
    let archive = Archive::new();
    let keyring = Keyring::parse(BOOKWORM).unwrap();
    let now = SystemTime::now();
    let genuine = archive.release("debian", "bookworm").await;
    let verify =
        |bytes: &[u8], keyring: &Keyring, now| Release::verify(bytes, "bookworm", keyring, now);
    let release = verify(&genuine, &keyring, now).unwrap();
    let listed = release.files["main/binary-amd64/Packages.xz"].sha256.hex();
    let text = String::from_utf8(genuine.clone()).unwrap();
    let flipped = if listed.starts_with('0') { "1" } else { "0" };
    for tampered in [
        text.replacen(listed, &format!("{flipped}{}", &listed[1..]), 1),
        text.replacen("\nSuite: ", "\nX: y\nSuite: ", 1),
        format!("Suite: evil\n{text}"),
        format!("{text}\nSHA256:\n"),
        text.replacen("-----BEGIN PGP SIGNATURE", "\n-----BEGIN PGP SIGNATURE", 1),
    ] {
        assert_ne!(tampered, text);
        assert!(verify(tampered.as_bytes(), &keyring, now).is_err());
    }
    let other = Release::verify(&genuine, "trixie", &keyring, now);
    assert!(matches!(other, Err(ReleaseError::OtherSuite { .. })));

    // One good signature is enough, also one of Ed25519; one by a stranger is none.
    let stable = Keyring::parse(&BOOKWORM[STABLE..]).unwrap();
    assert!(verify(&genuine, &stable, now).is_ok());
    let security = Keyring::parse(&BOOKWORM[SECURITY..STABLE]).unwrap();
    let refused = verify(&genuine, &security, now).unwrap_err();
    assert!(
        matches!(refused, ReleaseError::BadSignature { .. }),
        "{refused}"
    );
    let refused = verify(&genuine, &keyring, now + DAY * 365 * 20).unwrap_err();
    assert!(
        matches!(refused, ReleaseError::BadSignature { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn an_old_security_release_is_refused() {
    let archive = Archive::new();
    let keyring = Keyring::parse(BOOKWORM).unwrap();
    let genuine = archive
        .release("debian-security", "bookworm-security")
        .await;
    let verify = |now| Release::verify(&genuine, "bookworm-security", &keyring, now);
    assert!(verify(SystemTime::now()).is_ok());
    let refused = verify(SystemTime::now() + DAY * 30).unwrap_err();
    assert!(matches!(refused, ReleaseError::Expired { .. }), "{refused}");
}

#[tokio::test]
async fn a_tampered_index_is_never_used() {
    // An archive may publish between two fetches: what it then left behind is not used, and
    // tells nothing.
    for _ in 0..3 {
        if tampered_files_come_back().await {
            return;
        }
    }
    panic!("the archive published three times in a row");
}

/// Damages each cached index and fetches again; false where the archive has changed meanwhile.
async fn tampered_files_come_back() -> bool {
    let archive = Archive::new();
    let count = async || {
        archive
            .index("bookworm", BOOKWORM, "amd64")
            .await
            .unwrap()
            .packages()
            .count()
    };
    let before = count().await;
    let files = archive.cached();
    assert_eq!(files.len(), 3);
    for path in &files {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    let after = count().await;
    if archive.cached().len() != files.len() {
        return false;
    }
    assert_eq!(after, before);
    for path in archive.cached() {
        let digest = Sha256::digest(std::fs::read(&path).unwrap());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(path.file_stem().unwrap().to_str().unwrap(), name);
    }
    true
}

fn native() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

fn build(files: &[PathBuf], path: &Path) -> Vec<u8> {
    let out = BufWriter::new(std::fs::File::create(path).unwrap());
    write_rootfs(files, native(), EPOCH, out).unwrap();
    Sha256::digest(std::fs::read(path).unwrap()).to_vec()
}

/// Images and containers that go when the test ends, however it ends.
struct Docker {
    name: String,
}

impl Docker {
    fn new() -> Self {
        Docker {
            name: format!("stackforge-test-debian-{}", std::process::id()),
        }
    }

    fn image(&self, tag: &str) -> String {
        format!("{}:{tag}", self.name)
    }

    fn run(arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("docker")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("docker is needed");
        // A container that ends early closes its input; its exit status says so.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "docker {arguments:?}: {text}\n{error}"
        );
        text
    }

    /// Runs a shell text in image `from` and keeps the result as image `to`.
    fn step(&self, from: &str, to: &str, debs: &Path, script: &str) {
        let container = format!("{}-{to}", self.name);
        let mount = format!("{}:/debs:ro", debs.display());
        let options = [
            "run",
            "-i",
            "--network=none",
            "-v",
            &mount,
            "-e",
            "DEBS=/debs",
        ];
        let what = ["--name", &container, &self.image(from), "sh"];
        Docker::run(&[&options[..], &what].concat(), script);
        Docker::run(&["commit", &container, &self.image(to)], "");
        Docker::run(&["rm", &container], "");
    }

    fn shell(&self, tag: &str, script: &str) -> String {
        let image = self.image(tag);
        Docker::run(
            &["run", "-i", "--rm", "--network=none", &image, "sh", "-eux"],
            script,
        )
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        for tag in ["base", "more"] {
            let container = format!("{}-{tag}", self.name);
            let _ = Command::new("docker")
                .args(["rm", "-f", &container])
                .output();
        }
        for tag in ["more", "base", "raw"] {
            let _ = Command::new("docker")
                .args(["rmi", "-f", &self.image(tag)])
                .output();
        }
    }
}

const CHECKS: &str = r#"
test -z "$(dpkg --audit)"; test -z "$(dpkg --verify)"; apt-get check >&2
test -z "$(find /var/log -type f -size +0; ls /var/lib/dpkg/*-old /etc/passwd- 2>/dev/null)"
test "$(LC_ALL=C.UTF-8 locale charmap)" = UTF-8
getent passwd nobody _apt >&2
test "$(stat -c '%a %G' /etc/shadow)" = '640 shadow'; test -u /usr/bin/passwd
python3 -c 'import ssl, venv, ctypes; assert len(ssl.create_default_context().get_ca_certs()) > 100'
python3 -m venv /tmp/v && /tmp/v/bin/pip --version >&2
dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'
"#;

const COMPILES: &str = r#"
test -z "$(dpkg --audit)"; apt-get check >&2
echo 'int puts(const char *); int main(void) { return puts("works") < 0; }' > /tmp/a.c
gcc -o /tmp/a /tmp/a.c && /tmp/a
"#;

#[tokio::test]
async fn a_root_file_system_is_reproducible_and_works() {
    let archive = Archive::new();
    let index = archive.index("bookworm", BOOKWORM, native()).await.unwrap();
    let debs = resolve(&index, &request(&WANTED, BTreeMap::new())).unwrap();
    let files = archive.fetch(&debs).await;
    let directory = tempfile::tempdir().unwrap();
    let tar = directory.path().join("rootfs.tar");
    let first = build(&files, &tar);
    assert_eq!(build(&files, &tar), first);

    let docker = Docker::new();
    let more = directory.path().join("debs");
    std::fs::create_dir(&more).unwrap();
    Docker::run(&["import", tar.to_str().unwrap(), &docker.image("raw")], "");
    docker.step("raw", "base", &more, CONFIGURE);
    let mut installed = BTreeMap::new();
    for line in docker.shell("base", CHECKS).lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        assert_eq!(words[0], "ii", "{line}");
        installed.insert(words[1].to_owned(), words[2].to_owned());
    }
    let locked: BTreeMap<String, String> = debs
        .iter()
        .map(|deb| (deb.name.clone(), deb.version.clone()))
        .collect();
    assert_eq!(installed, locked);

    let debs = resolve(&index, &request(&["gcc", "libc6-dev"], installed)).unwrap();
    assert!(debs.iter().all(|deb| !locked.contains_key(&deb.name)));
    for (number, (deb, file)) in debs.iter().zip(archive.fetch(&debs).await).enumerate() {
        std::fs::copy(file, more.join(format!("{number:04}-{}.deb", deb.name))).unwrap();
    }
    docker.step("base", "more", &more, INSTALL);
    assert_eq!(docker.shell("more", COMPILES), "works\n");
}
