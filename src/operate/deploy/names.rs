//! Names as Kubernetes takes them: labels of RFC 1123 that begin with a letter, as a Service's name has to.

use stackforge_types::Digest;

/// Longest name.
const LONGEST: usize = 63;
/// Hexadecimal digits of the digest that keeps names apart.
const DIGITS: usize = 6;

/// Returns a name for a stack or variant: `.` and `_` become `-`. If more has to change, a digest is at its end.
pub(crate) fn of_stack(name: &str) -> String {
    let plain = name.replace(['.', '_'], "-");
    if is_label(&plain) {
        return plain;
    }
    with_digest(&plain, name)
}

/// Returns a name for a directory of the image: `/var/lib/app` is `var-lib-app`. Where that would not be the only
/// path of that name, a digest is at its end.
pub(crate) fn of_path(path: &str) -> String {
    let plain = path.trim_matches('/').replace('/', "-");
    let is_simple = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    if path.trim_matches('/').split('/').all(is_simple) && is_label(&plain) {
        return plain;
    }
    with_digest(&plain, path)
}

/// Returns a name for a part of something that has a name.
pub(crate) fn join(name: &str, part: &str) -> String {
    let whole = format!("{name}-{part}");
    if is_label(&whole) {
        return whole;
    }
    with_digest(&whole, &whole)
}

fn is_label(name: &str) -> bool {
    let known = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    name.len() <= LONGEST
        && name.bytes().all(known)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
}

fn with_digest(plain: &str, whole: &str) -> String {
    let digest = Digest::of(whole.as_bytes());
    let kept = plain.to_ascii_lowercase();
    let kept: String = (kept.chars())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let kept = kept.trim_matches('-');
    let begin = if kept.starts_with(|c: char| c.is_ascii_lowercase()) {
        ""
    } else {
        "x-"
    };
    let room = LONGEST - DIGITS - 1 - begin.len();
    // Only ASCII is left, so any place may be cut.
    let kept = kept[..kept.len().min(room)].trim_end_matches('-');
    let name = format!("{begin}{kept}").trim_end_matches('-').to_owned();
    format!("{name}-{}", &digest.hex()[..DIGITS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_stay_readable() {
        assert_eq!(of_stack("thor-cuda13"), "thor-cuda13");
        assert_eq!(of_stack("vllm-cuda12_9-sm90.x"), "vllm-cuda12-9-sm90-x");
        assert_eq!(of_path("/data"), "data");
        assert_eq!(of_path("/var/lib/app"), "var-lib-app");
        assert_eq!(join("demo", "data"), "demo-data");
    }

    #[test]
    fn paths_never_share_a_name() {
        let paths = ["/a/b", "/a-b", "/a_b", "/A/b", "/a.b", "/a/b/"];
        let names: BTreeSet<String> = paths.iter().map(|path| of_path(path)).collect();
        // A slash at the end is the same directory.
        assert_eq!(names.len(), paths.len() - 1, "{names:?}");
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_kubernetes_takes(text in "(?s).{0,90}", other in "[a-z0-9._-]{0,90}") {
            for text in [&text, &other] {
                for name in [of_stack(text), of_path(text), join("a", text)] {
                    prop_assert!(is_label(&name), "{}", name);
                }
            }
        }
    }
}
