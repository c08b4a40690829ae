//! The command line's arguments.

use clap::{Args, Parser, Subcommand, ValueEnum};
use stackforge_build::Output;
use stackforge_distribute::evidence::EvidenceKind;
use stackforge_distribute::pull::Place;
use stackforge_gpu::DriverVersion;
use stackforge_run::{Gpus, Port, Variable, Volume};
use stackforge_stack::config::Size;
use stackforge_stack::spec::{Platform, PythonVersion};
use stackforge_transfer::registry::Reference;
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
    /// The command as it is typed.
    #[arg(skip)]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct Common {
    /// One JSON document on stdout in place of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print more to stderr; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Nothing on stderr but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// Where logs, records and downloads are kept
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "STACKFORGE_STORE",
        hide_env_values = true
    )]
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
    /// Start an image on this device with the right settings: GPUs, shared memory, models
    Run(RunArgs),
    /// Push an image to a registry, alone or as a variant of an index
    Push(PushArgs),
    /// Fetch the image, or the variant of it, that fits this device
    Pull(PullArgs),
    /// Bring this device's service to the newest image, if it is good on this device
    Update(UpdateArgs),
    /// Say what this machine is, what it can build and run, and what to install
    Doctor(DoctorArgs),
    /// Say what binaries need, whether they get it, and on which GPUs they run
    Audit(AuditArgs),
    /// Write the bill of materials of a stack: every file, its digest and its licence
    Sbom(SbomArgs),
    /// Attach SBOMs, provenance and reports to an image in a registry
    Attach(AttachArgs),
    /// Say what an image is and what is attached to it
    Inspect(InspectArgs),
    /// Sign an image in a registry
    Sign(SignArgs),
    /// Say whether a key has signed an image
    Verify(VerifyArgs),
    /// List, clean, verify and share what is kept between runs
    Cache(CacheArgs),
    /// Recognise known failures in a log
    Diagnose(DiagnoseArgs),
    /// Explain a diagnostic's code
    Explain(ExplainArgs),
    /// Print the JSON Schema of a stack file
    Schema(SchemaArgs),
    /// Print completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Every key as a Markdown page
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory to write a page for each command to, in place of stdout; made if it is missing
    #[arg(short, long, value_name = "DIR", conflicts_with = "markdown")]
    pub output: Option<PathBuf>,
    /// Every command as a Markdown page
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// GPU that the stack is for: a name from the catalog or `sm_90` (default: this machine's)
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// In place of this machine, the one whose root file system is mounted there
    #[arg(long, value_name = "DIR", conflicts_with = "gpu")]
    pub root: Option<PathBuf>,
    /// Start from what there is: requirements, a pyproject.toml, a Dockerfile, a conda environment.yml; `-` for stdin
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Base that a stack of a file stands on (default: the nearest on which `check` finds no error)
    #[arg(long, value_name = "NAME", requires = "from")]
    pub base: Option<String>,
    /// File to write; `-` for stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long)]
    pub force: bool,
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
    /// Write into the stack file what findings advise, then check it
    #[arg(long)]
    pub fix: bool,
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
    /// Fetch a registry's base and lock what it lacks file by file; the native engine needs that
    #[arg(long)]
    pub pull: bool,
}

