//! Finds what the argument of `run` names, and says what happens meanwhile.

use super::super::args::{Common, RunArgs};
use super::super::output::{Failure, print_status, warn};
use super::super::progress::{Amount, mib};
use super::super::push::plain_http;
use super::subject::Subject;
use stackforge_device::Device;
use stackforge_distribute::pull::{Machine, Settings, Wanted};
use stackforge_run::locate::{Found, Named, Progress, Search};
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_stack::labels;
use stackforge_transfer::RetryPolicy;
use stackforge_transfer::registry::Reference;
use stackforge_types::printable::word;
use std::sync::Arc;

/// Finds the image, and pulls it if it is not here.
pub(super) async fn find(
    common: &Common,
    args: &RunArgs,
    search: &Search<'_>,
    subject: &Subject,
) -> Result<Found, Failure> {
    match subject {
        Subject::AtRest(at_rest) => Ok(Found::at_rest(at_rest.1.clone())),
        Subject::Root { path } => Ok(Found::root(path.clone(), search.store)),
        Subject::Stack { name, file, .. } => {
            let found = search.local(name, name).await?;
            found.ok_or_else(|| {
                let message = format!(
                    "{} is not built: there is no image `{name}`",
                    file.display()
                );
                let error = Diagnostic::error(codes::STACK_NOT_BUILT, message);
                Failure::of(error.help(build_command(subject)))
            })
        }
        Subject::Name(name) => match search.named(name).await? {
            Named::Here(found) => Ok(found),
            Named::Elsewhere(reference) => pulled(common, args, search, &reference).await,
        },
    }
}

/// Pulls what is not here, as `pull` does.
async fn pulled(
    common: &Common,
    args: &RunArgs,
    search: &Search<'_>,
    reference: &Reference,
) -> Result<Found, Failure> {
    if common.offline {
        return Err(Failure::of(
            Diagnostic::error(
                codes::OFFLINE,
                format!("{reference} is not here, and an image is pulled over the network"),
            )
            .help("leave `--offline` out"),
        ));
    }
    let config = Config::load()?;
    let wanted = match &args.variant {
        Some(name) => Wanted::Variant(name.clone()),
        None => {
            let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
            Wanted::Machine(Machine::of(&Device::here(), &catalog))
        }
    };
    let amount = Arc::new(Amount::new(common, &reference.to_string()));
    let settings = Settings {
        store: search.store,
        config: &config,
        plain_http: plain_http(args.plain_http),
        patience: RetryPolicy::default(),
        rate: None,
        observer: Some(amount.observer()),
    };
    let on = |progress: Progress<'_>| match progress {
        Progress::Left(bytes) => amount.expect(bytes),
        Progress::Fetched { bytes, kept } => {
            amount.end();
            let (fetched, kept) = (mib(bytes), mib(kept));
            print_status(
                common,
                &format!("{reference}: {fetched} fetched, {kept} there already"),
            );
        }
        other => say(common, other),
    };
    let search = Search {
        store: search.store,
        engine: search.engine,
        on: &on,
    };
    let found = search.pulled(reference, &wanted, &settings).await;
    amount.end();
    Ok(found?)
}

/// Says what happens while an image is found.
pub(super) fn say(common: &Common, progress: Progress<'_>) {
    let line = match progress {
        Progress::Bringing { name, engine } => format!("bringing {name} into {engine}"),
        Progress::NotInEngine { name, engine } => {
            format!("{engine} does not have {name}: running it without an engine")
        }
        Progress::Taken { variant, why } => format!("{variant}: {why}"),
        Progress::Left(_) | Progress::Fetched { .. } => return,
    };
    print_status(common, &line);
}

/// Warns of an image that an earlier form of the stack made.
pub(super) fn warn_if_changed(common: &Common, found: &Found, subject: &Subject) {
    let Subject::Stack {
        file,
        project,
        chosen,
        name,
    } = subject
    else {
        return;
    };
    // Without a lock, or if the stack cannot work, there is no plan to compare with.
    let Ok(planned) = project.plan(chosen) else {
        return;
    };
    let key = planned.plan.image_key().to_string();
    if found.labels.get(labels::KEY) == Some(&key) {
        return;
    }
    let warning = Diagnostic::warning(
        codes::STACK_CHANGED,
        format!("{} changed since `{name}` was built", file.display()),
    );
    warn(
        common,
        &project.report(vec![warning.help(build_command(subject))]),
    );
}

/// Returns the advice to build a stack.
fn build_command(subject: &Subject) -> String {
    let Subject::Stack {
        file,
        chosen,
        project,
        ..
    } = subject
    else {
        return String::new();
    };
    let file = file.display().to_string();
    let mut command = format!("stackforge build {}", word(&file));
    if project.file.single().is_none() {
        command += &format!(" --variant {}", word(chosen.stack.name()));
    }
    format!("run `{command}`")
}
