//! Puts the user's own files over the image of the Python environment, and gives it its configuration.

use super::super::at_rest::environment;
use super::super::base::io as failed_at;
use super::super::service::{
    Below, Ended, account, added, check, document, not_run, of_environment, project, user,
    variables, within, write,
};
use super::super::unpacked::trees;
use super::super::{BuildError, BuildEvent, Built, Options, StepResult, existing, last};
use super::layers::NativeBuilder;
use super::{assemble, name, outputs, planned, size};
use crate::validate::{Check, Report};
use oci_spec::image::ImageConfiguration;
use stackforge_image::assemble::{Assembled, Draft};
use stackforge_image::store::Action;
use stackforge_plan::{Native, Plan, Service, StepId};
use stackforge_sandbox::{Root, Sandbox, User, Writes, gpu};
use stackforge_stack::labels;
use stackforge_stack::spec::Platform;
use stackforge_types::{Cancel, Digest, LogStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

/// Bytes of a check's output that are kept.
const OUTPUT: usize = 64 << 10;

/// Makes the image of `own`, the native plan of `plan`.
pub(super) async fn serve(
    plan: &Plan,
    own: &Plan,
    native: &Native,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Built, BuildError> {
    let environment = plan.of_environment();
    let hidden = of_environment(options, Vec::new());
    let below = Box::pin(assemble(&environment, native, &hidden, cancel, on)).await?;
    let environment = planned(&environment, native, options.store);
    let found = existing::recorded(options.store, &environment);
    let (image, _) = found.ok_or_else(|| BuildError::NoImage {
        image: below.id.clone(),
    })?;
    // Sizes of wheels are known by now, so steps may have other keys than before.
    let own = if own.image_key() == planned(plan, native, options.store).image_key() {
        own.clone()
    } else {
        planned(plan, native, options.store)
    };
    let start = Instant::now();
    let mut builder = NativeBuilder::new(&own, native, options, cancel, on);
    builder.steps = below.steps;
    let wheel = builder.project(&image).await?;
    let made = builder.service(&environment, &image, wheel.as_ref())?;
    let check = builder.own_checks(&made).await?;
    let report = match check {
        Some(check) => added(below.report, check),
        None => below.report,
    };
    if !report.ok {
        return Err(BuildError::Invalid {
            report: Box::new(report),
        });
    }
    builder.finished(&StepId::Service, start);
    let steps: Vec<StepResult> = std::mem::take(&mut builder.steps);
    record(&own, options, &made, &report, &below.audit, start)?;
    name(&made.digest, options)?;
    outputs::write(&made, &own, options, cancel, builder.on).await?;
    Ok(Built {
        id: made.digest.to_string(),
        tags: options.tags.clone(),
        size: size(&made.layers),
        layers: made.layers,
        steps,
        report,
        audit: below.audit,
        noop: false,
        log: None,
    })
}

/// Records the image, and what is known of it, for the next build and for other commands.
fn record(
    plan: &Plan,
    options: &Options<'_>,
    image: &Assembled,
    report: &Report,
    audit: &stackforge_audit::Count,
    start: Instant,
) -> Result<(), BuildError> {
    let report = serde_json::to_value(report).ok();
    let action = Action {
        step: StepId::Service.to_string(),
        outputs: image.blobs(),
        image: Some(image.digest.to_string()),
        seconds: start.elapsed().as_secs_f64(),
        report: report.clone(),
        audit: serde_json::to_value(audit).ok(),
        made: serde_json::to_value(&image.layers).ok(),
    };
    options.store.record(plan.image_key(), &action)?;
    let known = Action {
        step: "report".to_owned(),
        outputs: [("manifest".to_owned(), image.digest.clone())].into(),
        report,
        ..Action::default()
    };
    options.store.record(&image.digest, &known)?;
    Ok(last::record(options.store, plan)?)
}

impl NativeBuilder<'_, '_> {
    /// Makes the image's documents, and the layer of the user's own files if there are any.
    /// `wheel` is that of the app's own project.
    fn service(
        &mut self,
        environment: &Plan,
        below: &Assembled,
        wheel: Option<&Digest>,
    ) -> Result<Assembled, BuildError> {
        let plan = self.plan;
        let nothing = Service::default();
        let config = &plan.service().unwrap_or(&nothing).config;
        let mut layers = below.layers.clone();
        let mut account_of = None;
        if let Some((step, app)) = plan.app() {
            let files = block_in_place(|| {
                Below::of_layers(environment, self.options, |layers| self.image_of(layers))
            })?;
            if let Some(user) = &app.user {
                account_of = Some(account(user, &files.passwd, &files.group)?);
            }
            let (account, epoch) = (account_of.as_ref(), self.native.epoch);
            layers.push(block_in_place(|| {
                self.layer(step, |builder, file| {
                    builder.packed("the app", Vec::new(), file, |out| {
                        let installed = project::files(plan, builder.options, wheel)?;
                        write(app, installed, account, &files, epoch, out).map(drop)
                    })
                })
            })?);
        }
        let base: ImageConfiguration = serde_json::from_slice(&below.config)
            .map_err(|e| failed_at("read the image", Path::new("below the app"), e.into()))?;
        let known = base.config().as_ref();
        let env = known.and_then(|c| c.env().clone()).unwrap_or_default();
        let labels = known.and_then(|c| c.labels().clone()).unwrap_or_default();
        let labels = labels.into_iter().collect();
        let user = account_of.as_ref().map(user);
        let mut own_labels = config.labels.clone();
        own_labels.insert(labels::KEY.to_owned(), plan.key().to_string());
        let draft = Draft {
            platform: plan.platform,
            epoch: self.native.epoch,
            from_base: below.layers.len(),
            layers,
            env: variables(config, &env, &labels),
            cmd: Vec::new(),
            labels: own_labels,
            keys: document(config, user.as_deref()),
            base: Some(base),
        };
        let image = draft.assemble()?;
        self.store_documents(&image)?;
        Ok(image)
    }

    /// Runs the user's own checks. `None` if there are none.
    async fn own_checks(&mut self, image: &Assembled) -> Result<Option<Check>, BuildError> {
        let Some(service) = self.plan.service().filter(|s| !s.checks.is_empty()) else {
            return Ok(None);
        };
        (self.on)(BuildEvent::Phase { name: "check" });
        let platform = self.plan.platform;
        if Platform::host() != Some(platform) {
            let why = format!("{platform} does not run on this machine");
            return Ok(Some(not_run(why)));
        }
        let (store, threads, cancel) = (self.options.store, self.threads, self.cancel);
        let at_rest = self.at_rest(image)?;
        let layers = block_in_place(|| trees(store, &at_rest, threads, cancel))?;
        let sandbox = of_image(&at_rest.config, layers);
        let gpu = self.options.gpu;
        let run = async |command: &[String], timeout: Duration, gpu: bool| {
            run(&sandbox, command, timeout, gpu, cancel).await
        };
        let is_of_machine =
            |e: &BuildError| matches!(e, BuildError::Sandbox(e) if e.is_of_machine());
        match check(&service.checks, gpu, run, is_of_machine).await {
            Ok(check) => Ok(Some(check)),
            // The image is made correctly; it can be checked where it runs.
            Err(BuildError::Sandbox(e)) if e.is_of_machine() && !self.options.gpu => {
                Ok(Some(not_run(format!("{e}; {}", e.help()))))
            }
            Err(e) => Err(e),
        }
    }
}

/// Returns a sandbox as the image's configuration has it, without a command. What is written is discarded.
fn of_image(config: &ImageConfiguration, layers: Vec<PathBuf>) -> Sandbox {
    let numbers = config.config().as_ref().and_then(|c| c.user().as_deref());
    let user = numbers.and_then(user_of);
    let home = user.as_ref().map(|user| home(&layers, user.uid));
    let root = Root {
        layers,
        writes: Writes::Discard,
    };
    let mut sandbox = Sandbox::new(root, Vec::<String>::new());
    if let Some(config) = config.config() {
        let env = config.env().clone().unwrap_or_default();
        sandbox.env.extend(environment(&env));
        if let Some(dir) = config.working_dir().as_ref().filter(|dir| !dir.is_empty()) {
            sandbox.cwd = dir.into();
        }
    }
    sandbox.user = user;
    if let Some(home) = home {
        sandbox.env.entry("HOME".into()).or_insert(home.into());
    }
    sandbox
}

/// Reads a user as this module writes it into a configuration, by numbers. `None` for root.
fn user_of(numbers: &str) -> Option<User> {
    let (uid, gid) = numbers.split_once(':')?;
    let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
    let groups = vec![gid];
    (uid != 0 || gid != 0).then_some(User { uid, gid, groups })
}

/// Returns the home of a user by the highest `/etc/passwd`, as engines set `HOME`.
fn home(layers: &[PathBuf], uid: u32) -> String {
    let files = layers.iter().rev().map(|layer| layer.join("etc/passwd"));
    let text = files
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .next();
    let text = text.unwrap_or_default();
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|line| line.get(2).is_some_and(|id| *id == uid.to_string()));
    let home = line.and_then(|line| line.get(5).map(|home| (*home).to_owned()));
    home.unwrap_or_else(|| "/".to_owned())
}

async fn run(
    image: &Sandbox,
    command: &[String],
    timeout: Duration,
    gpu: bool,
    cancel: &Cancel,
) -> Result<Ended, BuildError> {
    let mut sandbox = image.clone();
    sandbox.command = command.iter().map(Into::into).collect();
    if gpu {
        let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let searched: Vec<PathBuf> = std::env::split_paths(&searched).collect();
        if let Some(access) = gpu::Access::find(Path::new("/"), &searched) {
            access.give(&mut sandbox);
        }
    }
    let mut output = String::new();
    let mut show = |_: LogStream, line: &[u8]| {
        if output.len() < OUTPUT {
            output.push_str(&String::from_utf8_lossy(line));
            output.push('\n');
        }
    };
    let ended = within(timeout, cancel, async |cancel: &Cancel| {
        sandbox.run(cancel, &mut show).await
    });
    let code = match ended.await {
        Some(outcome) => Some(outcome?.code()),
        None => None,
    };
    Ok(Ended { code, output })
}
