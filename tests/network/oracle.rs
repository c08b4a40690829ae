//! Real wheels, judged by the programs whose answers the audit stands on: NVIDIA's `cuobjdump`
//! and binutils' `readelf` see every object of each wheel as the readers do.
//!
//! Needs the network, for pip, and a C compiler's binutils.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::wheels;

use stackforge_binary::elf::{self, Linkage, Object, SearchPath, Version};
use stackforge_binary::fatbin::{self, CodeKind};
use stackforge_binary::source::{FileSource, Source, array};
use stackforge_binary::zip::Archive;
use wheels::download;

const CUOBJDUMP: &str = "nvidia-cuda-cuobjdump==13.5.37";

/// Distribution and platform. Together: an extension of torch, kernels of a compiler, libraries of
/// CUDA; SASS and PTX, LZ4 and zstd, the suffixes `a` and `f`, linked and relocatable code, CUDA 11.8 to
/// 13, both architectures, libraries without device code. About 0.9 GB to download.
const WHEELS: [(&str, &str); 10] = [
    ("bitsandbytes==0.50.1", "manylinux_2_24_x86_64"),
    ("nvidia-cuda-runtime-cu12==12.8.90", "manylinux_2_17_x86_64"),
    ("nvidia-curand==10.4.0.35", "manylinux_2_27_aarch64"),
    ("nvidia-cusparselt-cu13==0.8.1", "manylinux2014_aarch64"),
    ("nvidia-nvjitlink==13.2.86", "manylinux_2_17_aarch64"),
    ("nvidia-nvshmem-cu13==3.7.2", "manylinux_2_17_aarch64"),
    ("torchaudio==2.11.0", "manylinux_2_28_aarch64"),
    ("torchvision==0.29.1", "manylinux_2_28_x86_64"),
    ("triton==3.8.0", "manylinux_2_27_aarch64"),
    ("xformers==0.0.35", "manylinux_2_28_x86_64"),
];

/// Files on which cuobjdump itself stops, after part of its answer: it reads no fatbin that
/// CUDA 12.1 compressed.
const STOPS_AT: [&str; 1] = ["bitsandbytes/libbitsandbytes_cuda121.so"];

type Counts = BTreeMap<String, usize>;

