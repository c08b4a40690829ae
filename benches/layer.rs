//! Wheels to a layer, beside `sha256sum` of the same content and what compresses it again.
//!
//! Usage: `cargo bench --bench layer -- WHEEL…`, as `benches/run.sh` does with torch's. Prints
//! medians of paired runs, and the limit of this machine: every byte of the tar inflated once and
//! hashed twice, every byte of the layer hashed once, on all cores.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use sha2::{Digest as _, Sha256};
use stackforge_binary::source::FileSource;
use stackforge_image::layer::{Install, Scheme, Spec, Wheel, write};

const RUNS: usize = 5;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    let paths: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let cores = std::thread::available_parallelism()?.get();
    let open = |path: &String| -> Fallible<_> {
        let name = Path::new(path).file_name().and_then(|n| n.to_str());
        let source = FileSource::open(Path::new(path))?;
        Ok(Wheel::open(name.ok_or("a wheel has a name")?, source)?)
    };
    let wheels: Vec<_> = paths.iter().map(open).collect::<Fallible<_>>()?;
    let changed = std::collections::BTreeMap::new();
    let install = |wheel| Install {
        wheel,
        requested: true,
        drop: &[],
        changed: &changed,
    };
    let installs: Vec<_> = wheels.iter().map(install).collect();
    let spec = Spec {
        scheme: Scheme::posix_prefix("/usr/local", "3.12"),
        python: "/usr/local/bin/python3".to_owned(),
        epoch: 0,
        level: 6,
        threads: cores,
    };
    let dir = tempfile::tempdir()?;
    let (gz, tar) = (dir.path().join("layer.tgz"), dir.path().join("layer.tar"));
    let stitched = write(&spec, &installs, File::create(&gz)?)?;
    let layer = &stitched.layer;
    let inflated = || -> Fallible<_> { Ok(flate2::read::MultiGzDecoder::new(File::open(&gz)?)) };
    io::copy(&mut inflated()?, &mut File::create(&tar)?)?;
    println!(
        "{} files, {:.2} GB, as a layer {:.2} GB, {cores} cores",
        stitched.files,
        layer.plain_size as f64 / 1e9,
        layer.size as f64 / 1e9
    );

    let mut rows: [(&str, Vec<f64>); 5] = [
        ("wheels to a layer", vec![]),
        ("sha256sum of its tar", vec![]),
        ("sha256 of its tar", vec![]),
        ("sha256 of the layer", vec![]),
        ("inflating the layer", vec![]),
    ];
    for _ in 0..RUNS {
        let mut time = |row: usize, work: &dyn Fn() -> Fallible<()>| -> Fallible<()> {
            let start = Instant::now();
            work()?;
            rows[row].1.push(start.elapsed().as_secs_f64());
            Ok(())
        };
        time(0, &|| {
            let same = write(&spec, &installs, io::sink())?;
            (same.layer.digest == layer.digest)
                .then_some(())
                .ok_or("two layers differ".into())
        })?;
        time(1, &|| run(Command::new("sha256sum").arg(&tar)))?;
        for (row, path) in [(2, &tar), (3, &gz)] {
            time(row, &|| {
                let mut hash = Sha256::new();
                each_piece(File::open(path)?, |piece| hash.update(piece))
            })?;
        }
        time(4, &|| each_piece(inflated()?, |_| ()))?;
    }
    let medians = rows.map(|(name, mut seconds)| {
        seconds.sort_by(f64::total_cmp);
        print(name, seconds[RUNS / 2], layer.plain_size);
        seconds[RUNS / 2]
    });
    let [ours, _, plain, packed, inflate] = medians;
    let limit = (2.0 * plain + packed + inflate) / cores as f64;
    print("the limit", limit, layer.plain_size);
    println!("{:28} {:8.0} % of the limit", "", 100.0 * limit / ours);

    let all = cores.to_string();
    for (program, args) in [("pigz", vec!["-6", "-p", &all]), ("gzip", vec!["-6"])] {
        let start = Instant::now();
        match run(Command::new(program).args(args).stdin(File::open(&tar)?)) {
            Ok(()) => {
                let seconds = start.elapsed().as_secs_f64();
                print(
                    &format!("{program} -6 of the tar"),
                    seconds,
                    layer.plain_size,
                );
                println!("{:28} {:8.1} times this", "", seconds / ours);
            }
            Err(error) => println!("{program}: {error}"),
        }
    }
    Ok(())
}

fn print(name: &str, seconds: f64, bytes: u64) {
    println!(
        "{name:28} {seconds:8.2} s {:8.2} GB/s",
        bytes as f64 / 1e9 / seconds
    );
}

fn run(command: &mut Command) -> Fallible<()> {
    let status = command.stdout(Stdio::null()).status()?;
    status.success().then_some(()).ok_or("it failed".into())
}

fn each_piece(mut from: impl Read, mut each: impl FnMut(&[u8])) -> Fallible<()> {
    let mut piece = vec![0; 1 << 20];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            len => each(&piece[..len]),
        }
    }
}
