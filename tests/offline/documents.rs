//! The schemas of the JSON documents: one for each command, well formed, and strict enough to find a change.
//! `tests/support/schemas.rs` holds every document that a test sees against them.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use support::schemas::{EVENTS, SCHEMAS, SHARED, document_of, faults, validator};
use support::{Sandbox, document, project};

/// Commands that print no JSON of their own: what they give is a script or a schema, and they have no reason to fail.
const WITHOUT: [&str; 2] = ["completions", "schema"];

/// The words of each command that has no commands below it, joined by `-`.
fn commands() -> BTreeSet<String> {
    let page = Sandbox::new().run(&["man", "--markdown"]).stdout;
    let headings = page
        .lines()
        .filter_map(|l| l.strip_prefix("### `stackforge "));
    let names: BTreeSet<String> = headings
        .map(|rest| rest.trim_end_matches('`').replace(' ', "-"))
        .collect();
    let is_group = |name: &str| names.iter().any(|n| n.starts_with(&format!("{name}-")));
    names
        .iter()
        .filter(|name| !is_group(name))
        .cloned()
        .collect()
}

/// Calls `judge` with each part of a schema.
fn each(schema: &Value, judge: &mut dyn FnMut(&serde_json::Map<String, Value>)) {
    match schema {
        Value::Object(object) => {
            judge(object);
            object.values().for_each(|value| each(value, judge));
        }
        Value::Array(items) => items.iter().for_each(|value| each(value, judge)),
        _ => {}
    }
}

#[test]
fn every_command_has_a_schema_and_every_schema_a_command() {
    let mut wanted = commands();
    assert!(wanted.len() > 25, "{wanted:?}");
    for name in WITHOUT {
        assert!(wanted.remove(name), "{name}");
    }
    wanted.extend([EVENTS, SHARED].map(str::to_owned));
    let there: BTreeSet<String> = SCHEMAS.keys().cloned().collect();
    assert_eq!(there, wanted);
    let page = std::fs::read_to_string(project("docs/json.md")).unwrap();
    for name in &there {
        let link = format!("](json/{name}.schema.json)");
        assert!(page.contains(&link), "docs/json.md does not name {name}");
    }
}

#[test]
fn schemas_are_valid_and_what_they_refer_to_is_there() {
    let mut references = 0;
    for (name, schema) in SCHEMAS.iter() {
        assert_eq!(
            schema["$schema"],
            "https://json-schema.org/draft/2020-12/schema"
        );
        if let Err(e) = jsonschema::meta::validate(schema) {
            panic!("{name}: {e} at {}", e.instance_path());
        }
        each(schema, &mut |part| {
            let Some(reference) = part.get("$ref").and_then(Value::as_str) else {
                return;
            };
            references += 1;
            let (file, place) = reference.split_once('#').unwrap();
            let of = match file.strip_suffix(".schema.json") {
                Some(other) => SCHEMAS.get(other),
                None => Some(schema),
            };
            let found = of.and_then(|schema| schema.pointer(place));
            assert!(found.is_some(), "{name}: {reference}");
        });
        validator(name);
    }
    assert!(references > 100);
}

#[test]
fn schemas_say_of_each_object_whether_it_may_have_other_keys_and_describe_each_key() {
    for (name, schema) in SCHEMAS.iter() {
        each(schema, &mut |part| {
            let Some(properties) = part.get("properties").and_then(Value::as_object) else {
                return;
            };
            // A condition names only what it asks about, and the branches of a union are closed.
            let is_condition = !part.contains_key("type");
            let is_union = part.contains_key("allOf") || part.contains_key("if");
            let is_said = part.contains_key("additionalProperties");
            assert!(
                is_condition || is_union || is_said,
                "{name}: {properties:?}"
            );
            for (key, property) in properties.iter().filter(|_| !is_condition) {
                let is_described = ["description", "$ref", "const"].map(|k| property.get(k));
                assert!(is_described.iter().any(Option::is_some), "{name}: {key}");
            }
        });
    }
}

#[test]
fn a_key_too_many_one_too_few_and_another_type_are_faults() {
    let sandbox = support::tiny();
    let good = document(&sandbox.run(&["check", "tiny.yaml", "--json"]));
    let schema = validator("check");
    assert_eq!(faults(&schema, &good), BTreeSet::new());
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        let faults: Vec<String> = faults(&schema, &document).into_iter().collect();
        faults.join("\n")
    };
    let more = changed(&|d| d["more"] = 1.into());
    assert!(more.contains("more"), "{more}");
    let fewer = changed(&|d| drop(d.as_object_mut().unwrap().remove("locked")));
    assert!(fewer.contains("locked"), "{fewer}");
    let other = changed(&|d| d["locked"] = "yes".into());
    assert!(other.contains("`/locked`"), "{other}");
    let below = changed(&|d| {
        let finding = json!({ "code": "SF0101", "severity": "fatal", "message": "m" });
        d["diagnostics"] = json!([finding]);
    });
    assert!(below.contains("`/diagnostics/0/severity`"), "{below}");
}

#[test]
fn the_command_of_a_run_is_found_wherever_its_options_stand() {
    let named = |args: &[&str]| document_of(args);
    assert_eq!(named(&["check", "check"]), None);
    assert_eq!(named(&["run", "image", "--", "--json"]), None);
    for (args, name) in [
        (&["--json", "--store", "plan", "check", "plan"][..], "check"),
        (&["cache", "--color", "never", "ls", "--json"], "cache-ls"),
        (&["run", "image", "--json", "--", "plan"], "run"),
    ] {
        assert_eq!(named(args).as_deref(), Some(name));
    }
}

#[test]
fn every_document_says_whether_its_command_succeeded() {
    let mut documents = 0;
    for (name, schema) in SCHEMAS.iter() {
        each(schema, &mut |part| {
            // What is inside of a document, such as a report, has a version of its own.
            let about = part.get("properties").map(|p| &p["schema"]["description"]);
            let about = about.and_then(Value::as_str).unwrap_or_default();
            if about.starts_with("Version of the form; a change") {
                documents += 1;
                let required = part["required"].as_array().unwrap();
                assert!(
                    required.iter().any(|key| key == "ok"),
                    "{name}: {required:?}"
                );
            }
        });
    }
    assert!(documents > 50, "{documents}");
}

#[test]
fn what_is_written_to_a_file_is_told_in_a_document() {
    let sandbox = support::tiny();
    let told = |args: &[&str]| document(&sandbox.run(args));
    let init = told(&["init", "--gpu", "h100", "-o", "new.yaml", "--json"]);
    assert_eq!(init["file"], "new.yaml");
    assert_eq!(init["next"], "build");
    assert!(sandbox.path("new.yaml").is_file());
    let man = told(&["man", "-o", "pages", "--json"]);
    assert_eq!(man["directory"], "pages");
    assert!(sandbox.path("pages/stackforge.1").is_file());
}
