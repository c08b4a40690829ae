//! The assembled image before it has a name, for the common end of a build.

use super::super::audit::{AUDIT_PATH, AuditSpec};
use super::super::finish::{Candidate, Checked, Sealed, document};
use super::super::{BuildError, BuildEvent, StepResult, recorded};
use super::base::Base;
use super::environment::variables;
use super::layers::NativeBuilder;
use super::{name, outputs, size};
use crate::render;
use crate::validate::{Report, SPEC_PATH};
use stackforge_audit::{AtRest, Audit, Target};
use stackforge_image::Layer;
use stackforge_image::assemble::{Assembled, Draft};
use stackforge_image::store::Action;
use stackforge_plan::{Member, StepId};
use stackforge_stack::labels;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::scope;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

pub(super) struct UnnamedImage<'a, 'on> {
    builder: NativeBuilder<'a, 'on>,
    base: Base,
    layers: Vec<Layer>,
    image: Option<Assembled>,
}

impl<'a, 'on> UnnamedImage<'a, 'on> {
    pub fn new(builder: NativeBuilder<'a, 'on>, base: Base, layers: Vec<Layer>) -> Self {
        Self {
            builder,
            base,
            layers,
            image: None,
        }
    }

    /// Assembles and stores the documents of an image of these layers.
    fn assembled(
        &self,
        layers: Vec<Layer>,
        more: BTreeMap<String, String>,
    ) -> Result<Assembled, BuildError> {
        let plan = self.builder.plan;
        let mut labels = render::labels(plan);
        labels.extend(more);
        if self.builder.without_bytecode {
            labels.insert(labels::BYTECODE.to_owned(), "none".to_owned());
        }
        let draft = Draft {
            platform: plan.platform,
            epoch: self.builder.native.epoch,
            base: self.base.config.clone(),
            from_base: self.base.layers.len(),
            layers,
            env: variables(),
            cmd: vec!["python".to_owned()],
            labels,
            keys: Default::default(),
        };
        let image = draft.assemble()?;
        self.builder.store_documents(&image)?;
        Ok(image)
    }

    /// Returns the report of these layers from the store, or validates them.
    async fn validate(&mut self, content: &Assembled) -> Result<Report, BuildError> {
        let builder = &mut self.builder;
        let Some(step) = builder.plan.step(&StepId::Validate) else {
            return builder.validate(content).await;
        };
        let options = builder.options;
        let known = recorded::report(options.store, step, &self.layers)
            .filter(|report| !options.no_cache && (!options.gpu || report.has_gpu()))
            .filter(|report| !recorded::is_due(report, builder.plan));
        if let Some(report) = known {
            builder.found(step);
            return Ok(report);
        }
        let start = Instant::now();
        block_in_place(|| builder.ahead.name_trees(options.store, &self.layers))?;
        let report = builder.validate(content).await?;
        let seconds = start.elapsed().as_secs_f64();
        let action = recorded::validated(&report, &self.layers, seconds);
        options.store.record(&step.key, &action)?;
        builder.finished(&step.id, start);
        Ok(report)
    }
}

impl Candidate for UnnamedImage<'_, '_> {
    /// Both at once: imports take one processor at a time.
    async fn check(&mut self, audit_spec: &AuditSpec<'_>) -> Result<Checked, BuildError> {
        let content = self.assembled(self.layers.clone(), BTreeMap::new())?;
        let plan = self.builder.plan;
        let image = self.builder.at_rest(&content)?;
        let readings = self.builder.ahead.take_readings();
        let image = AtRest::new(&plan.variant, image).with_readings(readings);
        block_in_place(|| {
            scope(|scope| {
                let audit = scope.spawn(|| {
                    let start = Instant::now();
                    let audit = audit_spec.image(Target::Image(&image));
                    (audit, start.elapsed())
                });
                let report = Handle::current().block_on(self.validate(&content))?;
                (self.builder.on)(BuildEvent::Phase { name: "audit" });
                let (audit, audit_time) = audit.join().unwrap_or_else(|panic| resume_unwind(panic));
                Ok(Checked {
                    report,
                    audit: audit?,
                    audit_time,
                })
            })
        })
    }

    /// None: layers are made from locked wheels by digest, and pruning changes files.
    fn wheels(&self) -> Result<BTreeMap<String, PathBuf>, BuildError> {
        Ok(BTreeMap::new())
    }

    /// Adds a layer with the promise and the audit. The report names this machine and this time; inside the
    /// image it would change the digest of every build, so it is recorded beside it.
    async fn seal(
        &mut self,
        audit: &Audit,
        labels: BTreeMap<String, String>,
    ) -> Result<Sealed, BuildError> {
        let file = |path: &str, content: String| Member::File {
            path: path.to_owned(),
            content,
        };
        let evidence = [
            file(SPEC_PATH, self.builder.plan.promise()),
            file(AUDIT_PATH, document(audit)),
        ];
        let mut layers = self.layers.clone();
        layers.push(self.builder.evidence(&evidence)?);
        let image = self.assembled(layers, labels)?;
        let sealed = Sealed {
            id: image.digest.to_string(),
            size: size(&image.layers),
            layers: image.layers.clone(),
            outputs: image.blobs(),
        };
        self.image = Some(image);
        Ok(sealed)
    }

    async fn close(&mut self, _: Option<&Sealed>) -> Result<(), BuildError> {
        Ok(())
    }

    fn done(&mut self) -> Vec<StepResult> {
        std::mem::take(&mut self.builder.steps)
    }

    async fn publish(&mut self, _: &Sealed, report: &Report) -> Result<(), BuildError> {
        let Some(image) = &self.image else {
            return Ok(());
        };
        let NativeBuilder {
            plan,
            options,
            cancel,
            on,
            ..
        } = &mut self.builder;
        let known = Action {
            step: "report".to_owned(),
            outputs: [("manifest".to_owned(), image.digest.clone())].into(),
            report: serde_json::to_value(report).ok(),
            ..Action::default()
        };
        options.store.record(&image.digest, &known)?;
        name(&image.digest, options)?;
        outputs::write(image, plan, options, cancel, *on).await
    }

    fn log(&self) -> Option<PathBuf> {
        None
    }
}
