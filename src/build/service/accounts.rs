//! Finds or creates the user that an image's programs run as.
//!
//! In: `/etc/passwd` and `/etc/group` of the image below. Out: the user's numbers, and both files with the user in
//! them. Passwords are locked: nothing is written to `/etc/shadow`.

use stackforge_stack::spec::service::User;
use std::collections::BTreeSet;

/// The first number of an ordinary user, as in Debian's `useradd`.
const FIRST: u32 = 1000;

/// A user of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// What is new. `None` if the image has the user already.
    pub created: Option<Created>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    /// The user's own directory, which is not there yet.
    pub home: String,
    pub passwd: String,
    pub group: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AccountError {
    #[error("the base's user `{name}` has the numbers {uid}:{gid}")]
    Differs { name: String, uid: u32, gid: u32 },
    #[error("the base's user `{owner}` has the number {uid} already")]
    Taken { owner: String, uid: u32 },
}

/// Returns the user's account.
///
/// # Errors
/// If the image has the name with other numbers, or the number under another name.
pub fn account(user: &User, passwd: &str, group: &str) -> Result<Account, AccountError> {
    let (name, uid, gid) = match user {
        User::Ids { uid, gid } => {
            return Ok(Account {
                uid: *uid,
                gid: *gid,
                created: None,
            });
        }
        User::Named { name, uid, gid } => (name, *uid, *gid),
    };
    if let Some(known) = entries(passwd).find(|e| e.name == name) {
        let own = (known.id, known.group);
        if uid.is_some_and(|uid| uid != own.0) || gid.is_some_and(|gid| gid != own.1) {
            return Err(AccountError::Differs {
                name: name.clone(),
                uid: own.0,
                gid: own.1,
            });
        }
        return Ok(Account {
            uid: own.0,
            gid: own.1,
            created: None,
        });
    }
    let users: BTreeSet<u32> = entries(passwd).map(|e| e.id).collect();
    let groups: BTreeSet<u32> = entries(group).map(|e| e.id).collect();
    let uid = match uid {
        Some(uid) => {
            if let Some(owner) = entries(passwd).find(|e| e.id == uid) {
                return Err(AccountError::Taken {
                    owner: owner.name.to_owned(),
                    uid,
                });
            }
            uid
        }
        // The same number for user and group, as `useradd` prefers.
        None => (FIRST..)
            .find(|n| !users.contains(n) && (gid.is_some() || !groups.contains(n)))
            .unwrap_or(FIRST),
    };
    let own_group = entries(group).find(|e| e.name == name).map(|e| e.id);
    let gid = gid.or(own_group).unwrap_or(uid);
    let home = format!("/home/{name}");
    let line = format!("{name}:x:{uid}:{gid}:{name}:{home}:/bin/sh\n");
    let group = if groups.contains(&gid) {
        group.to_owned()
    } else {
        with_line(group, &format!("{name}:x:{gid}:\n"))
    };
    Ok(Account {
        uid,
        gid,
        created: Some(Created {
            home,
            passwd: with_line(passwd, &line),
            group,
        }),
    })
}

/// A line of `/etc/passwd` or `/etc/group`.
struct Entry<'a> {
    name: &'a str,
    id: u32,
    /// The user's group; 0 in `/etc/group`.
    group: u32,
}

fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        let group = fields.next().and_then(|g| g.parse().ok()).unwrap_or(0);
        Some(Entry { name, id, group })
    })
}

fn with_line(text: &str, line: &str) -> String {
    let end = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{text}{end}{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/bash\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n";
    const GROUP: &str = "root:x:0:\nubuntu:x:1000:\nvideo:x:44:ubuntu\n";

    fn named(name: &str, uid: Option<u32>, gid: Option<u32>) -> User {
        User::Named {
            name: name.into(),
            uid,
            gid,
        }
    }

    #[test]
    fn a_new_user_gets_the_first_free_number() {
        let made = account(&named("app", None, None), PASSWD, GROUP).unwrap();
        assert_eq!((made.uid, made.gid), (1001, 1001));
        let created = made.created.unwrap();
        assert!(
            created
                .passwd
                .ends_with("app:x:1001:1001:app:/home/app:/bin/sh\n")
        );
        assert!(created.group.ends_with("app:x:1001:\n"));
        // A base without the files, as a distroless one.
        let made = account(&named("app", Some(5), None), "", "").unwrap();
        assert_eq!(made.created.unwrap().group, "app:x:5:\n");
    }

    #[test]
    fn a_user_of_the_base_is_used() {
        let made = account(&named("ubuntu", None, None), PASSWD, GROUP).unwrap();
        assert_eq!((made.uid, made.gid, made.created), (1000, 1000, None));
        let root = account(&named("root", Some(0), None), PASSWD, GROUP).unwrap();
        assert_eq!((root.uid, root.created), (0, None));
    }

    #[test]
    fn an_existing_group_is_not_made_again() {
        let made = account(&named("app", None, Some(44)), PASSWD, GROUP).unwrap();
        assert_eq!((made.uid, made.gid), (1001, 44));
        assert_eq!(made.created.unwrap().group, GROUP);
    }

    #[test]
    fn numbers_that_exclude_each_other_are_refused() {
        let differs = account(&named("ubuntu", Some(7), None), PASSWD, GROUP).unwrap_err();
        assert_eq!(
            differs.to_string(),
            "the base's user `ubuntu` has the numbers 1000:1000"
        );
        let taken = account(&named("app", Some(1000), None), PASSWD, GROUP).unwrap_err();
        assert_eq!(
            taken.to_string(),
            "the base's user `ubuntu` has the number 1000 already"
        );
    }

    #[test]
    fn a_file_without_a_last_line_break_keeps_its_lines() {
        let passwd = PASSWD.trim_end();
        let made = account(&named("app", None, None), passwd, GROUP).unwrap();
        assert_eq!(made.created.unwrap().passwd.lines().count(), 3);
    }
}
