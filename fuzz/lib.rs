//! The modules of stackforge that read foreign bytes, under its name and nothing else of it: a
//! change is compiled for the fuzzers in seconds, and their coverage counts the readers alone.

#[path = "../src/elf/mod.rs"]
pub mod elf;
#[path = "../src/fatbin/mod.rs"]
pub mod fatbin;
#[path = "../src/oci/mod.rs"]
pub mod oci;
#[path = "../src/source/mod.rs"]
pub mod source;
#[path = "../src/tar/mod.rs"]
pub mod tar;
#[path = "../src/wheel.rs"]
pub mod wheel;
#[path = "../src/zip/mod.rs"]
pub mod zip;

#[allow(unused_imports, reason = "its macros serve modules that are not here")]
#[path = "../src/spec"]
pub mod spec {
    pub mod nouns;
    pub use nouns::{Platform, PythonVersion, Sm};
}
