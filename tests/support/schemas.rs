//! The schemas of `docs/json`, and the check that what the program prints with `--json` is what they say.

use super::project;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Registry, ValidationError, Validator};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Where the schemas are for the `$ref`s in them. Nothing is fetched.
const PLACE: &str = "stackforge:/docs/json/";
const END: &str = ".schema.json";
/// The schema of the lines of progress on stderr.
pub const EVENTS: &str = "events";
/// The schema of the parts that several documents share.
pub const SHARED: &str = "shared";
/// Options of every command that take a value: the command's name may stand after them.
const WITH_VALUE: [&str; 3] = ["--store", "--catalog", "--color"];

/// The schemas by what their files are called before `.schema.json`.
pub static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let files = std::fs::read_dir(project("docs/json")).unwrap();
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = name.strip_suffix(END).unwrap().to_owned();
        let text = std::fs::read_to_string(path).unwrap();
        let schema = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, schema)
    };
    files.map(|file| read(file.unwrap().path())).collect()
});

static REGISTRY: LazyLock<Registry<'static>> = LazyLock::new(|| {
    let schemas = SCHEMAS.iter();
    let schemas = schemas.map(|(name, schema)| (format!("{PLACE}{name}{END}"), schema));
    let registry = Registry::new().extend(schemas).unwrap();
    registry.prepare().unwrap()
});

/// The schema of that name.
pub fn validator(name: &str) -> Validator {
    let schema = json!({ "$ref": format!("{PLACE}{name}{END}") });
    let options = jsonschema::options().with_registry(&REGISTRY);
    options
        .build(&schema)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// What a document has that the schema does not allow: each fault with its path in the document.
pub fn faults(validator: &Validator, document: &Value) -> BTreeSet<String> {
    let mut faults = BTreeSet::new();
    for error in validator.iter_errors(document) {
        add(&error, &mut faults);
    }
    faults
}

/// Adds a fault. Where a value fits none of several alternatives, what is wrong with each is added instead.
fn add(error: &ValidationError<'_>, faults: &mut BTreeSet<String>) {
    match error.kind() {
        ValidationErrorKind::OneOfNotValid { context } => {
            context
                .iter()
                .flatten()
                .for_each(|error| add(error, faults));
        }
        _ => {
            let text: String = error.to_string().chars().take(400).collect();
            faults.insert(format!("`{}`: {text}", error.instance_path()));
        }
    }
}

/// Fails if what a run with `--json` printed is not what the schema of its command says. Does nothing without
/// `--json`.
pub fn check(args: &[&str], stdout: &str, stderr: &str) {
    let Some(name) = document_of(args) else {
        return;
    };
    if !stdout.is_empty() {
        let document = serde_json::from_str(stdout);
        let document = match document {
            Ok(document) => document,
            Err(_) if is_text(&name, args) => return,
            Err(e) => panic!("{args:?}: {e}: {stdout}"),
        };
        judge(args, &name, &[document]);
    }
    if ["build", "render"].contains(&name.as_str()) {
        let lines = stderr.lines().filter(|line| line.starts_with("{\""));
        let events = lines.filter_map(|line| serde_json::from_str(line).ok());
        judge(args, EVENTS, &events.collect::<Vec<Value>>());
    }
}

fn judge(args: &[&str], name: &str, documents: &[Value]) {
    if documents.is_empty() {
        return;
    }
    let is_failure =
        |document: &Value| document["ok"] == false && document["diagnostics"].is_array();
    let validator = validator(name);
    for document in documents {
        if name != EVENTS && is_text(name, args) && !is_failure(document) {
            continue;
        }
        let faults: Vec<String> = faults(&validator, document).into_iter().collect();
        let faults = faults.join("\n");
        assert!(
            faults.is_empty(),
            "{args:?}: not as docs/json/{name}{END} says:\n{faults}\n{document:#}"
        );
    }
}

/// Returns the name of the schema of what a run prints. `None` for one without `--json` or without a command.
pub fn document_of(args: &[&str]) -> Option<String> {
    let own = args.iter().take_while(|arg| **arg != "--");
    let own: Vec<&str> = own.copied().collect();
    if !own.contains(&"--json") {
        return None;
    }
    let mut words = Vec::new();
    let mut is_value = false;
    for arg in own {
        if !is_value && !arg.starts_with('-') {
            words.push(arg);
        }
        is_value = WITH_VALUE.contains(&arg);
    }
    let (command, rest) = words.split_first()?;
    let name = match (*command, rest) {
        ("cache", [of_cache, ..]) => format!("cache-{of_cache}"),
        _ => (*command).to_owned(),
    };
    SCHEMAS.contains_key(&name).then_some(name)
}

/// Whether what the run gives, if it succeeds, is no document of its command but a text or the document of another
/// format.
fn is_text(name: &str, args: &[&str]) -> bool {
    let has = |options: &[&str]| args.iter().any(|arg| options.contains(arg));
    let is_help = has(&["--help", "-h", "--version", "-V"]);
    is_help
        || match name {
            "init" => args.contains(&"-"),
            "man" => !has(&["-o", "--output"]) || has(&["--markdown"]),
            "matrix" => has(&["--emit"]),
            "plan" => has(&["--dot"]),
            "explain" => has(&["--markdown"]),
            "sbom" => !has(&["-o", "--output"]),
            "run" => !has(&["--print"]),
            _ => false,
        }
}
