use proptest::prelude::*;

use super::*;
use stackforge_binary::samples::archive::{Build, File as Packed};
use stackforge_binary::samples::compiled::Built;

type Module = (&'static [u32], &'static [u32]);

fn built(code: &[Module]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.so");
    Built {
        soname: Some("libx.so.1"),
        exports: &["here"],
        code,
        text: "as it was",
        ..Built::default()
    }
    .write(&path);
    std::fs::read(path).unwrap()
}

fn code_of(bytes: &[u8]) -> Vec<Entry> {
    Found::read("x.so", &mut &bytes[..]).ok().unwrap().code
}

/// Returns the SMs of machine code and of PTX, by container.
fn shown(bytes: &[u8]) -> Vec<String> {
    let all = code_of(bytes);
    let containers = all.chunk_by(|a, b| a.container == b.container);
    let text = |entry: &Entry| {
        let kind = match entry.kind {
            fatbin::CodeKind::Sass => "sm",
            _ => "ptx",
        };
        format!("{kind}_{}", entry.sm.digits())
    };
    containers
        .map(|own| own.iter().map(text).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Returns the changed members and the number of removed bytes.
fn pruned(members: Vec<Packed>, sms: &[&str], threads: usize) -> (BTreeMap<String, Vec<u8>>, u64) {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let sms: Vec<Sm> = sms.iter().map(|sm| sm.parse().unwrap()).collect();
    let pruner = Pruner {
        catalog: &catalog,
        sms: &sms,
        threads,
        scratch: &tempfile::tempfile,
    };
    let wheel = Build::of(members).bytes();
    let pruned = pruner.wheel("x", &&wheel[..]).unwrap();
    let read = |(name, changed): (String, Changed)| {
        let mut bytes = Vec::new();
        changed.write_to(&mut bytes).unwrap();
        (name, bytes)
    };
    (
        pruned.members.into_iter().map(read).collect(),
        pruned.removed,
    )
}

fn one(code: &[Module], sms: &[&str]) -> Option<Vec<u8>> {
    let old = built(code);
    let (mut members, removed) = pruned(vec![Packed::deflated("x.so", &old)], sms, 1);
    let new = members.remove("x.so")?;
    assert_eq!(new.len(), old.len());
    assert!(removed > 0);
    Some(new)
}

const FOUR: Module = (&[75, 80, 86, 90], &[90]);

#[test]
fn what_the_gpus_run_stays() {
    for (sms, left) in [
        (&["9.0"][..], "sm_90"),
        (&["8.9"], "sm_86"),
        (&["8.0"], "sm_80"),
        (&["8.0", "9.0"], "sm_80 sm_90"),
        (&["12.0"], "ptx_90"),
        (&["7.5", "12.0"], "sm_75 ptx_90"),
        // From CUDA 13.2, Orin runs code of its family. An older driver would have to compile PTX, of which
        // there is none.
        (&["8.7"], "sm_86"),
    ] {
        let new = one(&[FOUR], sms).unwrap();
        assert_eq!(shown(&new), [left], "{sms:?}");
    }
}

#[test]
fn everything_else_stays_where_it_was() {
    let code = [FOUR, (&[80, 90], &[]), FOUR];
    let (old, new) = (built(&code), one(&code, &["9.0"]).unwrap());
    assert_eq!(shown(&new), ["sm_90", "sm_90", "sm_90"]);
    let (before, after) = (code_of(&old), code_of(&new));
    let kept = before
        .iter()
        .filter(|e| e.sm.digits() == "90" && e.kind == fatbin::CodeKind::Sass);
    for (was, is) in kept.zip(&after) {
        assert_eq!(was.container, is.container);
        let bytes =
            |of: &[u8], e: &Entry| of[e.offset as usize..(e.offset + e.len) as usize].to_vec();
        assert_eq!(bytes(&old, was), bytes(&new, is));
    }
    let (first, last) = (before[0].container as usize, &before[before.len() - 1]);
    let end = (last.offset + last.len) as usize;
    assert_eq!(old[..first], new[..first]);
    assert_eq!(old[end..], new[end..]);
}

#[test]
fn an_audit_says_the_same_afterwards() {
    // Most modules do not run on Hopper; if they were emptied, the rest would look like all of the code.
    let other: Module = (&[80, 100], &[]);
    let mostly = [other, other, other, other, (&[80, 90, 100], &[])];
    let left = one(&mostly, &["9.0"]).unwrap();
    assert_eq!(shown(&left)[3..], ["sm_80 sm_100", "sm_90"]);
    // Removing a kernel for a newer GPU harms nobody.
    let left = one(&[FOUR, FOUR, (&[100], &[])], &["9.0"]).unwrap();
    assert_eq!(shown(&left), ["sm_90", "sm_90"]);
    // A kernel for older GPUs in general stays: the audit warns of it.
    let left = one(&[FOUR, FOUR, (&[75, 80], &[])], &["9.0"]).unwrap();
    assert_eq!(shown(&left), ["sm_90", "sm_90", "sm_75 sm_80"]);
}

#[test]
fn what_is_of_no_use_stays_as_it_is() {
    assert!(one(&[(&[100], &[]), (&[100, 120], &[])], &["9.0"]).is_none());
    assert!(one(&[(&[90], &[])], &["9.0"]).is_none());
    let old = built(&[FOUR]);
    let mut damaged = old.clone();
    let at = code_of(&old)[0].offset as usize;
    damaged[at + 2] = 9;
    let (members, _) = pruned(
        vec![
            Packed::new("damaged.so", &damaged),
            Packed::deflated("cut.so", &old[..old.len() / 2]),
            Packed::deflated("a.py", b"import b\n"),
            Packed::new("empty", b""),
        ],
        &["9.0"],
        3,
    );
    assert!(members.is_empty());
}

#[test]
fn a_member_that_is_damaged_is_not_written_again() {
    let catalog = stackforge_stack::catalog::load(None).unwrap();
    let pruner = Pruner {
        catalog: &catalog,
        sms: &["9.0".parse().unwrap()],
        threads: 1,
        scratch: &tempfile::tempfile,
    };
    let wheel = |mut member: Packed| {
        member.crc32 ^= 1;
        Build::of(vec![member]).bytes()
    };
    let stored = wheel(Packed::new("x.so", &built(&[FOUR])));
    let error = pruner.wheel("x", &&stored[..]).unwrap_err();
    assert!(matches!(error, PruneError::Member { .. }), "{error}");
    // Damage in this member is found when the layer is written.
    let deflated = wheel(Packed::deflated("x.so", &built(&[FOUR])));
    let left = pruner.wheel("x", &&deflated[..]).unwrap();
    assert!(left.members.is_empty());
}

#[test]
fn a_stored_member_is_pruned_as_a_deflated_one() {
    let old = built(&[FOUR, FOUR]);
    let both = vec![Packed::new("a.so", &old), Packed::deflated("b.so", &old)];
    let (members, _) = pruned(both, &["9.0"], 2);
    assert_eq!(members["a.so"], members["b.so"]);
}

/// Returns a library with symbols and debug information that nothing loads.
fn with_tables() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let own = |n| {
        format!(
            "static int local_function_{n}(void) {{ return {n}; }}\nint call_{n}(void) {{ return local_function_{n}(); }}\n"
        )
    };
    let source: String = (0..3000).map(own).collect();
    std::fs::write(at("x.c"), source).unwrap();
    let arguments = [
        "-shared",
        "-fPIC",
        "-g",
        "-O0",
        "-o",
        &at("x.so"),
        &at("x.c"),
    ];
    let compiled = std::process::Command::new("cc").args(arguments).status();
    assert!(compiled.unwrap().success());
    std::fs::read(at("x.so")).unwrap()
}

#[test]
fn what_no_loader_maps_is_left_out() {
    let old = with_tables();
    let tables = |bytes: &[u8]| unmapped("x.so", bytes).unwrap();
    let length: u64 = tables(&old)
        .iter()
        .map(|t| t.content.end - t.content.start)
        .sum();
    assert!(length > 500_000 && tables(&old).len() > 4, "{length}");
    let (members, removed) = pruned(vec![Packed::deflated("x.so", &old)], &["9.0"], 1);
    let new = &members["x.so"];
    assert_eq!((new.len(), tables(new)), (old.len(), vec![]));
    assert!(removed >= length);
    assert!(memchr::memmem::find(new, b"local_function_7").is_none());
    // Everything else is unchanged, including the dynamic symbols.
    let mut same = old.clone();
    for table in tables(&old) {
        same[table.content.start as usize..table.content.end as usize].fill(0);
        same[table.kind.start as usize..table.kind.end as usize].fill(0);
    }
    assert!(same == *new);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.so");
    std::fs::write(&path, new).unwrap();
    let script = "import ctypes, sys; assert ctypes.CDLL(sys.argv[1]).call_2999() == 2999";
    let python = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .status();
    assert!(python.unwrap().success());
    // A few symbols are not worth the change.
    assert!(
        pruned(vec![Packed::new("x.so", &built(&[]))], &["9.0"], 1)
            .0
            .is_empty()
    );
}

proptest! {
    /// Whatever a section table contains, the parts that a loader maps stay.
    #[test]
    fn any_damage_to_sections_leaves_what_is_mapped(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        static OBJECT: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(with_tables);
        let mut old = OBJECT.clone();
        let at = u64::from_le_bytes(*old[40..].first_chunk().unwrap()) as usize;
        for (place, value) in edits {
            let place = at + place.index(old.len() - at);
            old[place] = value;
        }
        let (members, _) = pruned(vec![Packed::deflated("x.so", &old)], &["9.0"], 1);
        if let Some(new) = members.get("x.so") {
            // The first table that no loader maps is after all parts that one maps.
            let first = unmapped("x.so", &OBJECT[..]).unwrap().iter().map(|t| t.content.start).min();
            let mapped = 64..first.unwrap() as usize - 4096;
            prop_assert!(new[mapped.clone()] == old[mapped]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A driver chooses the same code before and after pruning.
    #[test]
    fn no_gpu_that_is_meant_loses_anything(
        code in prop::collection::vec((
            prop::sample::subsequence(vec![75u32, 80, 86, 87, 89, 90, 100, 110, 120], 0..5),
            prop::sample::subsequence(vec![75u32, 80, 90, 120], 0..3),
        ), 1..6),
        sms in prop::sample::subsequence(vec!["7.5", "8.0", "8.6", "8.7", "9.0", "11.0", "12.1"], 1..4),
    ) {
        let code: Vec<(Vec<u32>, Vec<u32>)> = code;
        let code: Vec<(&[u32], &[u32])> = code.iter().map(|(s, p)| (&s[..], &p[..])).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.so");
        Built { code: &code, ..Built::default() }.write(&path);
        let old = std::fs::read(path).unwrap();
        let (members, _) = pruned(vec![Packed::deflated("x.so", &old)], &sms, 1);
        let Some(new) = members.get("x.so") else { return Ok(()) };
        let best = |bytes: &[u8], container: u64, device: Sm, aligned: bool| {
            let own: Vec<Entry> = code_of(bytes).into_iter().filter(|e| e.container == container).collect();
            let of = |kind| own.iter().filter(move |e| e.kind == kind).map(|e| e.sm).collect::<Vec<_>>();
            stackforge_gpu::coverage(&of(fatbin::CodeKind::Sass), &of(fatbin::CodeKind::Ptx), device, aligned)
        };
        for entry in code_of(&old) {
            for sm in &sms {
                for aligned in [false, true] {
                    let device: Sm = sm.parse().unwrap();
                    prop_assert_eq!(
                        best(&old, entry.container, device, aligned),
                        best(new, entry.container, device, aligned)
                    );
                }
            }
        }
        for sm in &sms {
            let catalog = stackforge_stack::catalog::load(None).unwrap();
            let code = |bytes: &[u8]| Code::from_entries(code_of(bytes).into_iter().map(Ok)).unwrap();
            let verdicts = |bytes| verdicts_for_sm(&catalog, "x.so", &code(bytes), sm.parse().unwrap());
            prop_assert_eq!(verdicts(&old), verdicts(new));
        }
    }
}
