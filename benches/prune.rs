//! Device code pruned from real wheels: how long it takes, and what it takes away.
//!
//! Usage: prune SMS FOLDER WHEEL…, with SMS like `9.0,11.0`. The peer is one pass of the same wheels
//! through zlib-rs, on as many cores: whoever looks at device code has to inflate it. What is new is
//! written below FOLDER, so that a GPU can be asked what it thinks of it.

use std::error::Error;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use stackforge_audit::prune::Pruner;
use stackforge_binary::source::FileSource;
use stackforge_binary::zip::Archive;
use stackforge_stack::spec::Sm;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [sms, folder, wheels @ ..] = &arguments[..] else {
        println!("prune: no wheels are given, see benches/run.sh");
        return Ok(());
    };
    let sms: Vec<Sm> = sms.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let catalog = stackforge_stack::catalog::load(None)?;
    let threads = thread::available_parallelism().map_or(1, Into::into);
    let pruner = Pruner {
        catalog: &catalog,
        sms: &sms,
        threads,
        scratch: &tempfile::tempfile,
    };
    println!(
        "{:>8} {:>8} {:>9} {:>6}",
        "seconds", "inflate", "MB gone", "files"
    );
    for wheel in wheels {
        let path = Path::new(wheel);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let source = FileSource::open(path)?;
        let start = Instant::now();
        inflate(&name, &source, threads)?;
        let inflated = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let pruned = pruner.wheel(&name, &source)?;
        let seconds = start.elapsed().as_secs_f64();
        let (gone, files) = (pruned.removed as f64 / 1e6, pruned.members.len());
        println!("{seconds:8.2} {inflated:8.2} {gone:9.1} {files:6}  {name}");
        for (member, changed) in pruned.members {
            let to = Path::new(folder).join(member);
            std::fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
            changed.write_to(&mut File::create(to)?)?;
        }
    }
    Ok(())
}

/// Every member once, the largest first.
fn inflate(name: &str, source: &FileSource, threads: usize) -> Result<(), Box<dyn Error>> {
    let archive = Archive::read(name, &mut source.clone())?;
    let mut members: Vec<_> = archive.members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.size));
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = vec![0; 256 << 10];
                while let Some(member) = members.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Ok(Some(mut once)) = archive.once(member, source.clone()) {
                        while once.read(&mut buffer).is_ok_and(|read| read > 0) {}
                    }
                }
            });
        }
    });
    Ok(())
}