#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Variant of a stack with a matrix (default: all of them)
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// The engine whose steps to print: with `auto`, Docker's if a build would ask it
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub engine: EngineChoice,
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
    /// Variant of a stack with a matrix; with `--kubernetes` may be repeated (default there: every variant)
    #[arg(long = "variant", value_name = "NAME")]
    pub variants: Vec<String>,
    /// Directory to write; must be new, empty, or rendered before. With `--compose` or `--kubernetes` the file
    /// (default there: stdout)
    #[arg(
        short,
        long,
        value_name = "DIR|FILE",
        required_unless_present = "service"
    )]
    pub output: Option<PathBuf>,
    /// Write a Compose file that starts the stack's service, by the digest of the image that was pushed or,
    /// without one, of the engine's
    #[arg(long, group = "service", conflicts_with = "kubernetes")]
    pub compose: bool,
    /// Write manifests for Kubernetes that start it: a Deployment for each variant, on the nodes with its GPUs
    #[arg(long, group = "service")]
    pub kubernetes: bool,
    /// Image or index of variants in a registry, in place of what this machine pushed
    #[arg(long, value_name = "REF", requires = "service")]
    pub image: Option<Reference>,
    /// `all`, or how many GPUs; 0 for none (default: all of a machine, one in a cluster)
    #[arg(long, value_name = "all|N", requires = "service", value_parser = gpu_count)]
    pub gpus: Option<stackforge_deploy::Gpus>,
    /// Size of /dev/shm, `8GB` for instance (default: half of this machine's memory, what a node allows)
    #[arg(long, value_name = "SIZE", requires = "service")]
    pub shm_size: Option<Size>,
    /// Size of each volume's claim
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "10GiB",
        requires = "kubernetes",
        conflicts_with = "compose"
    )]
    pub volume_size: Size,
    /// Talk plain HTTP to a registry that is not on this machine
    #[arg(long, requires = "image")]
    pub plain_http: bool,
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Variant of a stack with a matrix
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Every variant, on the engines that the configuration's `builders` name for their platforms
    #[arg(long, conflicts_with_all = ["variant", "tags"])]
    pub all_variants: bool,
    /// Reference of the image; may be repeated (default: the name of the stack or variant)
    #[arg(short, long = "tag", value_name = "REF")]
    pub tags: Vec<String>,
    /// Most compilers at once (default: what cores and memory allow)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Fail if the stack has no lock or changed since it was locked; otherwise it is locked first
    #[arg(long)]
    pub locked: bool,
    /// Run every step again
    #[arg(long)]
    pub no_cache: bool,
    /// Compile every object, and keep none for the next compile
    #[arg(long)]
    pub no_compile_cache: bool,
    /// Validate on a GPU of the engine or of this machine, and fail without one
    #[arg(long)]
    pub gpu: bool,
    /// What builds it: a Docker engine, or stackforge itself
    #[arg(long, value_enum, default_value_t = EngineChoice::Auto)]
    pub engine: EngineChoice,
    /// Where it goes: oci:DIR, oci-archive:FILE, docker or registry:REF, or index:REF, an
    /// index of variants; may be repeated (default: Docker where it answers)
    #[arg(short, long = "output", value_name = "WHERE")]
    pub outputs: Vec<Output>,
    /// Push it there: the same as `-o registry:REF`, or with `--index` as `-o index:REF`
    #[arg(long, value_name = "REF")]
    pub push: Option<Reference>,
    /// The reference is an index of variants, which gets this one
    #[arg(long, requires = "push")]
    pub index: bool,
    /// Talk plain HTTP to registries that are not on this machine
    #[arg(long)]
    pub plain_http: bool,
    /// How the native engine compresses layers that are not made of wheels
    #[arg(long, value_enum, default_value_t = CompressionChoice::Gzip)]
    pub compression: CompressionChoice,
}

/// What builds an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineChoice {
    /// Docker where it answers and something is compiled or its base is pulled, else native;
    /// `plan` says which
    Auto,
    /// A Docker engine, through its API
    Docker,
    /// stackforge itself: no daemon, no root, any platform
    Native,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompressionChoice {
    /// What every engine and registry takes
    Gzip,
    /// Smaller and faster; not for Docker before 23
    Zstd,
}

