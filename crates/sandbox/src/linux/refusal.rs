//! Which setting of a machine refuses namespaces to an ordinary user, and what to do about it.

/// Names the setting that refuses namespaces to this user, as far as files show it.
pub(crate) fn why_not_allowed() -> String {
    let setting = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .map(|t| t.trim().to_owned())
    };
    let status = setting("/proc/self/status").unwrap_or_default();
    reason(&setting, &status).to_owned()
}

fn reason(setting: &dyn Fn(&str) -> Option<String>, status: &str) -> &'static str {
    let is = |path: &str, value: &str| setting(path).as_deref() == Some(value);
    let filtered = status
        .lines()
        .filter_map(|l| l.strip_prefix("Seccomp:"))
        .any(|v| v.trim() == "2");
    if is("/proc/sys/user/max_user_namespaces", "0") {
        "user namespaces are off: `sudo sysctl user.max_user_namespaces=15000`, or run as root"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "only root may make user namespaces: `sudo sysctl kernel.unprivileged_userns_clone=1`, or \
         run as root"
    } else if is(
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
    ) {
        "AppArmor takes user namespaces' rights away: `sudo sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0`, give this program a profile with \
         `userns`, or run as root"
    } else if filtered {
        "a seccomp filter, a container's for instance, forbids it: run outside of the container, \
         or start the container with `--privileged`"
    } else {
        "run as root, or on a kernel with user namespaces (CONFIG_USER_NS)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_the_way_is_named() {
        let of = |path: &'static str, value: &'static str| {
            let setting = move |p: &str| (p == path).then(|| value.to_owned());
            reason(&setting, "Seccomp:\t0\n")
        };
        let apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
        assert!(of(apparmor, "1").contains("AppArmor"));
        assert!(!of(apparmor, "0").contains("AppArmor"));
        assert!(of("/proc/sys/user/max_user_namespaces", "0").contains("max_user_namespaces"));
        assert!(of("/proc/sys/kernel/unprivileged_userns_clone", "0").contains("userns_clone=1"));
        assert!(reason(&|_| None, "Seccomp:\t2\n").contains("seccomp"));
        assert!(reason(&|_| None, "Seccomp:\t0\n").contains("CONFIG_USER_NS"));
    }
}
