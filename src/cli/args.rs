//! What may be typed.

use crate::rules::DriverVersion;
use crate::spec::{Platform, PythonVersion};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// CUDA machine-learning stacks that work, as container images, from one YAML file.
#[derive(Debug, Parser)]
#[command(
    name = "stackforge",
    version,
    max_term_width = 100,
    propagate_version = true
)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// What was typed; refused where it asks for JSON and for what is none. Clap misses such a
    /// conflict when `--json` stands before the command.
    pub fn read() -> Result<Self, clap::Error> {
        let cli = Self::try_parse()?;
        let other = match &cli.command {
            Command::Matrix(a) if a.emit.is_some() => "--emit",
            Command::Plan(a) if a.dot => "--dot",
            Command::Explain(a) if a.markdown => "--markdown",
            _ => return Ok(cli),
        };
        match cli.common.json {
            false => Ok(cli),
            true => Err(Self::command().error(
                ErrorKind::ArgumentConflict,
                format!("the argument '{other}' cannot be used with '--json'"),
            )),
        }
    }
}

#[derive(Debug, Args)]
pub struct Common {
    /// One JSON document on stdout in place of text
    #[arg(long, global = true)]
    pub json: bool,
    /// More on stderr; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// When to colour
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Where logs, records and downloads are kept
    #[arg(long, global = true, value_name = "DIR", env = "STACKFORGE_STORE")]
    pub store: Option<PathBuf>,
    /// Catalog files that extend or replace the built-in ones (default: .stackforge beside the stack)
    #[arg(long, global = true, value_name = "DIR")]
    pub catalog: Option<PathBuf>,
    /// Never use the network
    #[arg(long, global = true)]
    pub offline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a starter stack for this machine or for a GPU
    Init(InitArgs),
    /// Say whether a stack can work on its target, why not, and what to change
    Check(CheckArgs),
    /// Choose the exact files of a stack and write its lock
    Lock(LockArgs),
    /// List the variants of a stack, and which combinations are refused
    Matrix(MatrixArgs),
    /// Print the steps of a build, their keys, and which are cached
    Plan(PlanArgs),
    /// Write a Dockerfile and its context
    Render(RenderArgs),
    /// Build, validate and tag the image
    Build(BuildArgs),
    /// Run the validation on an existing image
    Validate(ValidateArgs),
    /// Say what this machine is, what it can build and run, and what to install
    Doctor(DoctorArgs),
    /// Say what binaries need, whether they get it, and on which GPUs they run
    Audit(AuditArgs),
    /// Recognise the failures that a log tells of
    Diagnose(DiagnoseArgs),
    /// Explain a diagnostic's code
    Explain(ExplainArgs),
    /// Print the JSON Schema of a stack file
    Schema,
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// GPU that the stack is for: a name from the catalog or `sm_90` (default: this machine's)
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// In place of this machine, the one whose root file system is mounted there
    #[arg(long, value_name = "DIR", conflicts_with = "gpu")]
    pub root: Option<PathBuf>,
    /// File to write; `-` for stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct MatrixArgs {
    /// The stack file
    pub stack: PathBuf,
    /// In place of the list, a pipeline that builds every variant
    #[arg(long, value_enum, value_name = "WHERE")]
    pub emit: Option<Emit>,
    /// File to write the pipeline to; must be new, or written so before (default: stdout)
    #[arg(short, long, value_name = "FILE", requires = "emit")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// A workflow of GitHub Actions
    Github,
    /// A pipeline of GitLab CI/CD
    Gitlab,
    /// An array job
    Slurm,
    /// Indexed Jobs and their ConfigMap
    Kubernetes,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Answer for this GPU: a name from the catalog or `sm_90`
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// Answer for a machine with this NVIDIA driver, `580.65.06` for instance
    #[arg(long, value_name = "VERSION")]
    pub driver: Option<DriverVersion>,
    /// Memory of the machine that builds, in GB (default: this machine's)
    #[arg(long, value_name = "GB")]
    pub memory: Option<f64>,
}

#[derive(Debug, Args)]
pub struct LockArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Choose newer versions: of one library, or of all without a name
    #[arg(long, value_name = "LIB", num_args = 0..=1, default_missing_value = "*")]
    pub upgrade: Vec<String>,
    /// Choose newer OS packages, for when the mirror has dropped locked ones
    #[arg(long)]
    pub upgrade_os: bool,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Variant of a stack with a matrix (default: all of them)
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Which inputs changed since the last build
    #[arg(long)]
    pub why: bool,
    /// Print the graph in Graphviz' language
    #[arg(long, conflicts_with = "why")]
    pub dot: bool,
}

#[derive(Debug, Args)]
pub struct RenderArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Variant of a stack with a matrix
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Directory to write; must be new, empty, or rendered before
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Variant of a stack with a matrix
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Reference of the image; may be repeated (default: the name of the stack or variant)
    #[arg(short, long = "tag", value_name = "REF")]
    pub tags: Vec<String>,
    /// Most compilers at once (default: what cores and memory allow)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Run every step again
    #[arg(long)]
    pub no_cache: bool,
}

#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Image in the engine
    pub image: String,
    /// Run on the engine's GPUs
    #[arg(long)]
    pub gpu: bool,
    /// Stack that says what the image promises (default: what the image itself recorded)
    #[arg(long, value_name = "STACK")]
    pub stack: Option<PathBuf>,
    /// Variant of that stack, where it has a matrix
    #[arg(long, value_name = "NAME", requires = "stack")]
    pub variant: Option<String>,
    /// Write the report to a file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Read the files of the machine whose root file system is mounted there; nothing that runs
    /// (driver, PATH, engine, network) is asked
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// A shared object, a wheel or a directory by its path; an image as `docker:NAME`,
    /// `registry:NAME`, `oci:DIR[:TAG]`, `oci-archive:FILE` or `docker-archive:FILE`; a wheel of
    /// the index as `NAME==VERSION`
    pub target: String,
    /// GPU to judge device code for, a name from the catalog or `sm_90`, or `all`; may be repeated
    #[arg(long, value_name = "NAME")]
    pub gpu: Vec<String>,
    /// Python that imports it (default: what paths and tags say)
    #[arg(long, value_name = "VERSION")]
    pub python: Option<PythonVersion>,
    /// Of an image for several platforms, or a package: `linux/amd64` or `linux/arm64` (default:
    /// this machine's)
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
    /// Root file system of the base that it runs on
    #[arg(long, value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// Print the findings in SARIF 2.1.0
    #[arg(long, conflicts_with = "json")]
    pub sarif: bool,
}

#[derive(Debug, Args)]
pub struct DiagnoseArgs {
    /// A log of a build or a run; `-` for standard input (default: `-` when something is piped in)
    pub log: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A code such as SF0204; all of them without one
    pub code: Option<String>,
    /// All of them as a Markdown page
    #[arg(long, conflicts_with = "code")]
    pub markdown: bool,
}
