//! `stackforge cache`.

mod select;
mod table;

use super::Outcome;
use super::args::{CacheArgs, CacheCommand, Common};
use super::output::{Failure, json, print, print_status, warn};
use super::progress::Amount;
use super::session::runtime;
use stackforge_distribute::evidence::{EvidenceError, PrivateKey, PublicKey};
use stackforge_image::store::{HasSigned, Limits, Sign, Store, StoreError, Verified};
use stackforge_stack::config::{Config, Size};
use stackforge_stack::diag::{Diagnostic, Report, Source, codes};
use stackforge_types::Cancel;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

pub fn run(common: &Common, args: &CacheArgs) -> Outcome {
    let store = Store::open(common.store.as_deref())?;
    match &args.command {
        CacheCommand::Ls { all } => ls(common, &store, *all),
        CacheCommand::Gc {
            max_size,
            keep_days,
            all,
            dry_run,
        } => {
            let budget = max_size.or(Config::load()?.cache.max_size);
            let limits = Limits {
                max_size: budget.map(|Size(bytes)| bytes),
                keep: keep_days.map(|days| DAY * days),
                all: *all,
                dry_run: *dry_run,
            };
            gc(common, &store, &limits)
        }
        CacheCommand::Verify { repair } => verify(common, &store, *repair),
        CacheCommand::Export {
            to,
            stack,
            variant,
            key,
        } => {
            let key = key.as_deref().map(PrivateKey::read).transpose();
            let key = key.map_err(EvidenceError::from)?;
            let sign = key.map(|key| move |bytes: &[u8]| key.sign(bytes));
            let sign = sign.as_ref().map(|sign| sign as Sign<'_>);
            let selection = match stack {
                Some(stack) => Some(select::of_stack(common, &store, stack, variant.as_deref())?),
                None => None,
            };
            let done = with_progress(common, "export", |on_progress| {
                store.export(selection.as_ref(), sign, to, on_progress)
            })?;
            print_result(common, &done, &table::exported(&done, to));
            Ok(())
        }
        CacheCommand::Import { from, verify } => {
            let key = verify.as_deref().map(PublicKey::read).transpose();
            let key = key.map_err(EvidenceError::from)?;
            let has_signed = key.map(|key| move |b: &[u8], s: &[u8]| key.has_signed(b, s));
            let trusted = has_signed.as_ref().map(|f| f as HasSigned<'_>);
            let done = with_progress(common, "import", |on_progress| {
                store.import(from, trusted, on_progress)
            })?;
            print_result(common, &done, &table::imported(&done, from));
            Ok(())
        }
    }
}

fn print_result(common: &Common, value: &impl serde::Serialize, text: &str) {
    if common.json {
        json(value);
    } else {
        print(text);
    }
}

fn ls(common: &Common, store: &Store, all: bool) -> Outcome {
    let listing = store.list()?;
    if common.json {
        json(&serde_json::json!({
            "store": store.root(),
            "size": listing.size(),
            "actions": listing.actions,
            "images": listing.images,
            "entries": listing.entries,
        }));
    } else if all {
        print(&table::every(&listing));
    } else {
        print(&table::summary(&listing, store.root()));
    }
    Ok(())
}

fn gc(common: &Common, store: &Store, limits: &Limits) -> Outcome {
    let done = store.gc(limits)?;
    print_result(common, &done, &table::collected(&done, limits));
    if let Some(max) = limits.max_size
        && done.left > max
        && !limits.dry_run
    {
        let (left, over) = (table::size(done.left), table::size(done.left - max));
        let what = format!("{left} are kept, {over} more than the limit");
        let kept = Diagnostic::warning(codes::STORE_OVER_BUDGET, what);
        let kept = kept.help(table::why_kept(&done));
        warn(common, &Report::new(Source::default(), vec![kept]));
    }
    Ok(())
}

/// Reduces the store after a build to the configuration's `max_size`, if there is one.
pub(super) fn after_build(common: &Common, store: &Store, config: &Config) {
    let Some(Size(max)) = config.cache.max_size else {
        return;
    };
    let limits = Limits {
        max_size: Some(max),
        ..Limits::default()
    };
    let made_room = store.list().and_then(|listing| {
        if listing.size() > max {
            store.gc(&limits).map(Some)
        } else {
            Ok(None)
        }
    });
    match made_room {
        Ok(Some(done)) => {
            for line in table::collected(&done, &limits).lines() {
                print_status(common, line);
            }
        }
        Ok(None) => {}
        // The build succeeded, so a failure here is only a warning.
        Err(e) => tracing::warn!("{}", super::output::chain(&e)),
    }
}

fn verify(common: &Common, store: &Store, repair: bool) -> Outcome {
    let found = with_progress(common, "verify", |on_progress| {
        store.verify(repair, on_progress)
    })?;
    if found.is_clean() || found.repaired {
        print_result(common, &found, &table::verified(&found));
        return Ok(());
    }
    let diagnostics = faults(&found);
    let mut failure = Failure::new(1, Report::new(Source::default(), diagnostics));
    let document = serde_json::to_value(&found).unwrap_or_default();
    failure.json.insert("cache".into(), document);
    Err(failure)
}

fn faults(found: &Verified) -> Vec<Diagnostic> {
    let mut messages: Vec<String> = Vec::new();
    for blob in &found.damaged {
        let names = if blob.names.is_empty() {
            String::new()
        } else {
            format!(" ({})", blob.names.join(", "))
        };
        messages.push(match &blob.found {
            Some(other) => format!(
                "blob {}{names} is damaged: its bytes have {other}",
                blob.digest
            ),
            None => format!("blob {}{names} cannot be read", blob.digest),
        });
    }
    for object in &found.damaged_objects {
        let (name, library) = (&object.name, &object.library);
        messages.push(format!("object {name} of {library} is damaged"));
    }
    for key in &found.dangling {
        messages.push(format!("the record of step {key} names what is not there"));
    }
    for image in &found.incomplete {
        messages.push(format!("image `{image}` is not whole"));
    }
    if let Some(why) = &found.index {
        messages.push(format!("`index.json` cannot be read: {why}"));
    }
    let fault = |message| {
        Diagnostic::error(codes::STORE_DAMAGED, message).help(
            "`stackforge cache verify --repair` removes it, and the next run makes or fetches it again",
        )
    };
    messages.into_iter().map(fault).collect()
}

/// Runs work that may take long and shows progress; Ctrl-C cancels it.
fn with_progress<T>(
    common: &Common,
    what: &str,
    work: impl FnOnce(stackforge_image::store::OnProgress<'_>) -> Result<T, StoreError>,
) -> Result<T, Failure> {
    let runtime = runtime()?;
    let cancel = Cancel::new();
    {
        let _inside = runtime.enter();
        super::signals::stop_on_signal(&cancel);
    }
    let amount = Amount::new(common, what);
    let on_progress = |done: u64, total: u64| {
        amount.set(done, Some(total));
        !cancel.is_cancelled()
    };
    let done = work(&on_progress);
    amount.end();
    runtime.shutdown_background();
    Ok(done?)
}
