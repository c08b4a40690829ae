use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::samples::object::Build;

fn read(bytes: &[u8]) -> Result<Object, ElfError> {
    Object::read("x.so", &mut &bytes[..], &[".nv_fatbin", "other"])
}

fn problem(bytes: &[u8]) -> Problem {
    read(bytes).unwrap_err().problem
}

fn symbols(bytes: &[u8]) -> Vec<(String, Linkage)> {
    let mut names = Vec::new();
    read(bytes)
        .unwrap()
        .symbols(&mut &bytes[..], |s| {
            names.push((String::from_utf8(s.name.to_vec()).unwrap(), s.linkage));
        })
        .unwrap();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}

#[test]
fn reads_what_an_object_says() {
    let build = Build {
        sections: vec![(".nv_fatbin", vec![1; 24]), (".text", vec![2; 9])],
        ..Build::default()
    };
    let bytes = build.bytes();
    let object = read(&bytes).unwrap();
    assert_eq!(
        (object.machine, object.kind),
        (Machine::X86_64, ObjectType::Shared)
    );
    assert_eq!(object.soname.as_deref(), Some("libx.so.1"));
    assert_eq!(object.needed, ["libc10.so", "libc.so.6"]);
    assert_eq!(object.rpath, None);
    let runpath = object.runpath.clone().unwrap();
    assert_eq!(runpath.directories(), ["$ORIGIN", "/usr/lib"]);
    let resolved: Vec<String> = runpath.resolved("/opt/x").collect();
    assert_eq!(resolved, ["/opt/x", "/usr/lib"]);
    let floors = object.floors();
    assert_eq!(floors.glibc, Version::parse("2.17"));
    assert_eq!(floors.glibcxx, Version::parse("3.4.9"));
    assert_eq!(floors.cxxabi.unwrap().to_string(), "1.3.11");
    assert_eq!(object.versions[2].version, "GLIBC_PRIVATE");
    assert_eq!(object.versions[3].file, "libstdc++.so.6");
    assert_eq!(object.sections.len(), 1);
    let range = object.sections[0].range.clone();
    assert_eq!(bytes[range.start as usize..range.end as usize], [1; 24]);
    assert_eq!(
        symbols(&bytes),
        [
            ("_ZN2at3catEv".into(), Linkage::Exported),
            ("_ZN3c105ErrorD1Ev".into(), Linkage::Undefined)
        ]
    );
}

#[test]
fn floors_are_what_the_loader_insists_on() {
    let need = |version: &str, weak| VersionNeed {
        file: "libc.so.6".into(),
        version: version.into(),
        weak,
    };
    let floor = |needs: &[VersionNeed]| Floors::of(needs).glibc.map(|v| v.to_string());
    let old = need("GLIBC_2.4", false);
    assert_eq!(floor(&[]), None);
    assert_eq!(
        floor(&[old.clone(), need("GLIBC_2.38", true)]).as_deref(),
        Some("2.4")
    );
    let packed = need("GLIBC_ABI_DT_RELR", false);
    assert_eq!(
        floor(&[old.clone(), packed.clone()]).as_deref(),
        Some("2.36")
    );
    assert_eq!(
        floor(&[packed, need("GLIBC_2.39", false)]).as_deref(),
        Some("2.39")
    );
}

/// Links a library, with the flags that decide how its symbols are counted.
fn linked(flags: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("x.c");
    let text = "#include <stdio.h>\nextern int asked(void); extern int maybe(void) __attribute__((weak));\n__attribute__((visibility(\"hidden\"))) int hidden(void) { return 1; }\nstatic int local(void) { return 2; }\nint offered(void) { puts(\"x\"); return asked() + hidden() + local() + (maybe ? maybe() : 0); }\n";
    std::fs::write(&source, text).unwrap();
    let out = dir.path().join("libx.so");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libx.so.2"])
        .args(["-Wl,--enable-new-dtags,-rpath,$ORIGIN/../lib"])
        .args(flags)
        .arg("-o")
        .args([&out, &source])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::read(out).unwrap()
}

#[test]
fn reads_what_the_linker_wrote() {
    for flags in [["-Wl,--hash-style=gnu"], ["-Wl,--hash-style=sysv"]] {
        let mut bytes = linked(&flags);
        let object = read(&bytes).unwrap();
        assert_eq!(object.soname.as_deref(), Some("libx.so.2"));
        assert_eq!(object.needed, ["libc.so.6"]);
        let runpath = object.runpath.clone().unwrap();
        assert_eq!(runpath.directories(), ["$ORIGIN/../lib"]);
        assert!(object.floors().glibc >= Version::parse("2.2.5"));

        let found = symbols(&bytes);
        let of = |name: &str| found.iter().find(|s| s.0 == name).map(|s| s.1);
        assert_eq!(of("offered"), Some(Linkage::Exported));
        assert_eq!(of("asked"), Some(Linkage::Undefined));
        assert_eq!(of("maybe"), Some(Linkage::WeakUndefined));
        assert_eq!((of("hidden"), of("local")), (None, None));

        // Without a section table, the count comes from the hash table.
        bytes[0x28..0x30].fill(0);
        assert_eq!(symbols(&bytes), found);
    }
}

