//! Reads a wheel as the tree that it installs, below a site-packages directory.

use super::{Content, Contents, Tree, TreeError, TreeKind};
use stackforge_binary::source::FileSource;
use stackforge_binary::zip::{Archive, Member};
use stackforge_types::wheel::WheelName;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Any depth below a prefix will do: `$ORIGIN/../../../..` of a module leads to the prefix's `lib`.
const SITE_PACKAGES: &str = "/lib/python3/site-packages";

pub fn open(target: &Path) -> Result<(Tree, Contents), TreeError> {
    let file = target.file_name().unwrap_or_default().to_string_lossy();
    let name: WheelName = file.parse()?;
    let mut source = FileSource::open(target).map_err(|source| TreeError::Read {
        path: target.to_owned(),
        source,
    })?;
    let shown = target.display().to_string();
    let archive = Archive::read(&shown, &mut source)?;
    let wheel = Arc::new((archive, source));
    let files = wheel.0.members.iter().filter(|m| !m.is_folder());
    let content = |m: &Member| Content::Member(wheel.clone(), m.clone());
    let (paths, contents) = Contents::sorted(
        files
            .map(|member| (installed(&member.name), content(member)))
            .collect(),
    );
    let tree = Tree {
        name: shown,
        kind: TreeKind::Wheel,
        texts: contents.texts(&paths),
        paths,
        mount: SITE_PACKAGES.to_owned(),
        python: name.python(),
        links: BTreeMap::new(),
    };
    Ok((tree, contents))
}

/// Returns the path at which a member is installed, relative to site-packages. Handles the `.data` directory.
fn installed(member: &str) -> String {
    let spread = || {
        let (top, rest) = member.split_once('/')?;
        top.strip_suffix(".data")?;
        let (scheme, rest) = rest.split_once('/')?;
        Some(match scheme {
            "purelib" | "platlib" => rest.to_owned(),
            "scripts" => format!("../../../bin/{rest}"),
            _ => format!("../../../{rest}"),
        })
    };
    spread().unwrap_or_else(|| member.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_goes_where_its_scheme_says() {
        for (member, path) in [
            ("xformers/_C.so", "xformers/_C.so"),
            ("x-1.0.data/platlib/x/_C.so", "x/_C.so"),
            ("x-1.0.data/purelib/x.py", "x.py"),
            ("mkl-1.data/data/lib/libmkl.so", "../../../lib/libmkl.so"),
            ("x-1.0.data/scripts/ptxas", "../../../bin/ptxas"),
            ("x.data/readme", "x.data/readme"),
        ] {
            assert_eq!(installed(member), path);
        }
    }
}
