//! Files that only declare a package to be a namespace, which several distributions share.
//!
//! In: an `__init__.py`. Out: whether it does nothing else. Each of these distributions brings such a file of its own, and
//! they may differ in comments and in the way (`pkgutil`, `pkg_resources`); any of them will do. Source: "Packaging
//! namespace packages" of the Python Packaging User Guide.

/// Largest file that is read, in bytes. The licence in its comments may be long.
pub(super) const LARGEST: u64 = 16 << 10;

/// The statements, with quotes and spaces in one form.
const STATEMENTS: [&str; 9] = [
    "__path__=__import__('pkgutil').extend_path(__path__,__name__)",
    "__import__('pkg_resources').declare_namespace(__name__)",
    "from pkgutil import extend_path",
    "__path__=extend_path(__path__,__name__)",
    "import pkgutil",
    "__path__=pkgutil.extend_path(__path__,__name__)",
    "import pkg_resources",
    "pkg_resources.declare_namespace(__name__)",
    "try:",
];

/// Whether a file declares its package to be a namespace, and does nothing else.
pub(super) fn declares(content: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(content) else {
        return false;
    };
    let lines = text.lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut declared = false;
    for line in code {
        let statement = line
            .replace('"', "'")
            .replace(" = ", "=")
            .replace(", ", ",");
        let is_known = STATEMENTS.contains(&statement.as_str());
        let is_handler = statement.starts_with("except ") && statement.ends_with("Error:");
        if !is_known && !is_handler && statement != "except:" {
            return false;
        }
        declared |= statement.contains("__name__)");
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_told_from_packages() {
        for text in [
            // azureml-train-core 1.52.0
            "# ---\r\n# Copyright (c)\r\n# ---\r\n\r\n__path__ = __import__('pkgutil').extend_path(__path__, __name__)\r\n",
            "__import__(\"pkg_resources\").declare_namespace(__name__)",
            "try:\n    import pkg_resources\n    pkg_resources.declare_namespace(__name__)\nexcept ImportError:\n    import pkgutil\n    __path__ = pkgutil.extend_path(__path__, __name__)\n",
            "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)",
        ] {
            assert!(declares(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "# a comment",
            "import pkg_resources",
            "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n__version__ = '1'",
            "import os; __import__('pkg_resources').declare_namespace(__name__)",
            "__import__('pkg_resources').declare_namespace(__name__); import evil",
            "try:\n    import evil\nexcept ImportError:\n    __path__ = extend_path(__path__, __name__)",
        ] {
            assert!(!declares(text.as_bytes()), "{text}");
        }
        assert!(!declares(b"\xff"));
    }
}
