//! A base that is made in process is the base that its packages' own scripts make.
//!
//! Needs the network, a mirror that this machine knows (apt's sources or
//! `STACKFORGE_DEBIAN_MIRROR`) and Docker.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stackforge_debian::LockedDeb;
use stackforge_debian::configure::CONFIGURE;
use stackforge_debian::fetch::fetch_debs;
use stackforge_debian::finish::{self, Unpacked};
use stackforge_debian::mirror::Mirrors;
use stackforge_debian::rootfs::write_rootfs;
use stackforge_stack::lock::{Lock, OsPackageLock};
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::fetch::Fetcher;
use support::exported::{differences, entries};

const EPOCH: u64 = 1_704_067_200;

async fn fetch(packages: &[OsPackageLock], cache: &Path) -> Vec<PathBuf> {
    let debs: Vec<LockedDeb> = packages
        .iter()
        .map(|p| LockedDeb {
            name: p.name.clone(),
            version: p.version.clone().unwrap(),
            architecture: p.architecture.clone().unwrap(),
            archive: p.archive.clone().unwrap(),
            path: p.path.clone().unwrap(),
            size: p.size,
            sha256: p.sha256.clone().unwrap(),
        })
        .collect();
    let mirrors = Mirrors::discover(&[]).unwrap();
    let fetcher = Fetcher::new(RetryPolicy::default()).unwrap();
    fetch_debs(&fetcher, &mirrors, cache, &debs, &|_| {})
        .await
        .unwrap()
}

fn docker(args: &[&str], input: Option<&Path>) -> Vec<u8> {
    let stdin = input.map_or_else(Stdio::null, |path| {
        std::fs::File::open(path).unwrap().into()
    });
    let out = Command::new("docker")
        .args(args)
        .stdin(stdin)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "docker {args:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    out.stdout
}

/// Images and containers that go when the test does.
struct Gone(Vec<(&'static str, String)>);

impl Drop for Gone {
    fn drop(&mut self) {
        for (kind, name) in self.0.iter().rev() {
            let _ = Command::new("docker")
                .args([kind, "rm", "-f", name])
                .output();
        }
    }
}

#[tokio::test]
async fn equals_what_the_packages_scripts_leave() {
    if !support::has_turn("a base beside what its packages' scripts leave", 1, 2) {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(support::project("stacks/demo-cuda13.lock")).unwrap();
    let lock = Lock::from_toml(&text).unwrap();
    let platform = &lock.platforms[0];
    let base = fetch(&platform.base.packages, scratch.path()).await;
    let runtime = fetch(&platform.packages, scratch.path()).await;
    let all = [base.clone(), runtime.clone()].concat();
    let path = |name: &str| scratch.path().join(name);

    // By the packages' own scripts, in a container without network.
    let unpacked = std::fs::File::create(path("unpacked.tar")).unwrap();
    write_rootfs(&all, "amd64", EPOCH, unpacked).unwrap();
    let tag = format!("stackforge-test-base:{}", std::process::id());
    let name = tag.replace(':', "-");
    let _gone = Gone(vec![
        ("image", tag.clone()),
        ("image", format!("{tag}-finished")),
        ("container", name.clone()),
    ]);
    docker(&["import", "-", &tag], Some(&path("unpacked.tar")));
    docker(
        &[
            "run",
            "--network",
            "none",
            "--name",
            &name,
            &tag,
            "sh",
            "-c",
            CONFIGURE,
        ],
        None,
    );
    let exported = docker(&["export", &name], None);
    let expected = entries(exported.as_slice());

    // In process, whole and as a base with a layer over it.
    let finished = std::fs::File::create(path("finished.tar")).unwrap();
    finish::write(&all, "amd64", EPOCH, finished).unwrap();
    let made = entries(std::fs::File::open(path("finished.tar")).unwrap());
    let different = differences(&expected, &made);
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.join("\n")
    );

    let mut again = Vec::new();
    finish::write(&all, "amd64", EPOCH, &mut again).unwrap();
    assert!(again == std::fs::read(path("finished.tar")).unwrap());

    let root = path("root");
    std::fs::create_dir(&root).unwrap();
    let mut below = Vec::new();
    finish::write(&base, "amd64", EPOCH, &mut below).unwrap();
    let mut untar = Command::new("tar")
        .arg("-xC")
        .arg(&root)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    untar.stdin.take().unwrap().write_all(&below).unwrap();
    assert!(untar.wait().unwrap().success());
    let mut layer = Vec::new();
    finish::add(&runtime, &Unpacked(root), "amd64", EPOCH, &mut layer).unwrap();
    let mut stacked = entries(below.as_slice());
    stacked.extend(entries(layer.as_slice()));
    let different = differences(&made, &stacked);
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.join("\n")
    );

    // The finished system works.
    let image = format!("{tag}-finished");
    docker(&["import", "-", &image], Some(&path("finished.tar")));
    let works = r#"set -eu
test -z "$(dpkg --audit)"
apt-get check
getent passwd _apt
python3 -c 'import ssl; assert len(ssl.create_default_context().get_ca_certs()) > 100'
printf 'int main(void) { return 0; }' > /tmp/a.c
cc /tmp/a.c -o /tmp/a && /tmp/a
cp /etc/ld.so.cache /tmp/cache && ldconfig && cmp /etc/ld.so.cache /tmp/cache
mkdir -p /tmp/p/DEBIAN && printf 'Package: p\nVersion: 1\nArchitecture: all\nMaintainer: p <p@p>\nDescription: p\nDepends: gcc\n' > /tmp/p/DEBIAN/control
dpkg-deb --build /tmp/p /tmp/p.deb && apt-get install -y /tmp/p.deb && dpkg -s p
"#;
    docker(
        &[
            "run",
            "--rm",
            "--network",
            "none",
            &image,
            "sh",
            "-c",
            works,
        ],
        None,
    );
}
