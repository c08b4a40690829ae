//! Small objects that are made byte by byte, so that each field can be wrong on its own.

/// Builds an object. One loaded segment maps the whole object at address 0, so addresses are offsets.
#[derive(Clone)]
pub struct Build {
    /// `e_machine`; 62 is x86-64.
    pub machine: u16,
    /// `EI_ABIVERSION`.
    pub abi_version: u8,
    /// `e_flags`.
    pub flags: u32,
    /// SONAME. An empty one is left out.
    pub soname: &'static str,
    /// NEEDED entries, in order.
    pub needed: Vec<&'static str>,
    /// RUNPATH. An empty one is left out.
    pub runpath: &'static str,
    /// Needed versions: a file and its versions.
    pub versions: Vec<(&'static str, Vec<&'static str>)>,
    /// Dynamic symbols: a name, and whether it is defined here.
    pub symbols: Vec<(&'static str, bool)>,
    /// Names and bytes of further sections.
    pub sections: Vec<(&'static str, Vec<u8>)>,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            machine: 62,
            abi_version: 0,
            flags: 0,
            soname: "libx.so.1",
            needed: vec!["libc10.so", "libc.so.6"],
            runpath: "$ORIGIN:/usr/lib",
            versions: vec![
                (
                    "libc.so.6",
                    vec!["GLIBC_2.9", "GLIBC_2.17", "GLIBC_PRIVATE"],
                ),
                ("libstdc++.so.6", vec!["GLIBCXX_3.4.9", "CXXABI_1.3.11"]),
            ],
            symbols: vec![("_ZN3c105ErrorD1Ev", false), ("_ZN2at3catEv", true)],
            sections: Vec::new(),
        }
    }
}

/// An object and the positions of its parts, for tests that damage one.
pub struct Built {
    /// The whole object.
    pub bytes: Vec<u8>,
    /// Offset of the table of needed versions.
    pub versions: usize,
    /// Offset of the dynamic string table.
    pub strings: usize,
    /// Offset of the dynamic table.
    pub dynamic: usize,
    /// Offset of the section table.
    pub section_table: usize,
}

#[derive(Default)]
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &str) -> u64 {
        let at = self.0.len() as u64;
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(0);
        at
    }
}

fn put(out: &mut Vec<u8>, numbers: &[(u64, usize)]) {
    for (number, width) in numbers {
        out.extend_from_slice(&number.to_le_bytes()[..*width]);
    }
}

impl Build {
    /// Returns the whole object.
    pub fn bytes(&self) -> Vec<u8> {
        self.built().bytes
    }

    /// Returns the object and the positions of its parts.
    pub fn built(&self) -> Built {
        let mut strings = Strings(vec![0]);
        let mut out = vec![0; 64 + 2 * 56];
        let symbols = out.len();
        out.extend_from_slice(&[0; 24]);
        for (name, defined) in &self.symbols {
            let name = strings.add(name);
            // Each symbol is a global function of default visibility.
            put(
                &mut out,
                &[(name, 4), (0x12, 1), (0, 1), (u64::from(*defined), 2)],
            );
            put(&mut out, &[(0, 8), (0, 8)]);
        }
        let versions = out.len();
        self.put_versions(&mut out, &mut strings);
        let mut tags: Vec<(u64, u64)> = Vec::new();
        tags.extend(self.needed.iter().map(|n| (1, strings.add(n))));
        tags.push((14, strings.add(self.soname)));
        tags.push((29, strings.add(self.runpath)));
        let table = out.len();
        out.extend_from_slice(&strings.0);
        let (len, files) = (strings.0.len() as u64, self.versions.len() as u64);
        tags.extend([(5, table as u64), (10, len), (6, symbols as u64)]);
        tags.extend([(0x6fff_fffe, versions as u64), (0x6fff_ffff, files), (0, 0)]);
        let dynamic = out.len();
        for (tag, value) in &tags {
            put(&mut out, &[(*tag, 8), (*value, 8)]);
        }
        let dynamic_end = out.len();
        let section_table = self.put_sections(&mut out, symbols, versions);
        let count = self.sections.len() as u64 + 3;
        let size = out.len();
        self.put_header(&mut out, section_table, count);
        segment(&mut out[64..120], 1, 0, size);
        segment(&mut out[120..176], 2, dynamic, dynamic_end - dynamic);
        Built {
            bytes: out,
            versions,
            strings: table,
            dynamic,
            section_table,
        }
    }

    fn put_versions(&self, out: &mut Vec<u8>, strings: &mut Strings) {
        for (i, (file, versions)) in self.versions.iter().enumerate() {
            let last = i + 1 == self.versions.len();
            let next = if last {
                0
            } else {
                16 + 16 * versions.len() as u64
            };
            let file = strings.add(file);
            put(
                out,
                &[
                    (1, 2),
                    (versions.len() as u64, 2),
                    (file, 4),
                    (16, 4),
                    (next, 4),
                ],
            );
            for (n, version) in versions.iter().enumerate() {
                let next = if n + 1 == versions.len() { 0 } else { 16 };
                let name = strings.add(version);
                put(out, &[(0, 4), (0, 2), (2, 2), (name, 4), (next, 4)]);
            }
        }
    }

    /// Writes a null section, the dynamic symbols, the test's sections and the names.
    fn put_sections(&self, out: &mut Vec<u8>, symbols: usize, symbols_end: usize) -> usize {
        let mut names = Strings(vec![0]);
        let mut headers = vec![[0; 4], [names.add(".dynsym"), 11, symbols as u64, 0]];
        headers[1][3] = (symbols_end - symbols) as u64;
        for (name, bytes) in &self.sections {
            out.resize(out.len().next_multiple_of(8), 0);
            headers.push([names.add(name), 1, out.len() as u64, bytes.len() as u64]);
            out.extend_from_slice(bytes);
        }
        let name = names.add(".shstrtab");
        headers.push([name, 3, out.len() as u64, names.0.len() as u64]);
        out.extend_from_slice(&names.0);
        let table = out.len();
        for [name, kind, offset, size] in headers {
            put(
                out,
                &[(name, 4), (kind, 4), (0, 8), (0, 8), (offset, 8), (size, 8)],
            );
            put(out, &[(0, 4), (0, 4), (8, 8), (0, 8)]);
        }
        table
    }

    fn put_header(&self, out: &mut [u8], section_table: usize, count: u64) {
        let mut header = b"\x7fELF\x02\x01\x01\x00".to_vec();
        header.push(self.abi_version);
        header.extend_from_slice(&[0; 7]);
        put(
            &mut header,
            &[(3, 2), (self.machine.into(), 2), (1, 4), (0, 8), (64, 8)],
        );
        put(
            &mut header,
            &[(section_table as u64, 8), (self.flags.into(), 4), (64, 2)],
        );
        put(
            &mut header,
            &[(56, 2), (2, 2), (64, 2), (count, 2), (count - 1, 2)],
        );
        out[..64].copy_from_slice(&header);
    }
}

fn segment(out: &mut [u8], kind: u64, offset: usize, len: usize) {
    let mut header = Vec::new();
    let (offset, len) = (offset as u64, len as u64);
    put(
        &mut header,
        &[(kind, 4), (4, 4), (offset, 8), (offset, 8), (offset, 8)],
    );
    put(&mut header, &[(len, 8), (len, 8), (8, 8)]);
    out.copy_from_slice(&header);
}