#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Image in the engine or, where that has none of the name, in the store; or what needs no
    /// engine: `oci:DIR[:TAG]`, `oci-archive:FILE`, `rootfs:DIR`, a root file system (`rootfs:/` is
    /// this machine)
    pub image: String,
    /// Run on the GPUs of the engine or, without one, of this machine
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
    /// Fail if a start takes longer than this YAML file allows:
    /// `import: { torch: { warm: 3s, cold: 12s } }`, `kernel: { warm: 5s }`
    #[arg(long, value_name = "FILE")]
    pub limits: Option<PathBuf>,
    /// Do not measure how long programs take to start
    #[arg(long, conflicts_with = "limits")]
    pub no_start: bool,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// A stack file, whose image is started; an image of the engine or the store; what needs no engine:
    /// `oci:DIR[:TAG]`, `oci-archive:FILE`, a root file system that `pull` wrote, `rootfs:DIR`; or a
    /// reference, which is pulled if it is not here
    #[arg(value_name = "IMAGE|STACK")]
    pub image: String,
    /// Arguments in place of the image's own; without an entry point in the image, the program too
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Variant of a stack with a matrix, or of an index that is pulled, whatever the device is
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// What runs it: a container engine, or stackforge itself
    #[arg(long, value_enum, default_value_t = RunEngine::Auto)]
    pub engine: RunEngine,
    /// `none`, `all`, or numbers such as `0,1` (default: what the device has)
    #[arg(long, value_name = "WHICH", default_value = "auto", hide_default_value = true, value_parser = gpus)]
    pub gpus: Gpus,
    /// Size of /dev/shm, `8GB` for instance (default: half of the memory)
    #[arg(long, value_name = "SIZE")]
    pub shm_size: Option<Size>,
    /// Directory of models, for HF_HOME (default: what HF_HOME, HF_HUB_CACHE, TRANSFORMERS_CACHE and
    /// TORCH_HOME name, and the Hugging Face cache if it is there)
    #[arg(long, value_name = "DIR", conflicts_with = "no_model_cache")]
    pub model_cache: Option<PathBuf>,
    /// Share no directory of models
    #[arg(long)]
    pub no_model_cache: bool,
    /// Port of the program that this device answers on, `[[ADDRESS:]HOST-PORT:]PORT[/udp]`; may be
    /// repeated
    #[arg(short, long, value_name = "PORT")]
    pub publish: Vec<Port>,
    /// Variable of the program; without a value, that of this shell; may be repeated
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<Variable>,
    /// Directory or file that the program sees, `SOURCE:TARGET[:ro]`; may be repeated
    #[arg(long, value_name = "VOLUME")]
    pub volume: Vec<Volume>,
    /// Name of the container
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Program in place of the image's entry point
    #[arg(long, value_name = "PROGRAM")]
    pub entrypoint: Option<String>,
    /// Leave the container running
    #[arg(short, long)]
    pub detach: bool,
    /// Print the `docker run` line and the reasons, and start nothing
    #[arg(long)]
    pub print: bool,
    /// Print it for the machine whose root file system is mounted there
    #[arg(long, value_name = "DIR", requires = "print")]
    pub root: Option<PathBuf>,
    /// Talk plain HTTP to a registry that is not on this machine
    #[arg(long)]
    pub plain_http: bool,
}

/// What runs an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunEngine {
    /// Docker or Podman where it answers, else native; what is at rest, native
    Auto,
    /// Docker or Podman
    Docker,
    /// stackforge itself, in namespaces: no daemon, no root
    Native,
}

/// Reads the GPUs that a service asks for.
fn gpu_count(text: &str) -> Result<stackforge_deploy::Gpus, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(stackforge_deploy::Gpus::All),
        (_, Ok(count)) => Ok(stackforge_deploy::Gpus::Count(count)),
        _ => Err("GPUs are `all` or a number".to_owned()),
    }
}

fn gpus(text: &str) -> Result<Gpus, String> {
    match text {
        "auto" => Ok(Gpus::Auto),
        text => text.parse(),
    }
}