#[test]
fn mentions_are_whole_identifiers() {
    let torch = ["c10", "at", "torch"];
    for yes in [
        "_ZN3c1010TensorImplD1Ev",
        "_Z16THPVariable_WrapN2at10TensorBaseE",
        "_ZNK5torch8autograd4Node4nameEv",
        "_ZTIN3c105ErrorE",
    ] {
        assert!(mentions(yes.as_bytes(), &torch), "{yes}");
    }
    for no in [
        "_ZN12attention_fwdEv",
        "_ZN4c100Ev",
        "c10",
        "",
        "_Z",
        "3c10",
        "_ZSt4cout",
    ] {
        assert!(!mentions(no.as_bytes(), &torch), "{no}");
    }
}

#[test]
fn other_classes_are_refused() {
    assert!(matches!(problem(b"PK\x03\x04"), Problem::Magic));
    assert!(matches!(problem(b""), Problem::Magic));
    let mut narrow = Build::default().bytes();
    narrow[4] = 1;
    assert!(matches!(problem(&narrow), Problem::Class));
    assert_eq!(
        read(&narrow).unwrap_err().to_string(),
        "object `x.so`, offset 0x4: it is not a 64-bit little-endian object of ELF version 1"
    );
}

#[test]
fn versions_that_go_round_are_refused() {
    let built = Build {
        versions: vec![("libc.so.6", vec![""; 200])],
        ..Build::default()
    }
    .built();
    let mut bytes = built.bytes;
    // Every entry claims that the next one starts four bytes further.
    for field in bytes[built.versions..built.strings].chunks_exact_mut(4) {
        field.copy_from_slice(&4u32.to_le_bytes());
    }
    bytes[built.versions + 2..built.versions + 4].fill(0xff);
    assert!(matches!(problem(&bytes), Problem::Cyclic(_)));
}

#[test]
fn names_must_end_and_be_text() {
    let built = Build::default().built();
    let mut endless = built.bytes.clone();
    endless[built.strings + 1..built.dynamic].fill(b'x');
    assert!(matches!(problem(&endless), Problem::Unterminated(_)));
    let mut binary = built.bytes.clone();
    binary[built.dynamic - 3] = 0xff;
    assert!(matches!(problem(&binary), Problem::Encoding(_)));
}

#[test]
fn sections_may_not_overlap() {
    let mut built = Build {
        sections: vec![(".nv_fatbin", vec![1; 64]), ("other", vec![2; 64])],
        ..Build::default()
    }
    .built();
    // The second of the two sections starts one byte early.
    built.bytes[built.section_table + 3 * 64 + 24] -= 1;
    assert!(matches!(problem(&built.bytes), Problem::Overlap(name) if name == "other"));
}

#[test]
fn tables_that_claim_more_than_there_is_are_refused() {
    let built = Build::default().built();
    let mut many = built.bytes.clone();
    // Without a count in the header, the first section's size is the count.
    many[0x3c..0x3e].fill(0);
    many[built.section_table + 32..][..8].fill(0xff);
    assert!(matches!(problem(&many), Problem::TooMany { .. }));
    many[built.section_table + 32..][..8].copy_from_slice(&1000u64.to_le_bytes());
    assert!(matches!(problem(&many), Problem::Read(_)));
    let mut names = built.bytes.clone();
    let at = names.len() - 64 + 32;
    names[at..at + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
    assert!(matches!(problem(&names), Problem::TooLarge { .. }));
}

/// Reads everything in the object.
fn exhaust(bytes: &[u8]) {
    if let Ok(object) = read(bytes) {
        let _ = object.symbols(&mut &bytes[..], |s| {
            mentions(s.name, &["c10"]);
        });
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        exhaust(&bytes);
    }

    #[test]
    fn any_damage(edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = Build::default().bytes();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exhaust(&bytes);
    }

    #[test]
    fn any_truncation(len in any::<prop::sample::Index>()) {
        let bytes = Build::default().bytes();
        let len = len.index(bytes.len());
        prop_assert!(read(&bytes[..len]).is_err());
    }
}
