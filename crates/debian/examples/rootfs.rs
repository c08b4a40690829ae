//! Makes a root file system of Debian packages: `rootfs SUITE KEYRING MIRROR OUT.tar PACKAGE...`.
//!
//! `rootfs bookworm /usr/share/keyrings/debian-archive-keyring.gpg http://mirror.example/debian
//! out.tar python3` writes one tar with dpkg's database, made without dpkg and without root.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use stackforge_debian::Keyring;
use stackforge_debian::archive::{Source, Suite, fetch_index};
use stackforge_debian::fetch::{Fetcher, RetryPolicy, fetch_debs};
use stackforge_debian::finish;
use stackforge_debian::mirror::Mirrors;
use stackforge_debian::resolve::{Request, resolve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [suite, keyring, mirror, out, packages @ ..] = arguments.as_slice() else {
        return Err("usage: rootfs SUITE KEYRING MIRROR OUT.tar PACKAGE...".into());
    };
    let cache = Path::new("debs");
    std::fs::create_dir_all(cache)?;
    let mirrors = Mirrors::parse([format!("debian={mirror}").as_str()].into_iter())?;
    let keyring = Keyring::parse(&std::fs::read(keyring)?)?;
    let fetcher = Fetcher::new(RetryPolicy::default())?;
    let source = Source {
        fetcher: &fetcher,
        mirrors: &mirrors,
        keyring: &keyring,
        cache,
        now: SystemTime::now(),
    };
    let suite = Suite {
        archive: "debian".to_owned(),
        name: suite.clone(),
        components: vec!["main".to_owned()],
    };
    let index = fetch_index(source, &[suite], "amd64").await?;
    let request = Request {
        wanted: packages.to_vec(),
        base: true,
        ..Request::default()
    };
    let locked = resolve(&index, &request)?;

    let debs = fetch_debs(&fetcher, &mirrors, cache, &locked, &|_| ()).await?;
    let made = finish::write(&debs, "amd64", 0, File::create(out)?)?;
    println!(
        "{out}: {} packages, {} bytes of content",
        made.packages, made.content
    );
    Ok(())
}