#[derive(Debug, Args)]
pub struct PushArgs {
    /// `oci:DIR[:TAG]`, `oci-archive:FILE[:TAG]`, or the tag of an image that was built or pulled, of the
    /// store or else of the engine
    pub source: String,
    /// Where it goes: `REGISTRY/NAME:TAG`
    pub reference: Reference,
    /// Which image of one for several platforms: `linux/amd64` or `linux/arm64`
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
    /// The reference is an index of variants, which gets this one beside the others
    #[arg(long)]
    pub index: bool,
    /// Name of the variant (default: what the image's labels say)
    #[arg(long, value_name = "NAME", requires = "index")]
    pub variant: Option<String>,
    /// What the image's labels do not say of the variant: sm, ptx, cuda, driver, isa, l4t or stack;
    /// may be repeated
    #[arg(long = "fact", value_name = "NAME=VALUE", requires = "index")]
    pub facts: Vec<String>,
    /// Talk plain HTTP to a registry that is not on this machine
    #[arg(long)]
    pub plain_http: bool,
}

#[derive(Debug, Args)]
pub struct PullArgs {
    /// An image, or an index of variants: `REGISTRY/NAME[:TAG][@DIGEST]`
    pub reference: Reference,
    /// Where it goes besides the store: docker, oci:DIR, oci-archive:FILE or rootfs:DIR; may be
    /// repeated
    #[arg(short, long = "output", value_name = "WHERE")]
    pub outputs: Vec<Place>,
    /// Choose for this GPU: a name from the catalog or `sm_90` (default: this machine's)
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// Take this variant, whatever the device is
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Choose for this platform (default: this machine's)
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
    /// Choose for the machine whose root file system is mounted there
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Take only what this public key has signed: a PEM file, or `env://NAME`
    #[arg(long, value_name = "KEY")]
    pub verify: Option<String>,
    /// The repository that it has to be signed as, for a mirror (default: that of the reference); may be
    /// repeated
    #[arg(long, value_name = "NAME", requires = "verify")]
    pub verify_name: Vec<Reference>,
    /// Refuse an image that was signed before the one that was pulled under this name
    #[arg(long, requires = "verify")]
    pub no_downgrade: bool,
    /// Fetch no more than this in a second, `2MB` for instance
    #[arg(long, value_name = "SIZE")]
    pub limit_rate: Option<Size>,
    /// Images of this name that are kept besides the new one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=100))]
    pub keep: u32,
    /// Choose, say why, and fetch nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Talk plain HTTP to a registry that is not on this machine
    #[arg(long)]
    pub plain_http: bool,
}

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// The settings: which image, for which service
    pub config: PathBuf,
    /// Say how the last update ended and where this one stands, and do nothing
    #[arg(long)]
    pub status: bool,
    /// Forget which images were refused
    #[arg(long, conflicts_with = "status")]
    pub retry: bool,
    /// Fetch no more than this in a second, `2MB` for instance
    #[arg(long, value_name = "SIZE")]
    pub limit_rate: Option<Size>,
    /// Talk plain HTTP to a registry that is not on this machine
    #[arg(long)]
    pub plain_http: bool,
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
    /// Which image of one for several platforms, or which package: `linux/amd64` or `linux/arm64` (default:
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
pub struct SbomArgs {
    /// The stack file
    pub stack: PathBuf,
    /// Variant of a stack with a matrix
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Its form: SPDX 2.3 or CycloneDX 1.6, both as JSON
    #[arg(long, value_enum, default_value_t = SbomChoice::Spdx)]
    pub format: SbomChoice,
    /// File to write (default: stdout)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SbomChoice {
    Spdx,
    #[value(name = "cyclonedx")]
    CycloneDx,
}

#[derive(Debug, Args)]
pub struct AttachArgs {
    /// The image: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`; of an index the image that the stack made
    pub reference: String,
    /// Stack that it was built from, with the lock of that time
    #[arg(long, value_name = "STACK")]
    pub stack: PathBuf,
    /// Variant of that stack, where it has a matrix
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// A validation's report, as `validate -o` writes it (default: that of the build)
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Sign each document too: a private key in PEM, a file or `env://NAME`
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Who builds, for the provenance (default: the runner of GitHub or GitLab, else stackforge)
    #[arg(long, value_name = "URI")]
    pub builder: Option<String>,
}

#[derive(Debug, Args)]
pub struct InspectArgs {
    /// An image of a registry as `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`; of the engine as
    /// `docker:NAME`; at rest as `oci:DIR[:TAG]`, `oci-archive:FILE` or `docker-archive:FILE`
    pub image: String,
    /// Which image of one for several platforms: `linux/amd64` or `linux/arm64`
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<Platform>,
    /// Print one attached document: spdx, cyclonedx, provenance, audit or validation
    #[arg(long, value_name = "KIND", conflicts_with = "json")]
    pub print: Option<EvidenceKind>,
    /// Print it only if this public key has signed it: a PEM file, or `env://NAME`
    #[arg(long, value_name = "KEY", requires = "print")]
    pub key: Option<String>,
    /// The repository that it has to be signed as, for a mirror (default: that of the reference); may be
    /// repeated
    #[arg(long, value_name = "NAME", requires = "key")]
    pub verify_name: Vec<Reference>,
}

#[derive(Debug, Args)]
pub struct SignArgs {
    /// The image: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`
    #[arg(required_unless_present = "generate_key")]
    pub reference: Option<String>,
    /// Private key, ECDSA on P-256 in PEM: a file, or `env://NAME`
    #[arg(long, value_name = "KEY", required_unless_present = "generate_key")]
    pub key: Option<String>,
    /// For an index, sign each of its images too
    #[arg(long)]
    pub recursive: bool,
    /// Write a new pair of keys, `NAME.key` and `NAME.pub`, and sign nothing
    #[arg(long, value_name = "NAME", conflicts_with_all = ["reference", "key", "recursive"])]
    pub generate_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The image: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`
    pub reference: String,
    /// Public key in PEM: a file, or `env://NAME`
    #[arg(long, value_name = "KEY")]
    pub key: String,
    /// The repository that it has to be signed as, for a mirror (default: that of the reference); may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    pub verify_name: Vec<Reference>,
}

#[derive(Debug, Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List what is kept: how much of what, and when it was last used
    Ls {
        /// Every file and blob
        #[arg(long)]
        all: bool,
    },
    /// Make room: what was not used for longest goes first, what a running build uses never
    Gc {
        /// Keep at most this much, `20GB` for instance (default: the configuration's
        /// `cache.max_size`)
        #[arg(long, value_name = "SIZE")]
        max_size: Option<Size>,
        /// Remove what was not used for so many days
        #[arg(long, value_name = "N")]
        keep_days: Option<u32>,
        /// Images that have a name may go too
        #[arg(long)]
        all: bool,
        /// Say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Read every blob and compare it with its digest
    Verify {
        /// Remove what is damaged, so that it is fetched or made again
        #[arg(long)]
        repair: bool,
    },
    /// Write the cache as an OCI image layout, for machines without network and for CI
    Export {
        /// A file, or a directory: one that is there, or a name that ends in `/`
        to: PathBuf,
        /// Only what this stack needs
        #[arg(long, value_name = "STACK")]
        stack: Option<PathBuf>,
        /// Variant of that stack, where it has a matrix (default: all of them)
        #[arg(long, value_name = "NAME", requires = "stack")]
        variant: Option<String>,
        /// Sign it, so that `cache import --verify` takes its steps: a private key in PEM, a file or
        /// `env://NAME`
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
    },
    /// Take what `cache export` wrote, each blob verified
    ///
    /// Blobs are what their digests say, whoever wrote them. What steps gave (compiled wheels, layers,
    /// reports, finished images) is taken only with `--verify`, since builds hand it out; without it,
    /// steps are made again.
    Import {
        /// The file or the directory
        from: PathBuf,
        /// Take it only if this public key has signed it, and its steps too: a PEM file, or `env://NAME`
        #[arg(long, value_name = "KEY")]
        verify: Option<String>,
    },
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
