//! Resolves a tag or branch of a source repository to a revision.

use super::ResolveError;
use super::redact::redact;
use super::uv::last_lines;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Whether a text is a commit: 40 lower-case hexadecimal digits.
pub(super) fn is_revision(text: &str) -> bool {
    text.len() == 40
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Asks the repository for its references. Fetches nothing else.
pub(super) async fn revision(
    library: &str,
    url: &str,
    reference: &str,
    offline: bool,
) -> Result<String, ResolveError> {
    if is_revision(reference) {
        return Ok(reference.to_owned());
    }
    let failed = |message: String| ResolveError::Git {
        library: library.to_owned(),
        reference: reference.to_owned(),
        message,
    };
    if offline {
        return Err(failed("stackforge is offline".into()));
    }
    let run = Command::new("git")
        .args([
            "-c",
            "protocol.ext.allow=never",
            "ls-remote",
            "--quiet",
            "--",
        ])
        .args([url, reference, &format!("{reference}^{{}}")])
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(Duration::from_secs(60), run).await {
        Ok(output) => output.map_err(|e| failed(format!("run git: {e}")))?,
        Err(_) => return Err(failed("the repository did not answer in 60 s".into())),
    };
    if !output.status.success() {
        let message = redact(&String::from_utf8_lossy(&output.stderr));
        return Err(failed(last_lines(&message, 3)));
    }
    pick(&String::from_utf8_lossy(&output.stdout), reference)
        .ok_or_else(|| failed("the repository has no such tag or branch".into()))
}

/// Chooses among references: the commit of an annotated tag before the tag itself, a tag before a branch.
fn pick(refs: &str, reference: &str) -> Option<String> {
    let names = [
        format!("refs/tags/{reference}^{{}}"),
        format!("refs/tags/{reference}"),
        format!("refs/heads/{reference}"),
        reference.to_owned(),
    ];
    names.iter().find_map(|name| {
        refs.lines()
            .filter_map(|line| line.split_once('\t'))
            .find(|(revision, at)| at == name && is_revision(revision))
            .map(|(revision, _)| revision.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotated_tag_gives_its_commit() {
        let (a, b, c) = ("a".repeat(40), "b".repeat(40), "c".repeat(40));
        let refs = format!("{c}\trefs/heads/v1\n{a}\trefs/tags/v1\n{b}\trefs/tags/v1^{{}}\n");
        assert_eq!(pick(&refs, "v1"), Some(b));
        assert_eq!(pick(&format!("{c}\trefs/heads/v1\n"), "v1"), Some(c));
        assert_eq!(pick("junk\nshort\trefs/tags/v1\n", "v1"), None);
        assert_eq!(pick(&format!("{a}\trefs/tags/x/v1\n"), "v1"), None);
    }

    #[tokio::test]
    async fn a_revision_needs_no_network() {
        let own = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            revision("x", "https://h.test/x", own, true).await.unwrap(),
            own
        );
        assert!(revision("x", "https://h.test/x", "v1", true).await.is_err());
    }
}
