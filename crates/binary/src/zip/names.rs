//! Names of members: relative paths that mean the same file to every reader.

use super::error::Problem;

/// Longest path in bytes that Linux accepts.
const MAX_LEN: usize = 4096;

/// Parses a name. Without the UTF-8 flag, programs agree only on ASCII.
pub(super) fn parse(bytes: &[u8], utf8: bool) -> Result<String, Problem> {
    let name = std::str::from_utf8(bytes).map_err(|_| Problem::Name("not UTF-8"))?;
    if !utf8 && !name.is_ascii() {
        return Err(Problem::Name("not ASCII and not declared as UTF-8"));
    }
    if name.is_empty() || name.len() > MAX_LEN {
        return Err(Problem::Name("empty or longer than a path can be"));
    }
    if name.starts_with('/') {
        return Err(Problem::Name("absolute"));
    }
    if name.contains('\\') {
        return Err(Problem::Name(
            "with a `\\`, which some programs take for a `/`",
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(Problem::Name("with control characters"));
    }
    let path = name.strip_suffix('/').unwrap_or(name);
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(Problem::Name("with an empty part, `.` or `..`"));
    }
    Ok(name.to_owned())
}
