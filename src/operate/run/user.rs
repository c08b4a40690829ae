//! Finds the user that an image's configuration names, in the image's own files.

use crate::error::RunError;
use stackforge_build::topmost;
use stackforge_sandbox::User;
use std::path::PathBuf;

/// Who the program is, and where its home is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub user: User,
    pub home: String,
}

/// Finds `NAME|UID[:GROUP|GID]` in `/etc/passwd` and `/etc/group` of the layers, as engines do: a number need
/// not be in either. An empty text is root.
pub(crate) fn find(text: &str, layers: &[PathBuf]) -> Result<Found, RunError> {
    let file = |path: &str| {
        let bytes = topmost(layers, path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    of_files(text, &file("/etc/passwd"), &file("/etc/group"))
        .ok_or_else(|| RunError::NoUser(text.to_owned()))
}

fn of_files(text: &str, passwd: &str, group: &str) -> Option<Found> {
    let (user, own_group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group).filter(|group| !group.is_empty())),
        None => (text, None),
    };
    let user = if user.is_empty() { "0" } else { user };
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<_>>();
    let entries: Vec<Vec<String>> = passwd
        .lines()
        .map(fields)
        .filter(|f| f.len() >= 6)
        .collect();
    let number = user.parse::<u32>().ok();
    let entry = entries.iter().find(|f| f[0] == user).or_else(|| {
        entries
            .iter()
            .find(|f| number.is_some() && f[2].parse().ok() == number)
    });
    let (name, uid, gid, home) = match (entry, number) {
        (Some(f), _) => (
            f[0].as_str(),
            f[2].parse().ok()?,
            f[3].parse().ok()?,
            f[5].as_str(),
        ),
        (None, Some(uid)) => ("", uid, 0, "/"),
        (None, None) => return None,
    };
    let groups: Vec<Vec<String>> = group.lines().map(fields).filter(|f| f.len() >= 4).collect();
    let (gid, more): (u32, Vec<u32>) = match own_group {
        Some(wanted) => {
            let entry = groups.iter().find(|f| f[0] == wanted);
            let gid = entry.and_then(|f| f[2].parse().ok());
            (gid.or_else(|| wanted.parse().ok())?, Vec::new())
        }
        None => {
            let has = |f: &&Vec<String>| !name.is_empty() && f[3].split(',').any(|m| m == name);
            let more = groups.iter().filter(has).filter_map(|f| f[2].parse().ok());
            (gid, more.collect())
        }
    };
    Some(Found {
        user: User {
            uid,
            gid,
            groups: more
                .into_iter()
                .filter(|g| *g != gid)
                .chain([gid])
                .collect(),
        },
        home: if home.is_empty() { "/" } else { home }.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbad\napp:x:1000:1001::/srv/app:/bin/sh\n";
    const GROUP: &str = "root:x:0:\napp:x:1001:\nvideo:x:44:app,other\n";

    fn found(text: &str) -> Option<(u32, u32, Vec<u32>, String)> {
        let found = of_files(text, PASSWD, GROUP)?;
        let user = found.user;
        Some((user.uid, user.gid, user.groups, found.home))
    }

    #[test]
    fn users_are_found_as_engines_find_them() {
        let app = |gid, groups| Some((1000, gid, groups, "/srv/app".to_owned()));
        assert_eq!(found("app"), app(1001, vec![44, 1001]));
        assert_eq!(found("1000"), app(1001, vec![44, 1001]));
        assert_eq!(found("app:video"), app(44, vec![44]));
        assert_eq!(found("app:7"), app(7, vec![7]));
        assert_eq!(found("77"), Some((77, 0, vec![0], "/".to_owned())));
        assert_eq!(found(""), Some((0, 0, vec![0], "/root".to_owned())));
        assert_eq!(found("nobody"), None);
        assert_eq!(found("app:nogroup"), None);
    }

    proptest! {
        #[test]
        fn any_files_are_read(text in "[a-z0-9:]{0,8}", passwd in "(?s).{0,60}", group in "[a-z0-9:,\n]{0,60}") {
            let _ = of_files(&text, &passwd, &group);
        }
    }
}
