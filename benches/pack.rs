//! Content that is no wheel to a layer: made, compressed and hashed in one pass, beside what other
//! tools take for the same bytes.
//!
//! Usage: `cargo bench --bench pack -- FILE…`, as `benches/run.sh` does with libtorch_cuda.so. The
//! first GiB of the files is the content. Medians of runs that take turns. BuildKit and skopeo
//! compress with the same two Go packages, and skopeo alone can be asked to do nothing else: it copies
//! a docker-archive of one plain layer to a layout. `gzip -6` and `zstd -3` are the usual programs,
//! on one core and on all; they hash nothing.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sha2::{Digest as _, Sha256};
use stackforge_image::pack::{Compression, pack};

const RUNS: usize = 3;
const SIZE: u64 = 1 << 30;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;
type Case<'a> = (String, Box<dyn Fn() -> Fallible<()> + 'a>);

fn main() -> Fallible<()> {
    let paths: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let cores = std::thread::available_parallelism()?.get();
    let dir = tempfile::tempdir()?;
    let tar = dir.path().join("layer.tar");
    content(&paths, &tar)?;
    let archive = dir.path().join("archive.tar");
    docker_archive(&tar, &archive)?;
    println!(
        "{:.2} GB of content, {cores} cores, {RUNS} runs",
        std::fs::metadata(&tar)?.len() as f64 / 1e9
    );
    for (name, compression, flags, program) in [
        ("gzip", Compression::GZIP, ["gzip", "6"], "gzip"),
        ("zstd", Compression::ZSTD, ["zstd", "3"], "zstd"),
    ] {
        let to = dir.path().join("layout");
        let mut cases: Vec<Case<'_>> = vec![
            (
                format!("stackforge, {name}"),
                Box::new(|| {
                    let out = BufWriter::new(File::create(dir.path().join("layer"))?);
                    let packed = pack(compression, cores, out, |sink| {
                        io::copy(&mut File::open(&tar)?, sink).map(drop)
                    })?;
                    assert!(packed.plain_size >= SIZE);
                    Ok(())
                }),
            ),
            (
                format!("skopeo copy, {name}"),
                Box::new(|| {
                    std::fs::remove_dir_all(&to).or_else(ignore_missing)?;
                    let from = format!("docker-archive:{}", archive.display());
                    let [format, level] = flags;
                    run(Command::new("skopeo")
                        .args([
                            "copy",
                            "-q",
                            "--dest-compress",
                            "--dest-compress-format",
                            format,
                        ])
                        .args(["--dest-compress-level", level, &from])
                        .arg(format!("oci:{}:x", to.display())))
                }),
            ),
        ];
        for threads in ["1", "all"] {
            let tar = &tar;
            cases.push((
                format!("{program}, {threads} core"),
                Box::new(move || {
                    let mut command = match (program, threads) {
                        ("zstd", "1") => Command::new("zstd"),
                        ("zstd", _) => Command::new("zstdmt"),
                        (_, "1") => Command::new("gzip"),
                        _ => Command::new("pigz"),
                    };
                    let level = if program == "zstd" { "-3" } else { "-6" };
                    run(command.args([level, "-c"]).stdin(File::open(tar)?))
                }),
            ));
        }
        measure(&cases);
    }
    Ok(())
}

/// One of each, in turn; prints the median of each beside the first.
fn measure(cases: &[Case<'_>]) {
    let mut seconds = vec![Vec::new(); cases.len()];
    for _ in 0..RUNS {
        for ((name, case), seconds) in cases.iter().zip(&mut seconds) {
            let start = Instant::now();
            match case() {
                Ok(()) => seconds.push(start.elapsed().as_secs_f64()),
                Err(e) => println!("{name}: {e}"),
            }
        }
    }
    let median = |seconds: &mut Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds.get(seconds.len() / 2).copied()
    };
    let medians: Vec<_> = seconds.iter_mut().map(median).collect();
    let first = medians[0].unwrap_or(f64::NAN);
    for ((name, _), median) in cases.iter().zip(&medians) {
        if let Some(median) = median {
            println!("{name:24} {median:8.2} s {:8.2} times", median / first);
        }
    }
}

/// A tar of the first bytes of the files.
fn content(paths: &[String], to: &Path) -> Fallible<()> {
    let mut archive = tar::Builder::new(BufWriter::new(File::create(to)?));
    let mut left = SIZE;
    for (number, path) in paths.iter().enumerate() {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len().min(left);
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, number.to_string(), (&mut file).take(size))?;
        left -= size;
    }
    if left > 0 {
        return Err(format!("{left} more bytes of content are needed").into());
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

/// What `docker save` writes of an image of that one layer.
fn docker_archive(layer: &Path, to: &Path) -> Fallible<()> {
    let mut sum = Sha256::new();
    let mut file = File::open(layer)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => break,
            len => sum.update(&piece[..len]),
        }
    }
    let hex: String = sum.finalize().iter().map(|b| format!("{b:02x}")).collect();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{hex}")] },
    });
    let manifest = serde_json::json!([
        { "Config": "config.json", "RepoTags": ["x:latest"], "Layers": ["layer.tar"] },
    ]);
    let mut archive = tar::Builder::new(BufWriter::new(File::create(to)?));
    archive.append_path_with_name(layer, "layer.tar")?;
    for (name, document) in [("config.json", config), ("manifest.json", manifest)] {
        let text = document.to_string();
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

fn ignore_missing(e: io::Error) -> io::Result<()> {
    match e.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(e),
    }
}

fn run(command: &mut Command) -> Fallible<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.stdout(Stdio::null()).status()?;
    let ok = status.success().then_some(());
    ok.ok_or_else(|| format!("{program} failed").into())
}
