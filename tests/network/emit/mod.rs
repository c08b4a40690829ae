//! What `matrix --emit` writes is what its reader takes: a workflow, a pipeline and Jobs, each before a judge
//! of its kind from PyPI.

mod documents;
mod published;
mod python;
mod quoting;

use support::pipelines::{all, below, emit, emitted, single, small, with, yaml};
