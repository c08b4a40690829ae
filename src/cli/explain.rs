//! `stackforge explain`.

use super::Outcome;
use super::args::{Common, ExplainArgs};
use super::output::{Failure, json, print};
use stackforge_stack::diag::{Code, Diagnostic, codes};

pub fn run(common: &Common, args: &ExplainArgs) -> Outcome {
    if args.markdown {
        print(&stackforge_stack::diag::markdown());
        return Ok(());
    }
    let Some(text) = &args.code else {
        if common.json {
            let all: Vec<_> = codes::TABLE.iter().map(document).collect();
            json(&serde_json::json!({ "codes": all }));
        } else {
            let mut out = String::new();
            for e in codes::TABLE {
                out.push_str(&format!("{}  {}\n", e.code, e.title));
            }
            print(&out);
        }
        return Ok(());
    };
    let explanation = text.parse::<Code>().ok().and_then(Code::explanation);
    let Some(e) = explanation else {
        return Err(Failure::of(
            Diagnostic::error(codes::BAD_VALUE, format!("there is no code `{text}`"))
                .help("`stackforge explain` lists all codes"),
        ));
    };
    if common.json {
        json(&document(e));
    } else {
        let source = e.source.map(|s| format!("\nSource: {s}\n"));
        print(&format!(
            "{}: {}\n\n{}\n\nFix: {}\n{}",
            e.code,
            e.title,
            e.why,
            e.fix,
            source.unwrap_or_default()
        ));
    }
    Ok(())
}

fn document(e: &codes::Explanation) -> serde_json::Value {
    serde_json::json!({ "code": e.code, "title": e.title, "why": e.why, "fix": e.fix, "source": e.source })
}
