//! Files that `init --from` reads: each kind, in memory, and the stack that comes of it.

use stackforge_device::Device;
use stackforge_device::convert::{self, Disk, Found, Known};
use stackforge_device::starter::{self, Question};
use stackforge_resolve::{Loosened, Published};
use stackforge_stack::catalog::{self, Catalog};
use std::io;
use std::path::Path;
use std::sync::LazyLock;

static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::load(None).expect("it is embedded"));
static CATALOG: LazyLock<Catalog> = LazyLock::new(|| catalog::load(None).expect("it is embedded"));

/// Every file that is asked for has the same bytes.
struct Memory<'a>(&'a [u8]);

impl Disk for Memory<'_> {
    fn read(&self, _: &Path, most: u64) -> io::Result<Vec<u8>> {
        Ok(self.0[..self.0.len().min(most as usize)].to_vec())
    }

    fn is_file(&self, path: &Path) -> bool {
        path.extension().is_some()
    }

    fn list(&self, _: &Path) -> Vec<String> {
        Vec::new()
    }
}

/// The first byte says what kind of file the others are.
pub(super) fn foreign(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let name = match kind % 4 {
        0 => "requirements.txt",
        1 => "Dockerfile",
        2 => "pyproject.toml",
        _ => "environment.yml",
    };
    let Ok(found) = convert::read(Path::new(name), &KNOWN, &Memory(bytes)) else {
        return;
    };
    stack(&found);
}

fn stack(found: &Found) {
    let question = Question {
        catalog: &CATALOG,
        known: &KNOWN,
        found,
        published: &Published::default(),
        loosened: &Loosened::new(),
        gpu: Some("h100"),
        base: None,
        device: &|| Device::read(Path::new("/nowhere")),
        name: "s",
        folder: Path::new("stacks"),
    };
    // What is written is a stack, or larger than one can be, or there is nothing to write.
    if let Err(refused) = starter::of_file(&question) {
        let codes = ["SF0006", "SF0016", "SF0043"];
        let code = refused.code.to_string();
        assert!(
            codes.contains(&code.as_str()),
            "{code}: {}",
            refused.message
        );
    }
}
