//! `stackforge update`.

use super::Outcome;
use super::args::{Common, UpdateArgs};
use super::output::{Failure, json, print, print_status};
use super::progress::Amount;
use super::push::plain_http;
use super::session::runtime;
use super::signals::stop_on_signal;
use stackforge_device::Device;
use stackforge_distribute::pull::{self, Machine, Wanted};
use stackforge_image::store::Store;
use stackforge_stack::config::Config;
use stackforge_stack::diag::{Diagnostic, codes};
use stackforge_transfer::RetryPolicy;
use stackforge_types::Cancel;
use stackforge_types::date::rfc3339;
use stackforge_update::{self as update, Job, Last, Settings, State, Step, UpdateError};
use std::sync::Arc;

pub fn run(common: &Common, args: &UpdateArgs) -> Outcome {
    let settings = Settings::read(&args.config)?;
    if args.status {
        return status(common, &settings);
    }
    if common.offline {
        return Err(Failure::of(
            Diagnostic::error(codes::OFFLINE, "an image is pulled over the network")
                .help("leave `--offline` out"),
        ));
    }
    if settings.verify.is_none() {
        tracing::warn!("no key in `verify`: whatever has the tag is believed");
    }
    let store = Store::open(common.store.as_deref())?;
    let config = Config::load()?;
    let catalog = stackforge_stack::catalog::load(common.catalog.as_deref())?;
    let wanted = Wanted::Machine(Machine::of(&Device::here(), &catalog));
    let amount = Arc::new(Amount::new(common, &settings.image.to_string()));
    let pull = pull::Settings {
        store: &store,
        config: &config,
        plain_http: plain_http(args.plain_http),
        patience: RetryPolicy::default(),
        rate: args.limit_rate.map(|rate| rate.0),
        observer: Some(amount.observer()),
    };
    let done = runtime()?.block_on(async {
        let cancel = Cancel::new();
        stop_on_signal(&cancel);
        let job = Job {
            settings: &settings,
            wanted: &wanted,
            pull: &pull,
            cancel: &cancel,
            retry: args.retry,
        };
        update::update(&job, &mut |line| print_status(common, line)).await
    });
    amount.end();
    let (last, state) = done?;
    report_outcome(common, &last, &state, false)
}

/// Reports the status from the state file alone.
fn status(common: &Common, settings: &Settings) -> Outcome {
    let state = update::read(&settings.state, &settings.place)?;
    if update::is_running(&settings.state) {
        let failure = Failure::from(UpdateError::UnderWay);
        return Err(failure.with("state", serde_json::json!(state)));
    }
    if let Some(state) = state.as_ref().filter(|state| state.step != Step::Idle) {
        let what = format!("{}: an update was interrupted", settings.image);
        let cut = Diagnostic::error(codes::UPDATE_FAILED, what);
        let cut = Failure::of(cut.help("the next update ends what it began"));
        return Err(cut.with("state", serde_json::json!(state)));
    }
    let Some((state, last)) = state.and_then(|state| state.last.clone().map(|last| (state, last)))
    else {
        let what = format!("{}: no update has run yet", settings.image);
        let none = Diagnostic::error(codes::UPDATE_FAILED, what);
        return Err(Failure::of(
            none.help("`stackforge update CONFIG` runs one"),
        ));
    };
    report_outcome(common, &last, &state, true)
}

/// Reports the end of a run. It is an error unless the service has the newest image.
fn report_outcome(common: &Common, last: &Last, state: &State, asked: bool) -> Outcome {
    use update::Outcome as End;
    let at = if asked {
        format!(
            "{}: ",
            rfc3339(u32::try_from(last.time).unwrap_or(u32::MAX))
        )
    } else {
        String::new()
    };
    let message = format!("{at}{}", last.said);
    let code = match last.outcome {
        End::UpToDate | End::Updated => {
            if common.json {
                json(&serde_json::json!({ "state": state }))
            } else {
                print(&format!("{message}\n"))
            }
            return Ok(());
        }
        End::Refused => codes::UPDATE_REFUSED,
        End::Failed => codes::UPDATE_FAILED,
        End::NeedsHelp => codes::UPDATE_NEEDS_HELP,
    };
    let help = match last.outcome {
        End::Refused => {
            "the service has the image before; `--retry` forgets what was refused".to_owned()
        }
        End::Failed => "the next update tries again".to_owned(),
        _ => "look at the service: it may not run".to_owned(),
    };
    let failure = Failure::of(Diagnostic::error(code, message).help(help));
    Err(failure.with("state", serde_json::json!(state)))
}
