//! Checks whether the index that a lock would use can be reached, for a report on this machine.

use super::indexes::{IndexAddress, Indexes};
use super::uv::{Uv, UvError};
use stackforge_stack::catalog::Catalog;
use std::path::Path;

pub fn index_address() -> IndexAddress {
    Indexes::of_user().address()
}

/// Asks uv for one package, as locking would. `None` if there is no uv yet.
pub async fn index_answers(catalog: &Catalog, store: &Path) -> Option<Result<(), String>> {
    match Uv::find(catalog, store, true, false, &mut |_| {}).await {
        Ok(uv) => Some(check_index(&uv).await.map_err(|e| last_cause(&e))),
        Err(UvError::Offline | UvError::NotPinned) => None,
        Err(e) => Some(Err(e.to_string())),
    }
}

async fn check_index(uv: &Uv) -> Result<(), String> {
    let indexes = Indexes::of_user();
    let io = |e: std::io::Error| format!("write a question for uv: {e}");
    let work = tempfile::tempdir().map_err(io)?;
    std::fs::write(work.path().join("wanted.in"), "pip\n").map_err(io)?;
    let mut arguments: Vec<String> = ["pip", "compile", "--quiet", "--no-deps", "--no-cache"]
        .map(str::to_owned)
        .into();
    if let Some(config) = &indexes.config {
        std::fs::write(work.path().join("uv.toml"), config.to_string()).map_err(io)?;
        arguments.extend(["--config-file".to_owned(), "uv.toml".to_owned()]);
    }
    arguments.extend(indexes.options());
    arguments.push("wanted.in".to_owned());
    let answer = uv.run(work.path(), &arguments).await;
    let answer = answer.map_err(|e| e.to_string())?;
    if answer.ok {
        Ok(())
    } else {
        Err(answer.stderr)
    }
}

/// Returns the innermost cause, which is at the end of uv's explanation.
fn last_cause(text: &str) -> String {
    let last = super::uv::last_lines(text, 1);
    let plain = last.trim_start_matches(|c: char| c.is_whitespace() || "╰─▶│├".contains(c));
    let plain = plain.trim_start_matches("cause:").trim_start();
    plain
        .strip_prefix("Caused by:")
        .unwrap_or(plain)
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_cause_is_what_is_said() {
        let text = "error: Request failed\n  cause: tcp connect error\n  cause: Connection refused (os error 111)\n";
        assert_eq!(last_cause(text), "Connection refused (os error 111)");
        assert_eq!(
            last_cause("  × No solution\n  ╰─▶ Because pip was not found"),
            "Because pip was not found"
        );
        assert_eq!(last_cause(""), "");
    }
}
