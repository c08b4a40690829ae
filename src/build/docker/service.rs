//! Puts the user's own files over the image of the Python environment, and gives it its configuration.

use super::super::base::io as failed_at;
use super::super::service::project as service_project;
use super::super::service::{
    Below, Ended, LAYER, account, added, check, dockerfile, of_environment, user, variables,
    within, write,
};
use super::super::{BuildError, BuildEvent, Built, Options, last};
use super::{build, image_push, project, renamed};
use crate::validate::Check;
use stackforge_engine::docker::Docker;
use stackforge_engine::{BuildRequest, ContextEntry, RunRequest, Source};
use stackforge_image::store::Action;
use stackforge_plan::{Plan, Service, StepId};
use stackforge_stack::labels;
use stackforge_types::{Cancel, Digest, LogStream};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;

/// Bytes of a check's output that are kept.
const OUTPUT: usize = 64 << 10;

/// Builds the environment, if the engine does not have it, and the image over it.
pub(super) async fn serve(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Built, BuildError> {
    let environment = plan.of_environment();
    let below = format!("stackforge/environment:{}", environment.key().short());
    let hidden = of_environment(options, vec![below.clone()]);
    let built = Box::pin(build(&environment, docker, &hidden, cancel, on)).await?;
    let start = Instant::now();
    on(BuildEvent::Phase { name: "service" });
    let temporary = docker.temporary(&format!("stackforge/build:{}", plan.key().short()));
    let wheel = project::wheel(plan, docker, options, &below, cancel, on).await?;
    let files = wheel.as_ref().map(|(wheel, _)| wheel);
    let images = (below.as_str(), temporary.as_str());
    let made = make(plan, docker, options, images, files, cancel).await;
    let checked = match made {
        Ok(id) => checked(plan, docker, options, &temporary, cancel, on)
            .await
            .map(|check| (id, check)),
        Err(e) => Err(e),
    };
    let report = checked.and_then(|(id, check)| {
        let report = match check {
            Some(check) => added(built.report.clone(), check),
            None => built.report.clone(),
        };
        if report.ok {
            return Ok((id, report));
        }
        let report = Box::new(report);
        Err(BuildError::Invalid { report })
    });
    let named = match &report {
        Ok((id, _)) => names(docker, id, options).await,
        Err(_) => Ok(()),
    };
    docker.remove_temporary(&temporary, report.is_ok()).await?;
    let (id, report) = report?;
    named?;
    let image = docker.image(&id).await?;
    let image = image.ok_or_else(|| BuildError::NoImage { image: id.clone() })?;
    let action = Action {
        step: StepId::Service.to_string(),
        image: Some(image.id.clone()),
        seconds: start.elapsed().as_secs_f64(),
        report: serde_json::to_value(&report).ok(),
        audit: serde_json::to_value(built.audit).ok(),
        ..Action::default()
    };
    options.store.record(plan.image_key(), &action)?;
    last::record(options.store, plan)?;
    renamed(options, &image.id)?;
    image_push::push(docker, &image.id, plan, options, cancel).await?;
    let mut steps = built.steps;
    for id in [StepId::Project, StepId::App, StepId::Service] {
        let found = id == StepId::Project && wheel.as_ref().is_some_and(|(_, found)| *found);
        if let Some(step) = plan.step(&id) {
            steps.push(super::StepResult {
                id: step.id.clone(),
                cached: found,
                seconds: start.elapsed().as_secs_f64(),
            });
        }
    }
    Ok(Built {
        id: image.id,
        tags: options.tags.clone(),
        size: image.size,
        layers: Vec::new(),
        steps,
        report,
        audit: built.audit,
        noop: false,
        log: built.log,
    })
}

async fn names(docker: &Docker, id: &str, options: &Options<'_>) -> Result<(), BuildError> {
    for tag in &options.tags {
        docker.tag(id, tag).await?;
    }
    Ok(docker.expect(&options.tags, &[id]).await?)
}

/// Builds the image under a temporary name. Returns its ID.
async fn make(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    (below, temporary): (&str, &str),
    wheel: Option<&Digest>,
    cancel: &Cancel,
) -> Result<String, BuildError> {
    let nothing = Service::default();
    let config = &plan.service().unwrap_or(&nothing).config;
    let image = docker.image(below).await?;
    let image = image.ok_or_else(|| BuildError::NoImage {
        image: below.to_owned(),
    })?;
    let env = variables(config, &image.env, &image.labels);
    let mut context = Vec::new();
    let mut account_of = None;
    // Kept until the engine has read it.
    let mut layer = None;
    if let Some((_, app)) = plan.app() {
        let installed = block_in_place(|| service_project::files(plan, options, wheel))?;
        let files = Below::in_engine(docker, below, app, &installed).await?;
        if let Some(user) = &app.user {
            account_of = Some(account(user, &files.passwd, &files.group)?);
        }
        let failed = |e| failed_at("write", Path::new(LAYER), e);
        let mut file =
            tempfile::NamedTempFile::new_in(options.store.dir("tmp")?).map_err(failed)?;
        let epoch = super::super::native::EPOCH;
        block_in_place(|| {
            let out = std::io::BufWriter::new(file.as_file_mut());
            let account = account_of.as_ref();
            let mut out = write(app, installed, account, &files, epoch, out)?;
            out.flush().map_err(failed)
        })?;
        context.push(ContextEntry {
            path: LAYER.into(),
            mode: 0o644,
            source: Source::File(file.path().to_owned()),
        });
        layer = Some(file);
    }
    let user = account_of.as_ref().map(user);
    let text = dockerfile(below, config, &env, user.as_deref(), layer.is_some());
    context.push(ContextEntry {
        path: "Dockerfile".into(),
        mode: 0o644,
        source: Source::Bytes(text.into_bytes()),
    });
    let request = BuildRequest {
        context,
        dockerfile: "Dockerfile".into(),
        tags: vec![temporary.to_owned()],
        labels: BTreeMap::from([(labels::KEY.to_owned(), plan.key().to_string())]),
        no_cache: options.no_cache,
        ..BuildRequest::default()
    };
    let log = options.store.new_log(&plan.variant)?;
    let built = docker.build(request, Some(&log), cancel, &mut |_| {}).await;
    drop(layer);
    Ok(built?.image_id)
}

/// Runs the user's own checks. `None` if there are none.
async fn checked(
    plan: &Plan,
    docker: &Docker,
    options: &Options<'_>,
    image: &str,
    cancel: &Cancel,
    on: &mut (dyn FnMut(BuildEvent) + Send),
) -> Result<Option<Check>, BuildError> {
    let Some(service) = plan.service().filter(|s| !s.checks.is_empty()) else {
        return Ok(None);
    };
    on(BuildEvent::Phase { name: "check" });
    let run = async |command: &[String], timeout: Duration, gpu: bool| {
        let request = RunRequest {
            image: image.to_owned(),
            entrypoint: Some(Vec::new()),
            cmd: command.to_vec(),
            gpus: gpu,
            network: Some("none".into()),
            output_limit: OUTPUT,
            ..RunRequest::default()
        };
        let mut ignore = |_: LogStream, _: &str| {};
        let ended = within(timeout, cancel, async |cancel: &Cancel| {
            docker.run(request, cancel, &mut ignore).await
        });
        Ok::<_, BuildError>(match ended.await {
            None => Ended {
                code: None,
                output: String::new(),
            },
            Some(outcome) => {
                let outcome = outcome?;
                Ended {
                    code: i32::try_from(outcome.exit_code).ok(),
                    output: format!("{}{}", outcome.stdout, outcome.stderr),
                }
            }
        })
    };
    check(&service.checks, options.gpu, run, |_| false)
        .await
        .map(Some)
}
