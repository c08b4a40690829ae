//! A library that is compiled in seconds.

pub const MARKUPSAFE: &str = "\
schema: 1
library: markupsafe
distribution: markupsafe
about: test
imports: [markupsafe, markupsafe._speedups]
wheels: index
sources: [test]
build:
  source: sdist
  requires: [setuptools, wheel]
  jobs: { variable: MAX_JOBS, memory_gb: 0.1, source: test }
  metadata: { \"*\": { requires_python: \">=3.9\", requires_dist: [] } }
";
