//! The keys of a stack file as a Markdown page.
//!
//! In: the JSON Schema of the stack file. Out: a line for each key, whose name is the path to it. It knows no key
//! by itself.

use serde_json::Value;
use std::fmt::Write as _;

/// Returns the page.
pub fn markdown(schema: &Value) -> String {
    let mut out = String::from(
        "# Keys of a stack file\n\nMade from the JSON Schema that `stackforge schema` prints; `make docs` writes it \
         anew. A key in bold is required. `NAME` stands for a name that you choose, `[]` for an entry of a list.\n\n\
         | key | value | what it does |\n|---|---|---|\n",
    );
    let keys = Keys { schema };
    keys.rows(&mut out, schema, "", &mut Vec::new());
    out
}

struct Keys<'a> {
    schema: &'a Value,
}

impl<'a> Keys<'a> {
    /// Writes a row for each key of an object, and below it those of its value. `open` are the definitions that
    /// lead here: a definition that leads to itself is written once.
    fn rows(&self, out: &mut String, object: &'a Value, path: &str, open: &mut Vec<&'a str>) {
        let required: Vec<&str> = array(object, "required")
            .filter_map(Value::as_str)
            .collect();
        for (name, value) in object["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let shown = if required.contains(&name.as_str()) {
                format!("**`{path}`**")
            } else {
                format!("`{path}`")
            };
            let what = self
                .description(value)
                .replace('\n', " ")
                .replace('|', "\\|");
            let kinds = self.kinds(value).join(" or ").replace('|', "\\|");
            // Writing to a String cannot fail.
            let _ = writeln!(out, "| {shown} | {kinds} | {what} |");
            self.below(out, value, &path, open);
        }
    }

    /// Follows a value to the objects that it may be.
    fn below(&self, out: &mut String, value: &'a Value, path: &str, open: &mut Vec<&'a str>) {
        if let Some(name) = value["$ref"].as_str() {
            if !open.contains(&name) {
                open.push(name);
                self.below(out, self.definition(name), path, open);
                open.pop();
            }
            return;
        }
        for choice in array(value, "anyOf").chain(array(value, "oneOf")) {
            self.below(out, choice, path, open);
        }
        if value["items"].is_object() {
            self.below(out, &value["items"], &format!("{path}[]"), open);
        }
        if value["additionalProperties"].is_object() {
            self.below(
                out,
                &value["additionalProperties"],
                &format!("{path}.NAME"),
                open,
            );
        }
        self.rows(out, value, path, open);
    }

    fn definition(&self, reference: &str) -> &'a Value {
        self.schema
            .pointer(reference.trim_start_matches('#'))
            .unwrap_or(&Value::Null)
    }

    /// The key's own description, else that of its type.
    fn description(&self, value: &'a Value) -> String {
        let own = value["description"].as_str().map(str::to_owned);
        let of_type = || {
            value["$ref"]
                .as_str()
                .map(|name| self.description(self.definition(name)))
        };
        let of_choice = || {
            let mut choices = array(value, "anyOf").filter(|c| c["$ref"].is_string());
            choices.next().map(|c| self.description(c))
        };
        own.or_else(of_type).or_else(of_choice).unwrap_or_default()
    }

    /// What the value may be, in words, each once.
    fn kinds(&self, value: &'a Value) -> Vec<String> {
        if let Some(name) = value["$ref"].as_str() {
            return self.kinds(self.definition(name));
        }
        let mut kinds: Vec<String> = array(value, "anyOf")
            .chain(array(value, "oneOf"))
            .flat_map(|choice| self.kinds(choice))
            .collect();
        let values = array(value, "enum").chain(value.get("const"));
        kinds.extend(values.filter_map(Value::as_str).map(|v| format!("`{v}`")));
        if kinds.is_empty() {
            let one = value.get("type").and_then(Value::as_str);
            let types = one
                .into_iter()
                .chain(array(value, "type").filter_map(Value::as_str));
            kinds.extend(types.filter_map(|t| self.kind(value, t)));
        }
        let mut seen = Vec::new();
        kinds.retain(|k| {
            !seen.contains(k) && {
                seen.push(k.clone());
                true
            }
        });
        kinds
    }

    fn kind(&self, value: &'a Value, json: &str) -> Option<String> {
        Some(match json {
            "null" => return None,
            "string" => "text".to_owned(),
            "boolean" => "true or false".to_owned(),
            "object" => "mapping".to_owned(),
            "array" => format!("list of {}", self.kinds(&value["items"]).join(" or ")),
            number => number.to_owned(),
        })
    }
}

fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_paths_and_a_type_that_holds_itself_ends() {
        let schema = json!({
            "required": ["a"],
            "properties": {
                "a": { "type": ["string", "null"], "description": "One | two\nlines." },
                "b": { "additionalProperties": { "$ref": "#/$defs/B" }, "type": "object" },
                "c": { "items": { "anyOf": [{ "$ref": "#/$defs/B" }, { "type": "string" }] }, "type": "array" }
            },
            "$defs": { "B": { "type": "object", "properties": {
                "self": { "$ref": "#/$defs/B", "description": "Again." },
                "way": { "enum": ["x", "y"] }
            } } }
        });
        let page = markdown(&schema);
        let rows: Vec<&str> = page
            .lines()
            .skip_while(|l| !l.starts_with("|---"))
            .skip(1)
            .collect();
        assert_eq!(
            rows,
            [
                "| **`a`** | text | One \\| two lines. |",
                "| `b` | mapping |  |",
                "| `b.NAME.self` | mapping | Again. |",
                "| `b.NAME.way` | `x` or `y` |  |",
                "| `c` | list of mapping or text |  |",
                "| `c[].self` | mapping | Again. |",
                "| `c[].way` | `x` or `y` |  |",
            ]
        );
    }
}
