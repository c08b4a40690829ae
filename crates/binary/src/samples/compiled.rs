//! Shared objects for tests, by the C compiler: what they need, export and carry is exact.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A shared object without a C runtime.
#[derive(Default)]
pub struct Built<'a> {
    /// SONAME.
    pub soname: Option<&'a str>,
    /// NEEDED entries, in order; each is made as an empty object to link against.
    pub needs: &'a [&'a str],
    /// Flags of the linker that set RPATH or RUNPATH.
    pub search: &'a [&'a str],
    /// Functions that it defines.
    pub exports: &'a [&'a str],
    /// Functions that it calls and lacks.
    pub asks: &'a [&'a str],
    /// SMs of SASS and of PTX, by module.
    pub code: &'a [(&'a [u32], &'a [u32])],
    /// Text that is in it.
    pub text: &'a str,
    /// Version that it defines.
    pub defines: Option<&'a str>,
    /// Version of the symbol that it asks of libc.so.6.
    pub glibc: Option<&'a str>,
    /// Bytes before and after all that is read of it.
    pub between: u64,
    /// Bytes between its tables and its end.
    pub after: u64,
    /// Bytes after all that a loader maps, as of symbols that were not stripped.
    pub unmapped: u64,
}

/// Returns the linker's flag for an RPATH.
pub fn rpath(path: &str) -> String {
    format!("-Wl,--disable-new-dtags,-rpath,{path}")
}

/// Returns the linker's flag for a RUNPATH.
pub fn runpath(path: &str) -> String {
    format!("-Wl,--enable-new-dtags,-rpath,{path}")
}

fn cc(arguments: &[String]) {
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed"])
        .args(arguments)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

impl Built<'_> {
    /// Compiles and links the object; needs `cc`.
    ///
    /// # Panics
    ///
    /// Where a file cannot be written, or the compiler is missing or fails.
    pub fn write(&self, to: &Path) {
        let work = tempfile::tempdir().unwrap();
        let at = |name: &str| work.path().join(name);
        let shown = |path: &Path| path.display().to_string();
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(at("fatbin"), fatbin(self.code)).unwrap();
        std::fs::write(at("x.c"), self.source(&at("fatbin"))).unwrap();
        let mut arguments = vec!["-o".to_owned(), shown(to), shown(&at("x.c"))];
        arguments.extend(self.soname.map(|s| format!("-Wl,-soname,{s}")));
        arguments.extend(self.search.iter().map(|s| (*s).to_owned()));
        arguments.extend(self.needs.iter().map(|n| shown(&stub(work.path(), n))));
        if let Some(version) = self.defines {
            std::fs::write(at("own"), format!("{version} {{ global: text; }};\n")).unwrap();
            arguments.push(format!("-Wl,--version-script={}", shown(&at("own"))));
        }
        if let Some(version) = self.glibc {
            std::fs::write(at("map"), format!("{version} {{ global: floor; }};\n")).unwrap();
            std::fs::write(at("libc.c"), "void floor(void) {}\n").unwrap();
            let script = format!(
                "-Wl,-soname,libc.so.6,--version-script={}",
                shown(&at("map"))
            );
            let libc = shown(&at("libc.so.6"));
            cc(&["-o".into(), libc.clone(), shown(&at("libc.c")), script]);
            arguments.push(libc);
        }
        if self.between > 0 {
            std::fs::write(at("script"), IN_THE_MIDDLE).unwrap();
            arguments.push(format!("-Wl,-T,{}", shown(&at("script"))));
        }
        cc(&arguments);
    }

    fn source(&self, fatbin: &Path) -> String {
        let mut source = format!("const char text[] = \"{}\";\n", self.text);
        for (n, name) in self.exports.iter().enumerate() {
            source += &format!("void e{n}(void) __asm__(\"{name}\"); void e{n}(void) {{}}\n");
        }
        let floor = self.glibc.map(|_| "floor");
        for (n, name) in self.asks.iter().copied().chain(floor).enumerate() {
            source +=
                &format!("void a{n}(void) __asm__(\"{name}\"); void u{n}(void) {{ a{n}(); }}\n");
        }
        if !self.code.is_empty() {
            source += &format!(
                "__asm__(\".section .nv_fatbin,\\\"a\\\"\\n.incbin \\\"{}\\\"\\n.previous\\n\");\n",
                fatbin.display()
            );
        }
        let pads = [
            ("before", "a", self.between),
            ("after", "a", self.between.max(self.after)),
            ("unmapped", "", self.unmapped),
        ];
        for (name, flags, size) in pads.into_iter().filter(|(_, _, size)| *size > 0) {
            source += &format!(
                "__asm__(\".section .{name},\\\"{flags}\\\"\\n.zero {size}\\n.previous\\n\");\n"
            );
        }
        source
    }
}

/// A layout of the linker's.
const IN_THE_MIDDLE: &str = "SECTIONS {
  . = SIZEOF_HEADERS;
  .before : { *(.before) }
  .dynsym : { *(.dynsym) } .dynstr : { *(.dynstr) }
  .hash : { *(.hash) } .gnu.hash : { *(.gnu.hash) }
  .gnu.version : { *(.gnu.version) } .gnu.version_d : { *(.gnu.version_d) }
  .gnu.version_r : { *(.gnu.version_r) } .rela.dyn : { *(.rela.*) }
  .text : { *(.text*) } .plt : { *(.plt*) } .rodata : { *(.rodata*) }
  .nv_fatbin : { *(.nv_fatbin) }
  . = ALIGN(0x1000);
  .dynamic : { *(.dynamic) } .got : { *(.got*) } .data : { *(.data*) *(.bss*) }
  . = ALIGN(0x1000);
  .after : { *(.after) }
  /DISCARD/ : { *(.note.gnu.property) *(.comment) *(.eh_frame*) }
}
";

fn stub(work: &Path, soname: &str) -> PathBuf {
    let (source, to) = (work.join("stub.c"), work.join(soname));
    std::fs::write(&source, "").unwrap();
    let shown = |path: &Path| path.display().to_string();
    cc(&[
        "-o".into(),
        shown(&to),
        shown(&source),
        format!("-Wl,-soname,{soname}"),
    ]);
    to
}

/// A container for each module, an entry of 8 bytes for each SM.
fn fatbin(modules: &[(&[u32], &[u32])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (sass, ptx) in modules {
        let entries = sass
            .iter()
            .map(|sm| (2u16, *sm))
            .chain(ptx.iter().map(|sm| (1, *sm)));
        let body: Vec<u8> = entries.flat_map(|(kind, sm)| entry(kind, sm)).collect();
        out.extend_from_slice(b"\x50\xed\x55\xba\x01\x00\x10\x00");
        out.extend_from_slice(&(body.len() as u64).to_le_bytes());
        out.extend(body);
    }
    out
}

fn entry(kind: u16, sm: u32) -> Vec<u8> {
    let mut entry = vec![0; 72];
    let mut put = |at: usize, bytes: &[u8]| entry[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &kind.to_le_bytes());
    put(2, &0x0101u16.to_le_bytes());
    put(4, &64u32.to_le_bytes());
    put(8, &8u64.to_le_bytes());
    // PTX 8.7, which CUDA 12.8 writes.
    put(24, &7u16.to_le_bytes());
    put(26, &8u16.to_le_bytes());
    put(28, &sm.to_le_bytes());
    put(40, &0x11u64.to_le_bytes());
    entry
}
