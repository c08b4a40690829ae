//! Reads the Python files of a source distribution.

use super::modules::Files;
use super::wheel::LONGEST_PYTHON;
use flate2::bufread::MultiGzDecoder;
use stackforge_binary::tar;
use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::path::Path;

/// Most bytes that are read of an archive, uncompressed.
const MOST: u64 = 2 << 30;

/// Reads an archive. Modules are at its top, or below `src`.
pub(super) fn read(name: &str, path: &Path) -> io::Result<Files> {
    let mut out = Files::default();
    if !name.ends_with(".tar.gz") && !name.ends_with(".tgz") {
        return Ok(out);
    }
    let gz = MultiGzDecoder::new(BufReader::new(File::open(path)?));
    let mut reader = tar::Reader::new(gz.take(MOST));
    while let Some(mut entry) = reader.next().map_err(io::Error::other)? {
        let path = entry.header.path.clone();
        let Some((_, below)) = path.split_once('/') else {
            continue;
        };
        let below = below.strip_prefix("src/").unwrap_or(below);
        if below.ends_with(".py") && below != "setup.py" && entry.header.size <= LONGEST_PYTHON {
            let mut text = Vec::new();
            entry.read_to_end(&mut text)?;
            out.name(below);
            out.add(below, &String::from_utf8_lossy(&text));
        }
    }
    Ok(out)
}
