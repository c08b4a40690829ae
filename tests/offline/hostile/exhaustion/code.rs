//! Fatbins, whole and in a stream.

use stackforge_binary::fatbin::{self, Scan};
use stackforge_binary::source::Sparse;

use super::{Counted, container, entry};
use crate::hostile::peak;

#[test]
fn a_million_containers() {
    let code = container(&entry()).repeat(1 << 20);
    let mut source = Counted::new(&code);
    let held = peak(|| {
        let entries = fatbin::bare_entries("x", &mut source).map(Result::unwrap);
        assert_eq!(entries.count(), 1 << 20);
    });
    assert!(source.read <= 2 * code.len() as u64);
    assert!(held < 1 << 16, "{held} bytes");
}

/// An object of 128 MiB that is nothing but headers, of which a stream keeps no more than some.
#[test]
fn headers_without_end_in_a_stream() {
    let piece = container(&entry()).repeat(1 << 14);
    let count = (128 << 20) / piece.len();
    let held = peak(|| {
        let mut kept = Sparse::new((count * piece.len()) as u64);
        let mut scan = Scan::default();
        for _ in 0..count {
            scan.pass(&piece, &mut kept);
        }
        let entries = fatbin::bare_entries("x", kept);
        assert!(entries.last().is_some_and(|last| last.is_err()));
    });
    // As a vector grows to 32 MiB.
    assert!(held < 100 << 20, "{held} bytes");
}

#[test]
fn empty_containers_apart() {
    for padding in [0, 4, 8, 100] {
        let mut one = container(b"");
        one.resize(one.len() + padding, 0);
        let code = one.repeat(1 << 14);
        let mut source = Counted::new(&code);
        assert_eq!(fatbin::bare_entries("x", &mut source).count(), 0);
        let most = 5 * code.len() as u64;
        assert!(source.read <= most, "{padding}: {} bytes", source.read);
    }
}
