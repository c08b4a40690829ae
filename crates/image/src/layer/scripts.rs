//! Commands: a wheel's entry points, and the first line of its scripts.
//!
//! In: `entry_points.txt`, and the image's interpreter. Out: executable Python files. Only plain dotted
//! names are written into a script, so a wheel's metadata cannot inject code.

use super::LayerError;
use super::error::WheelFault;

/// What older kernels read of a first line, less `#!` and what may follow the path.
const MAX_PYTHON: usize = 120;

/// A command on PATH and the function that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub name: String,
    module: String,
    /// Attribute of the module, which may be dotted.
    call: String,
}

/// The commands of the groups `console_scripts` and `gui_scripts`.
pub(super) fn commands(text: &str) -> Result<Vec<Command>, WheelFault> {
    let mut commands = Vec::new();
    let mut wanted = false;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(group) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            wanted = matches!(group.trim(), "console_scripts" | "gui_scripts");
        } else if wanted {
            let command = command(line).map_err(|why| {
                let shown = line.chars().take(120).collect();
                WheelFault::EntryPoint(shown, why)
            })?;
            commands.push(command);
        }
    }
    Ok(commands)
}

fn command(line: &str) -> Result<Command, &'static str> {
    let (name, target) = line.split_once('=').ok_or("without a `=`")?;
    let name = name.trim();
    let plain = |c: char| !c.is_control() && c != '/' && c != '\\';
    if matches!(name, "" | "." | "..") || !name.chars().all(plain) || name.len() > 255 {
        return Err("not named as a file can be");
    }
    // Extras in brackets name further requirements, which only a resolver needs.
    let target = target.split('[').next().unwrap_or_default();
    let (module, call) = target.split_once(':').ok_or("without a function to call")?;
    let (module, call) = (module.trim(), call.trim());
    let identifier = |part: &str| {
        let first = part.chars().next();
        first.is_some_and(|c| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    if !module.split('.').chain(call.split('.')).all(identifier) {
        return Err("not a dotted name, `:` and another");
    }
    Ok(Command {
        name: name.to_owned(),
        module: module.to_owned(),
        call: call.to_owned(),
    })
}

impl Command {
    pub(super) fn script(&self, python: &str) -> Vec<u8> {
        let Self { module, call, .. } = self;
        let import = call.split('.').next().unwrap_or(call);
        let text = format!(
            "#!{python}\nimport sys\n\nfrom {module} import {import}\n\n\
             if __name__ == \"__main__\":\n    sys.exit({call}())\n"
        );
        text.into_bytes()
    }
}

/// Whether a script's first line is the placeholder for the interpreter that it is installed for.
pub(super) fn asks_for_python(start: &[u8]) -> bool {
    start.starts_with(b"#!python")
}

/// Returns the script with the interpreter in its first line.
pub(super) fn with_python(script: &[u8], python: &str) -> Vec<u8> {
    let line = memchr::memchr(b'\n', script).map_or(script.len(), |at| at + 1);
    [b"#!", python.as_bytes(), b"\n", &script[line..]].concat()
}

/// Checks that a kernel reads this path whole from a script's first line.
pub(super) fn check_python(python: &str) -> Result<(), LayerError> {
    let plain = |b: u8| b.is_ascii_graphic();
    let parts = python.strip_prefix('/').unwrap_or_default().split('/');
    let whole = parts.clone().all(|part| !matches!(part, "" | "." | ".."));
    if whole && python.len() <= MAX_PYTHON && python.bytes().all(plain) {
        return Ok(());
    }
    Err(LayerError::Python(python.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_two_groups() {
        let text = "# x\n[console_scripts]\nf2py = numpy.f2py.f2py2e:main\n a.b-c=m : C.run [x,y]\n\
                    [numpy.thing]\nbad\n[gui_scripts]\nw = m:f\n";
        let found = commands(text).unwrap();
        let names: Vec<&str> = found.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["f2py", "a.b-c", "w"]);
        assert_eq!(
            String::from_utf8(found[1].script("/usr/bin/python3")).unwrap(),
            "#!/usr/bin/python3\nimport sys\n\nfrom m import C\n\n\
             if __name__ == \"__main__\":\n    sys.exit(C.run())\n"
        );
    }

    #[test]
    fn an_entry_point_is_no_code_and_no_path() {
        for bad in [
            "x = m",
            "x",
            "../x = m:f",
            ".. = m:f",
            "= m:f",
            "x = m:f()",
            "x = m;import os:f",
            "x = m:f, g",
            "x = .m:f",
            "x = m:1",
        ] {
            assert!(
                commands(&format!("[console_scripts]\n{bad}")).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn only_the_first_line_changes() {
        for (script, new) in [
            (&b"#!python\nx\n"[..], &b"#!/p\nx\n"[..]),
            (b"#!pythonw -E\r\nx", b"#!/p\nx"),
            (b"#!python", b"#!/p\n"),
        ] {
            assert!(asks_for_python(script));
            assert_eq!(with_python(script, "/p"), new);
        }
        assert!(!asks_for_python(b"#!/usr/bin/python"));
    }

    #[test]
    fn interpreters_must_fit_a_first_line() {
        assert!(check_python("/usr/bin/python3.12").is_ok());
        let long = format!("/{}", "p".repeat(120));
        for bad in ["python", "/a b", "/a/../b", "/", "", "/a\n", &long] {
            assert!(check_python(bad).is_err(), "{bad:?}");
        }
    }
}