fn run(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn unpack(content: &mut impl Source, to: &Path) {
    wheels::unpack(content, to);
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(to, mode).unwrap();
}

fn cuobjdump(dir: &Path) -> PathBuf {
    let wheel = FileSource::open(&download(CUOBJDUMP, None)).unwrap();
    let archive = Archive::read("cuobjdump", &mut wheel.clone()).unwrap();
    let program = (archive.members.iter())
        .find(|m| m.name.ends_with("/bin/cuobjdump"))
        .unwrap();
    let to = dir.join("cuobjdump");
    unpack(&mut archive.open(program, wheel).unwrap(), &to);
    to
}

/// Entries by kind and SM of `cuobjdump -all`.
fn judged_code(listing: &str) -> Counts {
    let mut counts = Counts::new();
    let mut kind = "";
    for line in listing.lines() {
        if let Some(rest) = line.strip_prefix("Fatbin ") {
            kind = rest.split(' ').next().unwrap();
        } else if let Some(sm) = line.strip_prefix("arch = ") {
            *counts.entry(format!("{kind} {sm}")).or_default() += 1;
        }
    }
    counts
}

fn found_code(object: &Object, source: &mut impl Source) -> Counts {
    let mut counts = Counts::new();
    for entry in fatbin::entries(object, source) {
        let entry = entry.unwrap();
        let kind = match entry.kind {
            CodeKind::Sass => "elf",
            CodeKind::Ptx => "ptx",
            CodeKind::Nvvm => "nvvm",
            CodeKind::Other(_) => "other",
        };
        let key = format!("{kind} sm_{}", entry.sm.digits());
        *counts.entry(key).or_default() += 1;
    }
    counts
}

fn check_code(path: &str, file: &Path, judge: &Path, found: &Counts) {
    let output = run(Command::new(judge).arg("-all").arg(file));
    let judged = judged_code(&text(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    if STOPS_AT.contains(&path) {
        assert!(stderr.contains("Invalid ELF"), "{path}: {stderr}");
        let (key, count) = judged.iter().next().unwrap();
        assert!(found[key] > *count, "{path}: {found:?} {judged:?}");
    } else {
        let none = stderr.contains("does not contain device code");
        assert!(output.status.success() || none, "{path}: {stderr}");
        assert_eq!(*found, judged, "{path}");
    }
}

/// Values in brackets of readelf's lines with a tag.
fn tagged(listing: &str, tag: &str) -> Vec<String> {
    listing
        .lines()
        .filter(|l| l.contains(tag))
        .map(|l| l[l.find('[').unwrap() + 1..l.rfind(']').unwrap()].to_owned())
        .collect()
}

fn joined(path: &Option<SearchPath>) -> Vec<String> {
    path.iter().map(|p| p.directories().join(":")).collect()
}

fn check_loading(path: &str, file: &Path, object: &Object) {
    let listing = text(&run(Command::new("readelf").arg("-dVW").arg(file)));
    assert_eq!(object.needed, tagged(&listing, "(NEEDED)"), "{path}");
    let soname: Vec<String> = object.soname.iter().cloned().collect();
    assert_eq!(soname, tagged(&listing, "(SONAME)"), "{path}");
    assert_eq!(joined(&object.rpath), tagged(&listing, "(RPATH)"), "{path}");
    assert_eq!(
        joined(&object.runpath),
        tagged(&listing, "(RUNPATH)"),
        "{path}"
    );

    let needs = listing.split("Version needs section").nth(1).unwrap_or("");
    let newest = |prefix: &str| {
        needs
            .split("Name: ")
            .filter_map(|n| Version::parse(n.split_whitespace().next()?.strip_prefix(prefix)?))
            .max()
    };
    let floors = object.floors();
    assert_eq!(floors.glibc, newest("GLIBC_"), "{path}");
    assert_eq!(floors.glibcxx, newest("GLIBCXX_"), "{path}");
    assert_eq!(floors.cxxabi, newest("CXXABI_"), "{path}");
}

fn check_symbols(path: &str, file: &Path, object: &Object, source: &mut impl Source) {
    let mut found = BTreeSet::new();
    let add = |s: elf::Symbol<'_>| {
        let name = String::from_utf8(s.name.to_vec()).unwrap();
        found.insert((name, s.linkage == Linkage::Exported));
    };
    object.symbols(source, add).unwrap();

    let listing = text(&run(Command::new("readelf")
        .arg("--dyn-syms")
        .arg("-W")
        .arg(file)));
    let mut judged = BTreeSet::new();
    for line in listing.lines() {
        // So readelf shows a unique symbol where the header does not say that this is GNU's.
        let line = line.replace("<OS specific>: 10", "UNIQUE");
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, _, bind, visibility, section, name, ..] = fields[..] else {
            continue;
        };
        let linked = ["GLOBAL", "WEAK", "UNIQUE"].contains(&bind);
        let shown = section == "UND" || ["DEFAULT", "PROTECTED"].contains(&visibility);
        if linked && shown {
            let name = name.split('@').next().unwrap().to_owned();
            judged.insert((name, section != "UND"));
        }
    }
    let differ: Vec<_> = found.symmetric_difference(&judged).collect();
    assert!(differ.is_empty(), "{path}: {differ:?}");
}

#[test]
fn every_object_is_as_its_judges_say() {
    let dir = tempfile::tempdir().unwrap();
    let judge = cuobjdump(dir.path());
    let mut objects = 0;
    for (requirement, platform) in WHEELS {
        let wheel = FileSource::open(&download(requirement, Some(platform))).unwrap();
        let archive = Archive::read(requirement, &mut wheel.clone()).unwrap();
        for member in &archive.members {
            let mut content = archive.open(member, wheel.clone()).unwrap();
            if member.size < 64 || array(&mut content, 0).unwrap() != elf::MAGIC {
                continue;
            }
            let object = Object::read(&member.name, &mut content, &fatbin::SECTIONS).unwrap();
            let code = found_code(&object, &mut content);
            let file = dir.path().join("object");
            unpack(&mut content, &file);
            check_loading(&member.name, &file, &object);
            check_symbols(&member.name, &file, &object, &mut content);
            check_code(&member.name, &file, &judge, &code);
            objects += 1;
        }
    }
    assert!(objects > 40, "{objects}");
}
