//! Tables of contents that are small and list much.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use stackforge_distribute::pull::delta::toc::Toc;

use crate::hostile::peak;

/// The end of a layer whose table has this many entries, each with these fields.
fn table(entries: usize, fields: &str) -> Vec<u8> {
    let mut json = br#"{"version":1,"entries":["#.to_vec();
    for number in 0..entries {
        let comma = if number > 0 { "," } else { "" };
        write!(
            json,
            "{comma}{{{}}}",
            fields.replace("NUMBER", &(number * 2 + 2).to_string())
        )
        .unwrap();
    }
    json.extend(b"]}");
    let mut header = tar::Header::new_gnu();
    header.set_size(json.len() as u64);
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    tar.append_data(&mut header, "stargz.index.json", &json[..])
        .unwrap();
    tar.into_inner().unwrap().finish().unwrap()
}

const FILE: &str = r#""name":"a","type":"reg","size":1,"offset":NUMBER,"digest":"x""#;

#[test]
fn a_table_of_contents_holds_what_its_entries_need() {
    let end = 1 << 40;
    assert_eq!(Toc::read(&table(3, FILE), end).unwrap().chunks.len(), 3);
    for (entries, fields) in [
        (2_000_000, r#""name":"","type":"dir""#),
        (2_000_000, FILE),
        (
            300_000,
            r#""name":"","type":"dir","a":{"b":[[],[],[],[],[],[],[],[],[],[]]}"#,
        ),
        (
            1,
            &format!(r#""name":"","type":"dir","a":[{}0]"#, "[],".repeat(8 << 20)),
        ),
    ] {
        let small = table(entries, fields);
        let mut read = None;
        let held = peak(|| read = Toc::read(&small, end));
        assert!(read.is_none());
        assert!(held < 96 << 20, "{held} bytes for {} entries", entries);
    }
}
