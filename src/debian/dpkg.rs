//! dpkg's database of a root file system whose packages are unpacked and not yet configured.
//!
//! In come the opened packages and what was written for each; out go the files below
//! `/var/lib/dpkg`, in the formats of dpkg 1.21 and 1.22: `status`, `info/*`, `triggers/*`. A
//! configuration file is already at its place, so its digest is recorded as dpkg records it after
//! configuring, and `dpkg --configure` finds nothing to move.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::deb::Deb;

/// What was written of a package.
#[derive(Debug, Default)]
pub struct Installed {
    /// Absolute paths in the package's own spelling, the root as `/.`.
    pub paths: Vec<String>,
    /// MD5 of its configuration files by absolute path.
    pub conffiles: BTreeMap<String, String>,
}

/// A file of the database: path below `var/lib/dpkg`, content, executable.
pub type DatabaseFile = (String, Vec<u8>, bool);

/// The database's files in a fixed order.
pub fn database(
    packages: &[Deb],
    installed: &[Installed],
    architecture: &str,
) -> Vec<DatabaseFile> {
    let mut files: BTreeMap<String, (Vec<u8>, bool)> = BTreeMap::new();
    let mut put =
        |path: String, content: Vec<u8>, executable| files.insert(path, (content, executable));
    put(
        "arch".to_owned(),
        format!("{architecture}\n").into_bytes(),
        false,
    );
    put("available".to_owned(), Vec::new(), false);
    put("info/format".to_owned(), b"1\n".to_vec(), false);
    put(
        "status".to_owned(),
        status(packages, installed).into_bytes(),
        false,
    );
    for (deb, installed) in packages.iter().zip(installed) {
        let stem = format!("info/{}", info_name(deb));
        let list: String = installed
            .paths
            .iter()
            .flat_map(|path| [path.as_str(), "\n"])
            .collect();
        put(format!("{stem}.list"), list.into_bytes(), false);
        for (name, file) in &deb.control_files {
            put(
                format!("{stem}.{name}"),
                file.content.clone(),
                file.executable,
            );
        }
    }
    for (name, lines) in triggers(packages) {
        put(
            format!("triggers/{name}"),
            lines
                .into_iter()
                .map(|line| line + "\n")
                .collect::<String>()
                .into_bytes(),
            false,
        );
    }
    put("triggers/Unincorp".to_owned(), Vec::new(), false);
    files
        .into_iter()
        .map(|(path, (content, executable))| (path, content, executable))
        .collect()
}

/// Packages that may be installed for several architectures at once carry theirs in the names of
/// their files.
pub fn info_name(deb: &Deb) -> String {
    match deb.field("Multi-Arch") {
        Some("same") => format!("{}:{}", deb.name(), deb.architecture()),
        _ => deb.name().to_owned(),
    }
}

fn status(packages: &[Deb], installed: &[Installed]) -> String {
    let mut sorted: Vec<(&Deb, &Installed)> = packages.iter().zip(installed).collect();
    sorted.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    let mut status = String::new();
    for (deb, installed) in sorted {
        let _ = writeln!(
            status,
            "Package: {}\nStatus: install ok unpacked",
            deb.name()
        );
        let mut skipping = false;
        for line in deb.stanza().split_inclusive('\n') {
            if !line.starts_with([' ', '\t']) {
                let name = line.split(':').next().unwrap_or_default();
                skipping = line.starts_with('#')
                    || ["Package", "Status", "Conffiles", "Config-Version"]
                        .iter()
                        .any(|own| name.eq_ignore_ascii_case(own));
            }
            if !skipping {
                status.push_str(line);
            }
        }
        if !installed.conffiles.is_empty() {
            status.push_str("Conffiles:\n");
            for (path, md5) in &installed.conffiles {
                let _ = writeln!(status, " {path} {md5}");
            }
        }
        status.push('\n');
    }
    status
}

/// Who is interested in what: `File` lists paths, and each named trigger has a file of its own
/// (deb-triggers(5), dpkg's `lib/dpkg/trigdeferred.c` and `trignote.c`).
fn triggers(packages: &[Deb]) -> BTreeMap<String, BTreeSet<String>> {
    let mut triggers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    triggers.entry("File".to_owned()).or_default();
    for deb in packages {
        let Some(file) = deb.control_files.get("triggers") else {
            continue;
        };
        for line in String::from_utf8_lossy(&file.content).lines() {
            let mut words = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_ascii_whitespace();
            let (Some(directive), Some(name)) = (words.next(), words.next()) else {
                continue;
            };
            let suffix = match directive {
                "interest" | "interest-await" => "",
                "interest-noawait" => "/noawait",
                _ => continue,
            };
            let package = format!("{}{suffix}", info_name(deb));
            if name.starts_with('/') {
                triggers
                    .entry("File".to_owned())
                    .or_default()
                    .insert(format!("{name} {package}"));
            } else if super::package::is_package_name(name) {
                triggers.entry(name.to_owned()).or_default().insert(package);
            }
        }
    }
    triggers
}

#[cfg(test)]
mod tests {
    use super::super::deb::tests::deb_of;
    use super::*;
    use std::io::Write;

    fn open(control: &str, files: &[(&str, &str)]) -> Deb {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&deb_of(control, files, &[])).unwrap();
        Deb::open(file.path()).unwrap()
    }

    #[test]
    fn writes_what_dpkg_reads() {
        let lib = open(
            "Package: lib\nVersion: 1\nArchitecture: amd64\nMulti-Arch: same\nConffiles:\n /etc/x newconffile\nDescription: x\n y\n",
            &[(
                "./triggers",
                "# c\ninterest-noawait /usr/lib # x\ninterest ldconfig\nactivate other\ninterest ../evil\n",
            )],
        );
        let app = open("Package: app\nVersion: 2\nArchitecture: all\n", &[]);
        let lib_installed = Installed {
            paths: vec!["/.".into(), "/usr".into()],
            conffiles: [(
                "/etc/lib.conf".to_owned(),
                "d41d8cd98f00b204e9800998ecf8427e".to_owned(),
            )]
            .into(),
        };
        let files: BTreeMap<String, String> =
            database(&[lib, app], &[lib_installed, Installed::default()], "amd64")
                .into_iter()
                .map(|(path, content, _)| (path, String::from_utf8(content).unwrap()))
                .collect();
        assert_eq!(
            files["status"],
            "Package: app\nStatus: install ok unpacked\nVersion: 2\nArchitecture: all\n\n\
             Package: lib\nStatus: install ok unpacked\nVersion: 1\nArchitecture: amd64\nMulti-Arch: same\nDescription: x\n y\n\
             Conffiles:\n /etc/lib.conf d41d8cd98f00b204e9800998ecf8427e\n\n"
        );
        assert_eq!(files["info/lib:amd64.list"], "/.\n/usr\n");
        assert_eq!(files["triggers/File"], "/usr/lib lib:amd64/noawait\n");
        assert_eq!(files["triggers/ldconfig"], "lib:amd64\n");
        assert!(!files.keys().any(|path| path.contains("..")));
    }
}
