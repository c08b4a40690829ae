//! dpkg's database of a root file system whose packages are unpacked or installed.
//!
//! The input is the opened packages and a record of what was written for each. The output is the files
//! below `/var/lib/dpkg`, in the formats of dpkg 1.21 and 1.22: `status`, `info/*`, `triggers/*`. A
//! configuration file is already in its place, so its digest is recorded as dpkg records it after
//! configuring, and `dpkg --configure` has nothing to move. An installed package's stanza is written as
//! dpkg itself writes it, so it does not change when dpkg next writes the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::deb::Deb;

/// The files that were written for a package.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    /// Absolute paths in the package's own spelling; the root is `/.`.
    pub paths: Vec<String>,
    /// MD5 sums of the configuration files by absolute path.
    pub conffiles: BTreeMap<String, String>,
}

/// The state that dpkg's database records for every package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Unpacked,
    Installed,
}

/// A file of the database: path below `var/lib/dpkg`, content, whether it is executable.
pub(crate) type DatabaseFile = (String, Vec<u8>, bool);

/// Returns the database's files in a fixed order.
pub(crate) fn database(
    packages: &[Deb],
    installed: &[Installed],
    architecture: &str,
    state: State,
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
        status(packages, installed, state).into_bytes(),
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

/// Returns the name of a package's files below `info`. Packages that may be installed for several
/// architectures at once have the architecture in it.
pub(crate) fn info_name(deb: &Deb) -> String {
    match deb.field("Multi-Arch") {
        Some("same") => format!("{}:{}", deb.name(), deb.architecture()),
        _ => deb.name().to_owned(),
    }
}

fn status(packages: &[Deb], installed: &[Installed], state: State) -> String {
    let mut sorted: Vec<(&Deb, &Installed)> = packages.iter().zip(installed).collect();
    sorted.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
    sorted
        .into_iter()
        .map(|(deb, installed)| match state {
            State::Unpacked => unpacked_stanza(deb, installed),
            State::Installed => installed_stanza(deb, installed),
        })
        .collect()
}

fn unpacked_stanza(deb: &Deb, installed: &Installed) -> String {
    let mut status = format!("Package: {}\nStatus: install ok unpacked\n", deb.name());
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
    status + &conffiles(installed) + "\n"
}

fn conffiles(installed: &Installed) -> String {
    if installed.conffiles.is_empty() {
        return String::new();
    }
    let mut text = "Conffiles:\n".to_owned();
    for (path, md5) in &installed.conffiles {
        let _ = writeln!(text, " {path} {md5}");
    }
    text
}

/// The fields that dpkg knows, in the order in which it writes them (dpkg's `lib/dpkg/parse.c`). Other
/// fields follow in the package's order.
const FIELDS: [&str; 24] = [
    "Essential",
    "Protected",
    "Status",
    "Priority",
    "Section",
    "Installed-Size",
    "Origin",
    "Maintainer",
    "Bugs",
    "Architecture",
    "Multi-Arch",
    "Source",
    "Version",
    "Replaces",
    "Provides",
    "Depends",
    "Pre-Depends",
    "Recommends",
    "Suggests",
    "Breaks",
    "Conflicts",
    "Enhances",
    "Conffiles",
    "Description",
];
const RELATIONS: [&str; 9] = [
    "Replaces",
    "Provides",
    "Depends",
    "Pre-Depends",
    "Recommends",
    "Suggests",
    "Breaks",
    "Conflicts",
    "Enhances",
];

/// Returns the stanza of an installed package, with the empty line that ends it.
pub(crate) fn installed_stanza(deb: &Deb, installed: &Installed) -> String {
    let mut stanza = format!("Package: {}\n", deb.name());
    for name in FIELDS {
        match (name, deb.field(name)) {
            ("Status", _) => stanza.push_str("Status: install ok installed\n"),
            ("Conffiles", _) => stanza.push_str(&conffiles(installed)),
            // dpkg leaves out the default.
            ("Essential" | "Protected", Some("no")) | (_, None) => {}
            (_, Some(value)) if RELATIONS.contains(&name) => {
                let _ = writeln!(stanza, "{name}: {}", relations(value));
            }
            (_, Some(value)) => {
                let _ = writeln!(stanza, "{name}: {value}");
            }
        }
    }
    for (name, value) in deb.fields() {
        let own = |other: &&str| name.eq_ignore_ascii_case(other);
        if !own(&"Package") && !own(&"Config-Version") && !FIELDS.iter().any(own) {
            let _ = writeln!(stanza, "{name}: {value}");
        }
    }
    stanza + "\n"
}

/// Writes a relation field with dpkg's spacing: `a (>= 1) | b, c`.
fn relations(value: &str) -> String {
    let one = |text: &str| {
        let text: String = text.split_ascii_whitespace().collect();
        let Some((name, bound)) = text.split_once('(') else {
            return text;
        };
        let digits = bound.trim_start_matches(['<', '=', '>']);
        let sign = &bound[..bound.len() - digits.len()];
        format!("{name} ({sign} {digits}")
    };
    value
        .split(',')
        .map(|group| group.split('|').map(one).collect::<Vec<_>>().join(" | "))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Collects the packages that are interested in triggers: `File` lists paths, and each named trigger
/// has a file of its own (deb-triggers(5), dpkg's `lib/dpkg/trigdeferred.c` and `trignote.c`).
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
        let files: BTreeMap<String, String> = database(
            &[lib, app],
            &[lib_installed, Installed::default()],
            "amd64",
            State::Unpacked,
        )
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

    #[test]
    fn writes_an_installed_stanza_as_dpkg_does() {
        let deb = open(
            "Package: app\nVersion: 2\nArchitecture: all\nEssential: no\nHomepage: x\nDepends: a(>=1)|b:any,\n c  ( << 2 )\nSection: admin\nDescription: x\n y\n",
            &[],
        );
        assert_eq!(
            installed_stanza(&deb, &Installed::default()),
            "Package: app\nStatus: install ok installed\nSection: admin\nArchitecture: all\nVersion: 2\n\
             Depends: a (>= 1) | b:any, c (<< 2)\nDescription: x\n y\nHomepage: x\n\n"
        );
    }
}
