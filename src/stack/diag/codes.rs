//! The one table of codes: `stackforge explain`, the documentation and the tests read it.
//!
//! A code never changes its meaning; a retired one is not given out again.
//! SF00xx the stack file · SF01xx the target · SF02xx locking · SF03xx the machine and its
//! engine · SF04xx building · SF05xx validation · SF06xx compatibility ·
//! SF07xx failures recognised in logs · SF08xx this machine · SF09xx binaries and images ·
//! SF10xx publishing and pulling · SF11xx what is attached to images · SF12xx running images ·
//! SF13xx starting services elsewhere.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Number of a diagnostic, printed as `SF0001`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SF{:04}", self.0)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse()
            .map_err(|()| serde::de::Error::custom(format_args!("there is no code `{text}`")))
    }
}

impl std::str::FromStr for Code {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let digits = s
            .strip_prefix("SF")
            .or_else(|| s.strip_prefix("sf"))
            .unwrap_or(s);
        let number: u16 = digits.parse().map_err(|_| ())?;
        TABLE
            .iter()
            .find(|e| e.code.0 == number)
            .map(|e| e.code)
            .ok_or(())
    }
}

/// What `stackforge explain` prints.
pub struct Explanation {
    pub code: Code,
    pub title: &'static str,
    pub why: &'static str,
    pub fix: &'static str,
    /// Where a fact about other people's software comes from.
    pub source: Option<&'static str>,
}

impl Code {
    pub fn explanation(self) -> Option<&'static Explanation> {
        TABLE.iter().find(|e| e.code == self)
    }

    /// Returns what to do about it in general. An error or a finding may know more.
    pub fn fix(self) -> &'static str {
        self.explanation().map_or("", |e| e.fix)
    }

    /// Returns the exit status of a command that ends with an error of this code: 1 if the stack, the image or
    /// the build is bad, 2 for wrong usage or a file or image that is not there, 3 if the machine, its engine
    /// or the network lacks something, 4 and 5 for `update`, 130 after Ctrl-C.
    pub fn exit(self) -> u8 {
        match self {
            INTERRUPTED => 130,
            UPDATE_UNDER_WAY => 5,
            UPDATE_NEEDS_HELP => 4,
            RESOLVER_FAILED | PACKAGE_GONE | MIRROR_UNKNOWN | ENGINE_MISSING | ENGINE_GONE
            | NETWORK | NO_SPACE | ENGINE_REFUSED | GPU_UNAVAILABLE | STORE_IO | NEEDS_ENGINE
            | NEEDS_NATIVE | NEEDS_LINUX | STORE_DENIED | STORE_NO_LOCKS | STORE_NEWER | OFFLINE
            | NAMESPACES_REFUSED | OVERLAY_REFUSED | SANDBOX_FAILED | MISNAMED | ENGINE_TOO_OLD
            | ENGINE_FAULT | SLOW_STORAGE | OUTPUT_LOST | INDEX_BUSY | UPDATE_SERVICE | UPDATE_FAILED
            | NO_SUCH_GPU | PORT_IN_USE
            // What is found of this machine.
            | Self(800..=899) => 3,
            YAML_SYNTAX | UNKNOWN_KEY | WRONG_TYPE | DUPLICATE_KEY | MISSING_KEY | TOO_LARGE
            | BAD_SPECIFIER | UNKNOWN_GPU | UNKNOWN_BASE | EMPTY_LIBRARIES | BAD_NAME
            | BAD_PLATFORM | BAD_PYTHON | BAD_VALUE | BAD_REQUIREMENT | ALIAS_BOMB
            | BAD_REFERENCE | UNREADABLE | CONFIG_INVALID | PLACEHOLDER | UNKNOWN_ISA
            | UNKNOWN_VARIANT | CATALOG_INVALID | NO_EXPORTED_CACHE | NOTHING_TO_AUDIT
            | NO_SUCH_IMAGE | NO_SUCH_VARIANT | KEY_UNUSABLE | UPDATE_SETTINGS | UPDATE_STATE
            | UPDATE_FOREIGN | FOREIGN_KIND | FOREIGN_INVALID | FOREIGN_TOO_LARGE
            | NOTHING_TO_TAKE | STACK_NOT_BUILT | RUN_NEEDS_ENGINE | VOLUME_MISSING | NO_COMMAND
            | NOT_PUSHED | LIMITS_INVALID => 2,
            _ => 1,
        }
    }
}

macro_rules! codes {
    (@source) => { None };
    (@source $source:literal) => { Some($source) };
    ($($name:ident = $number:literal, $title:literal, $why:literal, $fix:literal $(, source $source:literal)?;)*) => {
        $(#[doc = $title] pub const $name: Code = Code($number);)*
        /// Every code there is, in order.
        pub const TABLE: &[Explanation] = &[
            $(Explanation {
                code: $name,
                title: $title,
                why: $why,
                fix: $fix,
                source: codes!(@source $($source)?),
            },)*
        ];
    };
}

codes! {
    YAML_SYNTAX = 1, "the file is not valid YAML",
        "A stack is one YAML document. The parser stopped at the underlined place, so nothing after it was read.",
        "Mend the syntax there; indentation and an unclosed quote or bracket are the usual causes.";
    UNKNOWN_KEY = 2, "a key that stacks do not have",
        "Unknown keys are refused rather than ignored: a misspelt key would silently not do what it says.",
        "Use the nearest valid key that the message names, or remove the line. `stackforge schema` prints all keys.";
    WRONG_TYPE = 3, "a value of the wrong type",
        "The key is known but its value has another type than it takes, a list where text is expected for instance.",
        "Write the value in the form that the message names. Versions need quotes: `3.10` without them is the number 3.1.";
    DUPLICATE_KEY = 4, "the same key twice",
        "YAML forbids it and parsers differ on which value wins, so one of the two would be lost in silence.",
        "Remove one of the two.";
    MISSING_KEY = 5, "a key that every stack needs is missing",
        "`stack`, `base`, `target`, `python` and `libraries` say what to build and have no sensible default.",
        "Add the key; `stackforge init` writes a complete starter stack.";
    TOO_LARGE = 6, "the file is larger than a stack can be",
        "Stacks are read whole, so their size, nesting and aliases are bounded: a hand-written stack stays far below 256 KiB.",
        "Check that the path names a stack file; split generated content into several stacks.";
    BAD_SPECIFIER = 7, "not a version specifier",
        "Versions are PEP 440 specifiers, as in pip: `2.13.0`, `2.13.*`, `>=0.32,<0.34`, or `auto`.",
        "Write one of these forms, in quotes.";
    UNKNOWN_GPU = 8, "a GPU that the catalog does not know",
        "The target's SM decides which wheels fit and which code compilers generate, so a guess is not possible.",
        "Use a name from `catalog/gpus.yaml` or an SM such as `sm_90`, or add the GPU to `.stackforge/gpus.yaml`.";
    UNKNOWN_BASE = 9, "a base that the catalog does not know",
        "A base is a name in images/ or an image reference pinned by digest (`NAME@sha256:…`).",
        "Use one of the names that the message lists, or pin your image by digest.";
    EMPTY_LIBRARIES = 10, "no libraries",
        "A stack without libraries would only copy its base.",
        "Name at least one library, `torch: \"2.13.*\"` for instance.";
    BAD_NAME = 11, "a name with characters it may not have",
        "Stack, library and package names end up in image tags, file names and Dockerfiles, so their grammar is strict.",
        "Use lower-case letters, digits, `-`, `_` and `.`, starting with a letter or digit.";
    BAD_PLATFORM = 12, "an unknown platform",
        "Images are built for `linux/amd64` or `linux/arm64`; CUDA has no others.",
        "Use one of the two.";
    BAD_PYTHON = 13, "not a Python version",
        "Wheels and bases are chosen by Python's major and minor version.",
        "Write `\"3.12\"`, in quotes.";
    BAD_VALUE = 14, "a value out of range",
        "The value parses but cannot mean anything here.",
        "Write what the message asks for: a value in its range or of its form.";
    BAD_REQUIREMENT = 15, "not a requirement",
        "`overrides` are PEP 508 requirements, as in a requirements file: `certifi>=2026.1`.",
        "Write a name, then optionally a specifier and a marker.";
    ALIAS_BOMB = 16, "aliases that expand without end",
        "A few lines of YAML aliases can expand to billions of nodes; stacks may not.",
        "Write the values out.";
    BAD_REFERENCE = 17, "not an image reference",
        "Images are named `[REGISTRY/]NAME[:TAG][@sha256:…]`.",
        "Correct the reference.";
    UNREADABLE = 18, "the file cannot be read",
        "The path does not exist, is a directory, is not UTF-8, or may not be read by this user.",
        "Check the path and its permissions.";
    CONFIG_INVALID = 19, "the user's configuration is wrong",
        "The configuration file names mirrors; it could not be read or holds something else.",
        "Correct the file that the message names, or point STACKFORGE_CONFIG at another.";
    PLACEHOLDER = 20, "a placeholder and the matrix do not agree",
        "`{{cuda}}` and `{{python}}` in a base stand for the value of that axis of `matrix`; a CUDA axis without its placeholder would build the same image several times.",
        "Add the axis to `matrix`, or write the placeholder where the base's name has the version.";
    UNKNOWN_ISA = 21, "an instruction set that the catalog does not know",
        "The instruction set decides with which flags libraries are compiled, and on which processors they run.",
        "Use a name from `catalog/cpus.yaml`, or add the instruction set to `.stackforge/cpus.yaml`.";
    NO_VARIANT = 22, "nothing is left of the matrix",
        "Each combination of the axes is checked like a stack of its own; here every one of them is refused.",
        "Change the base, a library or an axis as the reasons say; `stackforge matrix STACK` lists them.";
    UNKNOWN_VARIANT = 23, "a variant that the stack does not have",
        "A stack with a matrix stands for many images; plan, build, render and validate work on one of them.",
        "Name one with `--variant`; `stackforge matrix STACK` lists them.";
    SECRET_IN_IMAGE = 24, "a secret in an image",
        "What stands in `image.env` becomes part of the image's configuration: everybody who can pull the image reads it, and it stays in the registry when it is changed.",
        "Leave the variable out, and give it to the container when it starts: `docker run -e NAME`, a secret of Compose or Kubernetes, or a file whose path the variable holds.";
    GPU_VARIABLE = 25, "a variable by which containers get no GPU, or do not start",
        "NVIDIA's container toolkit reads NVIDIA_VISIBLE_DEVICES (which GPUs), NVIDIA_DRIVER_CAPABILITIES (which parts of the driver) and NVIDIA_REQUIRE_CUDA (what the machine must have) from the image. A GPU or a part that it does not know, or a condition that it cannot read, stops each container with a GPU before its program starts: `unknown device`, `unsupported capabilities found`, `requirement error`. `none`, `void` or an empty list of GPUs, or parts without `compute`, start containers in which CUDA finds no GPU. On a machine whose driver does not meet a condition, no container starts either: `unsatisfied condition`.",
        "Leave the variable out: stackforge writes `all`, `compute,utility` and the driver that the audit found. For one start, `docker run --gpus` and `-e NAME=VALUE` have precedence over the image; `-e NVIDIA_DISABLE_REQUIRE=1` leaves the conditions out.",
        source "NVIDIA Container Toolkit, Specialized Configurations with Docker; https://github.com/osrf/rocker/pull/182; https://github.com/NVIDIA/enroot/issues/207";
    FOREIGN_KIND = 40, "a file that `init --from` does not read",
        "`stackforge init --from` starts a stack from requirements, a pyproject.toml, a Dockerfile or a conda environment. Programs are not run, and other tools' locks say less than what they were made from.",
        "Give one of those files; the message says how to get one.";
    FOREIGN_INVALID = 41, "a file that is not what its name says",
        "`init --from` reads the file as the tool that it belongs to does, and that tool would refuse it too: a syntax error, or files that include each other.",
        "Correct the line that the message names.";
    FOREIGN_TOO_LARGE = 42, "a file is larger than people write them",
        "`init --from` reads at most 1 MiB and 64 files.",
        "Check that the path names the right file; split generated content off.";
    NOTHING_TO_TAKE = 43, "a file without a library",
        "A stack installs at least one library, and the file names none that it could.",
        "Add the libraries that the image needs, or start with `stackforge init --gpu NAME`.";
    CATALOG_INVALID = 101, "a catalog file is wrong",
        "The catalog (embedded, `--catalog DIR`, or `.stackforge/` beside the stack) is checked whole before it is used.",
        "Correct the file that the message names; catalog/README.md describes every key.";
    BASE_WITHOUT_PYTHON = 102, "the base does not have the wanted Python",
        "The interpreter comes from the base's own OS packages, which provide certain versions only.",
        "Use one of the versions that the base provides, or a base that provides the version.",
        source "the distributions' own package lists; the base's file in images/ names them";
    BASE_PLATFORM = 103, "the base does not exist for the target's platform",
        "A base is published, or can be bootstrapped, for certain platforms only.",
        "Use a base that lists the platform.",
        source "the base's file in images/";
    SM_NOT_IN_TOOLKIT = 104, "the CUDA toolkit has no such SM",
        "Each CUDA release compiles for a fixed set of SMs: sm_110 starts with CUDA 13.0, anything below sm_75 ends with 12.9.",
        "Use a base or torch whose CUDA knows the SM.",
        source "`ptxas --help` of the nvcc wheels 11.8.89 to 13.5.37";
    LIBRARY_REFUSED = 105, "the library cannot work on this target",
        "The catalog records a reason why no wheel and no source build of the library can work there.",
        "Follow the fix in the message.",
        source "the `refusals` of the library's file in catalog/libraries/, each with its own source";
    NO_SOURCE_RECIPE = 106, "no recipe to build the library from source",
        "A library from git, or one that the catalog describes, needs a `build:` section in its file; source distributions of others are built as they say themselves.",
        "Use `from: wheel`, or add a recipe under `.stackforge/libraries/`.",
        source "catalog/libraries/";
    SOURCE_ONLY = 107, "the library has no wheels",
        "Its project publishes source distributions only, so it must be compiled.",
        "Use `from: source` or `from: auto`.",
        source "the package index: flash-attn for instance has 77 sdists and no wheel";
    GPU_PLATFORM = 108, "the GPU does not exist on this platform",
        "The catalog records on which platforms a product exists: Jetson modules are arm64 only.",
        "Correct `target.platform` or `target.gpu`.",
        source "catalog/gpus.yaml, each entry with its own source";
    ISA_NOT_WITH_SM = 109, "no machine is known to have this GPU and this instruction set",
        "The catalog records with which CPU instruction sets each SM is built and used; another combination would be an image for a machine that nobody has.",
        "Leave the combination out, or record the machine in `.stackforge/gpus.yaml` (`isas`).",
        source "https://github.com/barstoolbluz/build-vllm (README, build matrix)";
    LOCK_MISSING = 201, "the stack has no lock",
        "Images are made of exact files with digests. `build` locks a stack that has no lock; with `--locked`, and for all other commands, there has to be one.",
        "Run `stackforge lock STACK` and commit the lock beside the stack.";
    LOCK_STALE = 202, "the lock was made for another stack",
        "The stack or a recipe changed in a way that can change what is installed. `build` locks what changed; with `--locked`, and for all other commands, the lock has to fit.",
        "Run `stackforge lock STACK`; unchanged libraries keep their versions.";
    LOCK_INVALID = 203, "the lock cannot be read",
        "The lock is written by stackforge and not meant to be edited.",
        "Restore it from version control or run `stackforge lock STACK`.";
    UNSATISFIABLE = 204, "no set of versions satisfies the stack",
        "Two requirements exclude each other; the resolver's explanation names them.",
        "Loosen one of them, or add an entry to `overrides`.";
    CPU_ONLY_TORCH = 205, "a CPU-only torch for a CUDA target",
        "The resolver had to pick a torch without CUDA to satisfy another requirement: such an image installs and never uses the GPU.",
        "Change the requirement that the message names, or pin `torch` to a CUDA release.",
        source "`torch/version.py` and the ELF of the torch wheels 2.4.1 to 2.15.0: those for aarch64 have no CUDA up to 2.10.0";
    SILENT_DOWNGRADE = 206, "a library was resolved far below what the stack means",
        "Another requirement got in the way and the resolver silently went back to an old release. A range that says from which minor release to which (`>=0.32,<0.34`) is taken at its word; `lock` says what it took.",
        "Pin the library to the version you want: the resolver then names the conflict. Or add an entry to `overrides`.";
    RESOLVER_FAILED = 207, "the resolver could not run",
        "Locking runs uv; it was not found, could not be fetched, or the index did not answer.",
        "Check the network and index configuration; `pip install uv` puts a uv on PATH.";
    NO_MATCHING_FILE = 208, "no file of a release fits the target",
        "The release exists but has no wheel for the platform, Python and glibc, and no recipe builds it from source.",
        "Choose another version, or `from: source` where a recipe exists.",
        source "the platform compatibility tags of wheels: PEP 425, PEP 600";
    PACKAGE_UNKNOWN = 209, "an OS package that the base's archive does not have",
        "Names of OS packages differ between distributions.",
        "Use the name that the distribution of the base uses.";
    PACKAGE_GONE = 210, "the mirror no longer has a locked OS package",
        "Debian's mirrors drop a version when a security or point release replaces it.",
        "Run `stackforge lock STACK --upgrade-os`, or configure a mirror that keeps snapshots.";
    MIRROR_UNKNOWN = 211, "no Debian mirror is configured",
        "Mirrors come from the configuration or the host's apt sources; stackforge has none built in.",
        "Set STACKFORGE_DEBIAN_MIRROR to a mirror's address.";
    BASE_UNPINNED = 212, "the base image is not pinned by digest",
        "Its registry was not reachable when the stack was locked, so the lock names a tag, which can move.",
        "Run `stackforge lock STACK` where the registry answers.";
    SCRIPT_UNKNOWN = 213, "a package's maintainer script is not understood",
        "What packages' scripts would leave is written without running them where all were read: debhelper's own sections, and those of crates/debian/scripts.yaml by their digest. A script that changed is not guessed at but run, by dpkg in a sandbox. That needs a base with dpkg, and a machine that runs programs of the stack's platform.",
        "Use a base with dpkg; for another platform, install qemu-user-static and binfmt-support.";
    EXTRAS_LACKING = 214, "a library lacks what its own extras bring",
        "Its objects need libraries of CUDA that neither a wheel of the stack nor the base has, so its import or its first use of the GPU would fail. Its metadata lists distributions with them as extras, which a requirement has to name.",
        "Name the extras in the library's entry, `\"onnxruntime-gpu[cuda,cudnn]\": auto` for instance; `stackforge check --fix` does.";
    FILE_UNFIT = 215, "a file that the stack names is not what it is named for",
        "It is of another distribution, or for another Python, platform or a newer glibc than the image's; or its content is not what `sha256` or the lock says.",
        "Name a file that fits. If its content was changed on purpose, run `stackforge lock` with `--upgrade`.";
    ENGINE_MISSING = 301, "no container engine answers",
        "The docker engine is reached through DOCKER_HOST or its default socket.",
        "Start Docker (`systemctl start docker`), set DOCKER_HOST, or check that you may use the socket (group `docker`).";
    ENGINE_GONE = 302, "the engine went away in the middle",
        "The connection broke while the engine was working, because it was stopped, restarted or ran out of memory.",
        "Look at the engine's own log, start it, and run the same command again: finished steps are cached.";
    NETWORK = 303, "a download failed",
        "The server could not be reached, refused, or broke off repeatedly.",
        "Check the network, proxy variables and CA bundle (SSL_CERT_FILE), then run the command again: finished downloads are kept.";
    NO_SPACE = 304, "the disk is full",
        "CUDA stacks take tens of gigabytes while they are built.",
        "Free space where the engine or the store keeps its data; `docker system df` shows the engine's part.";
    ENGINE_REFUSED = 305, "the engine refused a request",
        "The engine answered with an error that is neither a failed step nor a lost connection.",
        "Read the engine's message; update the engine if it says that something is not supported.";
    GPU_UNAVAILABLE = 306, "the engine cannot give containers a GPU",
        "A container gets a GPU by a CDI specification that its engine reads, by the NVIDIA Container Toolkit, or on a Jetson by NVIDIA's runtime. The engine has none of these.",
        "Install nvidia-container-toolkit, configure the engine with `nvidia-ctk` and restart it; or validate without `--gpu`, and run with `--gpus none`.",
        source "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html";
    STORE_IO = 307, "the store cannot be written",
        "Logs, records and downloads are kept below the store directory.",
        "Check its permissions and free space, or name another with `--store DIR`.";
    NEEDS_ENGINE = 308, "something has to run that the native engine cannot run",
        "The native engine assembles files and compiles on this machine's own platform; here a library has to be compiled for another one, or the base's own package manager has to run first.",
        "Build with `--engine docker`; what it compiles is kept in the store, and later builds without an engine use it.";
    NEEDS_NATIVE = 309, "only the native engine builds this",
        "A base without a shell runs no step of a Dockerfile. stackforge's own engine lays the files of such an image itself, and runs compilers beside it; with `prune: true` it also leaves device code out of wheels, which no step of a Dockerfile does.",
        "Build with `--engine native`; or name the base that has a shell, the same name without `-slim`, or leave `prune` out.";
    VARIANTS_LEFT = 310, "not every variant was built",
        "`build --all-variants` gives each variant to an engine that is free and goes on when one fails or an engine is lost. Some failed, or no engine for their platform was left.",
        "Read what each said, mend it, and run the same command again: what is built is found, not built again.";
    STORE_DENIED = 320, "the store may not be written",
        "The store's directory, or its file system, is read-only for this user.",
        "Change its owner or mode, or name another directory with `--store DIR`.";
    STORE_NO_LOCKS = 321, "the store's file system has no locks",
        "Several processes share a store through locks of the kernel, which some network file systems do not have.",
        "Put the store on a local file system with `--store DIR` or STACKFORGE_STORE; `stackforge cache export` carries it elsewhere.";
    STORE_NEWER = 322, "the store is of a newer stackforge",
        "A newer release has changed how the store is laid out, and this one would damage it.",
        "Update stackforge, or name another directory with `--store DIR`.";
    STORE_DAMAGED = 323, "the store is damaged",
        "A blob has other bytes than its digest says, or something names a blob that is missing: the disk failed, or another program changed a file.",
        "Run `stackforge cache verify --repair`: what is damaged is removed, and fetched or made again by the next run.";
    NO_EXPORTED_CACHE = 324, "nothing that can be imported",
        "`cache import` reads an OCI image layout, a directory or an uncompressed tar, as `cache export` writes it. Each blob is verified, and names of files stay inside the store.",
        "Export it again, and check that it was copied whole.";
    OFFLINE = 325, "a file is missing and stackforge is offline",
        "With `--offline` nothing is fetched, and the store does not have every file that is needed.",
        "Run it once without `--offline`, or bring the files with `stackforge cache import`.";
    STORE_OVER_BUDGET = 326, "the store stays over its limit",
        "What running builds use, images with a name and files of the last day are not removed for a size.",
        "Wait for the builds, or let images go with `stackforge cache gc --all`.";
    NAMESPACES_REFUSED = 330, "this machine does not let this user make namespaces",
        "Without a container engine, programs run in namespaces that stackforge makes itself. A kernel setting, a security module or a container around this process forbids that.",
        "Change the setting that the message names, or run as root; `stackforge doctor` says what works here.",
        source "user_namespaces(7), and Ubuntu's restriction: https://discourse.ubuntu.com/t/spec-unprivileged-user-namespace-restrictions-via-apparmor-in-ubuntu-23-10/37626";
    OVERLAY_REFUSED = 331, "layers cannot be put over each other here",
        "A root is made of unpacked layers by the kernel's overlay file system. An ordinary user may mount one since Linux 5.11; the written directory's file system must keep extended attributes, which NFS for instance does not.",
        "Put the store on a local file system, use a newer kernel, or run as root.",
        source "https://docs.kernel.org/filesystems/overlayfs.html";
    SANDBOX_FAILED = 332, "a program's surroundings could not be set up",
        "Something that every run needs, a mount or a file of the root, could not be had.",
        "Do what the message says; Linux 5.12 or newer is needed.";
    PROGRAM_MISSING = 333, "a program is not in the root file system",
        "The program, or the interpreter or loader that it names, is missing there, cannot be executed, or is for another processor.",
        "Install it in the root, or name a root that has it.";
    UNSIGNED_CACHE = 334, "an exported cache that the key has not signed",
        "`cache import --verify KEY` takes an export only if KEY's private half has signed it: what its steps say of its blobs is believed by every later build.",
        "Write it with `stackforge cache export --key`, or import it without `--verify`: then blobs are taken by their digests, and steps are made again.";
    NEEDS_LINUX = 335, "only Linux can do this",
        "Without a container engine, programs of an image run in namespaces of Linux's kernel, and images are unpacked into directories only where the file system keeps owners, devices and every name: macOS takes `a` and `A` for one. Checking, locking, planning, builds by an engine, images made of wheels, pushing, pulling to a layout, audits and diagnoses work elsewhere too.",
        "Use a container engine, Docker Desktop for instance (`--engine docker`), and `-o docker` or `-o oci:DIR` in place of `-o rootfs:DIR`; or start stackforge on Linux: in a container or a virtual machine.";
    MISNAMED = 360, "the engine does not have the image under its name",
        "After an image was built or loaded the engine is asked for it by each of its names. One of them is not there, or is another image.",
        "Run the same command again. If the name is still not there, the engine's own log says why.";
    ENGINE_TOO_OLD = 361, "the engine is too old for this build",
        "Podman before 4.4 loses what a step mounts from another stage when that stage comes from its cache: the step fails, or takes other files.",
        "Use Podman 5 or newer, Docker 20.10 or newer, or the native engine (`--engine native`).", source "https://github.com/containers/buildah/issues/4375";
    ENGINE_FAULT = 362, "the engine's release has a fault that only its own project can mend",
        "Builds work. What is named was seen in this release: after a failure or an interruption the engine may not do what it should.",
        "Do what the message says when it happens, or use another release or engine.";
    OUTPUT_LOST = 363, "the output could not be written",
        "Stdout did not take all of the result: its disk is full, for instance. The command has done what it was asked to, and a part of what it said is missing.",
        "Make space, and run the command again; what is done is found, not done again.";
    SLOW_STORAGE = 364, "the engine's storage driver is slow",
        "Measured with Docker 20.10 on one machine: steps that write many files took two to four times as long with fuse-overlayfs as with overlay2, and the whole demo 4 min 2 s in place of 2 min 26 s. vfs copies all files of a layer for each step.",
        "Set Docker's storage driver to overlay2 (with containerd's store: overlayfs), Podman's to overlay. That needs a file system such as ext4 or xfs below the engine's data, and existing images have to be made again.";
    STEP_FAILED = 401, "a build step failed",
        "A command of the Dockerfile ended with an error; its last lines are shown and its whole log is kept.",
        "Read the last lines, then the whole log at the path that is shown; finished steps are cached for the next run.";
    KILLED_FOR_MEMORY = 402, "a build step was killed for memory",
        "The kernel killed the compiler. stackforge has retried once with half the parallel jobs.",
        "Set `jobs: 1` on the library, add swap, or build on a machine with more memory.";
    HASH_MISMATCH = 403, "a file does not have the locked digest",
        "The index served other bytes than those that were locked.",
        "Do not ignore this: check the index or mirror. If a release was really replaced, lock again.";
    INTERRUPTED = 404, "interrupted",
        "Ctrl-C or a signal stopped the command; what it started was stopped too.",
        "Run it again: finished steps are cached.";
    TEMPLATE = 405, "a template could not be rendered",
        "A template from `--catalog` uses a value that it is not given, or is malformed.",
        "Correct the template; the message names the file and line.";
    COMPILE_OFFLINE = 420, "a compile wants to download",
        "Compiles run foreign code, so they have no network and no settings of package indexes. Build requirements, the source and its git submodules are fetched before; this build fetches something else by itself.",
        "Name the repository and its commit in `fetch` of the recipe, use a source that has it (git with `submodules: true`), add it to `requires` or `packages`, or set in `env` the switch with which the build leaves it out or uses the system's.";
    NOT_THE_LOCKS = 430, "the image does not hold what the lock says",
        "The distributions that are installed in the finished image are compared with the lock, and compiled ones with the wheel that was audited. A difference means that the engine took a layer of another build from its cache.",
        "Run the build again with `--no-cache`. If it comes back, remove the engine's build cache (`docker builder prune`, `podman image prune`) and report it.";
    APP_UNFIT = 431, "the app does not fit the base",
        "The user that `image.user` asks for is in the base with other numbers, or a file would be written through a link of the base, so that it would land elsewhere; or the wheel of the app's project cannot be installed beside the locked ones.",
        "Change the name, the numbers, the path or the project as the message says.";
    APP_CHANGED = 432, "a file of the app changed during the build",
        "What the plan read decides the image's key, so a file with other content is not put into it.",
        "Run the build again.";
    VALIDATION_FAILED = 501, "the image does not validate",
        "A check inside the image failed, so the image was not given its tag.",
        "The table shows the check and the reason; the report holds the traceback.";
    NO_REPORT = 502, "the validation left no report",
        "The container ended before the report was written.",
        "Look at the output above; check that the image has a working Python.";
    AUDIT_FAILED = 503, "what was built does not fit the stack",
        "Each compiled wheel is read before it is used, and the image before it gets its tag. One of them holds binaries that would fail at import or at the first kernel.",
        "Each finding names the object, its code and what to do; `stackforge explain CODE` says more.";
    LIMITS_INVALID = 510, "limits of a start that cannot be read",
        "`validate --limits FILE` reads a YAML file: `import` with libraries, `kernel`, and below each `warm` and `cold` with a time, or with `{ at_most: TIME, required: false }`. A limit that is misread would never fail.",
        "Mend the underlined place: `import: { torch: { warm: 3s, cold: 12s } }`, `kernel: { warm: 5s }`.";
    LIMIT_EXCEEDED = 511, "a start that takes longer than is allowed",
        "The time from a new process until a library is imported, or until the first kernel has given its result, is longer than the file of `--limits` allows. `cold` is without what the page cache had of the image's files.",
        "Find out what grew: `python -X importtime -c 'import LIBRARY'` in the image. Byte code (`bytecode: true`) shortens a warm start, `prune: true` a cold one. On a slower machine, allow more.";
    LIMIT_NOT_MEASURED = 512, "a limit on a start that was not measured",
        "The file of `--limits` has a limit on something that this run could not measure: the first kernel without a GPU, a cold start where the page cache keeps the files, or a library that the image does not have. A limit that nobody checks would seem to be kept.",
        "Validate where it can be measured, with `--gpu` for the kernel; or write the limit as `{ at_most: TIME, required: false }`.";
    DRIVER_TOO_OLD = 601, "the driver is too old for the CUDA of the stack",
        "Every CUDA release needs a driver of its own age. Within one major release an older driver will do (minor-version compatibility), across majors it will not: `CUDA driver version is insufficient for CUDA runtime version`.",
        "Update the driver to the version that the message names, or use a base and a torch with an older CUDA.",
        source "https://docs.nvidia.com/cuda/archive/13.2.2/cuda-toolkit-release-notes/index.html (tables 2 and 3)";
    DRIVER_CANNOT_JIT = 602, "the driver cannot compile the stack's PTX",
        "Minor-version compatibility holds for SASS only. Code that a GPU gets as PTX, because a library has no SASS for it or because Triton or NVRTC made it, needs a driver as new as the toolkit that wrote the PTX: `the provided PTX was compiled with an unsupported toolchain`.",
        "Update the driver to the version that the message names, or use libraries with SASS for the GPU.",
        source "https://docs.nvidia.com/deploy/cuda-compatibility/ (minor version compatibility: limitations)";
    TOOLKIT_SKEW = 603, "parts of different CUDA toolkits in one environment",
        "NVIDIA's components version independently as wheels, so a resolver may set an nvcc or nvJitLink of one CUDA beside a runtime of another. An nvJitLink older than its users lacks their symbols; PTX of an nvcc newer than the driver does not load.",
        "Bring the components to one CUDA with an entry in `overrides`, or update the driver.",
        source "`uv pip compile` of vLLM 0.33.0 (nvcc 13.5.37 beside cudart 13.0.96); versioned symbols of libnvJitLink.so.12";
    SM_NOT_COVERED = 604, "a library has no code for the GPU",
        "SASS runs on its own major compute capability from its minor on, with exceptions for Tegra and for the suffixes a and f; PTX is compiled by the driver for newer GPUs. Where a library has neither: `no kernel image is available for execution on the device`.",
        "Use a release whose wheel has the SM, or build the library from source for it.",
        source "torch/cuda/__init__.py of torch 2.15.0 (DEVICE_REQUIREMENT); SASS and PTX lists measured with `cuobjdump -all` on the wheels";
    CXX11_ABI = 605, "two C++11 ABIs in one process",
        "libstdc++ has two layouts of std::string. An extension that was built with the other one than torch fails to load: `undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSs`.",
        "Use the wheel whose name has the ABI of your torch (`cxx11abiTRUE` from torch 2.7 on), or build from source.",
        source "`torch._C._GLIBCXX_USE_CXX11_ABI` and the symbols of the torch wheels 2.4.1 to 2.15.0";
    CXX_STANDARD = 606, "a build asks for an older C++ than torch's headers",
        "torch's headers stop below C++20 from 2.14 on, and some setup.py files ask for C++17 by name: the build fails in its first file.",
        "Let the recipe's patch apply, or use a torch before 2.14.",
        source "`g++ -fsyntax-only` of torch/python.h: 2.13.0 accepts C++17, 2.14.1 does not";
    PINS_EXCLUDE = 607, "two libraries that exclude each other",
        "Libraries with compiled extensions pin one exact torch, because its C++ interface changes with every release. Two that pin different ones cannot share an environment.",
        "Choose releases that pin the same version, as the message proposes, or build two images.",
        source "METADATA of the wheels: vLLM 0.33.0 pins torch 2.14.0, sglang-kernel 0.4.10 torch 2.14.1";
    WRONG_PAIR = 608, "a version that another library does not accept",
        "torch, triton, torchvision and torchaudio are released in sets, and extensions belong to one torch. A mixed set installs where metadata is overridden or missing, and fails at import: `operator torchvision::nms does not exist`.",
        "Use the version that the message names.",
        source "METADATA of the wheels, in `releases` of catalog/libraries/";
    PTXAS_TOO_OLD = 609, "Triton's assembler does not know the GPU",
        "Triton compiles kernels with a ptxas of its own, which knows only the SMs of its CUDA: `ptxas fatal: Value 'sm_110a' is not defined for option 'gpu-name'`. torch works in eager mode then; torch.compile does not.",
        "Use the triton that the message names, with the torch that pins it, or set TRITON_PTXAS_PATH (TRITON_PTXAS_BLACKWELL_PATH in Triton 3.6) to a newer ptxas.",
        source "`ptxas --help` inside the triton wheels; https://github.com/vllm-project/vllm/issues/34470";
    OTHER_CUDA_MAJOR = 610, "a library for another CUDA major",
        "A wheel links the CUDA runtime of one major release. Beside a torch of another it fails at import (`libcudart.so.12: cannot open shared object file`) or loads a second CUDA into the process.",
        "Use a release that is built for the CUDA of your torch, or build it from source.",
        source "NEEDED entries of the wheels: xformers 0.0.35 needs libcudart.so.12, torch 2.15 brings 13";
    ARCH_IGNORED = 611, "an arch variable that the build ignores or refuses",
        "Builds read their SMs from different variables, and some pass over values that they do not know without a word: FLASH_ATTN_CUDA_ARCHS=110 makes no code for sm_110.",
        "Leave the variable out: stackforge sets what the recipe needs from `target.gpu`.",
        source "setup.py of flash-attn 2.8.3.post2; torch/utils/cpp_extension.py of torch 2.9.1 to 2.15.0";
    CUDNN_FLOOR = 612, "cuDNN has no code for the GPU",
        "cuDNN drops old GPUs before CUDA does, and single releases lack Jetson's SMs: convolutions then fail at run time.",
        "Build torch with USE_CUDNN=0, or use the cuDNN that the message names.",
        source "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/support-matrix.html; SASS of the nvidia-cudnn wheels";
    COMPILER_TOO_NEW = 613, "the base's GCC is newer than nvcc accepts",
        "nvcc refuses host compilers above a ceiling: `unsupported GNU version! gcc versions later than 13 are not supported`. torch's extension builder has ceilings of its own.",
        "Use a base with an older GCC or a newer CUDA.",
        source "crt/host_config.h of the nvcc wheels; CUDA_GCC_VERSIONS in torch/utils/cpp_extension.py";
    MANY_SMS = 614, "more SMs than a build takes at once",
        "A macro of CCCL 2.8 (`_CCCL_PP_SPLICE_WITH_IMPL20`), which CUDA 12.9 holds, garbles code that is made for 16 SMs or more in one compile, some of it without an error.",
        "Name fewer GPUs in the stack, take one variant per SM with `matrix:`, or use another CUDA.",
        source "https://github.com/NVIDIA/cccl/issues/4967; galaxyproject/KegAlign PR #40; https://github.com/barstoolbluz/build-vllm (bitsandbytes)";
    WRONG_JETPACK = 615, "a base that does not run on this Jetson",
        "On Jetson the driver is part of L4T, so an image fits certain JetPack releases: generic CUDA images fail on JetPack 6 (cuBLAS execution fails although the device is seen), CUDA 12 images of r36 on JetPack 7.2 (CUDA error 801).",
        "Use one of the bases that the message names.",
        source "https://github.com/dusty-nv/jetson-containers (l4t_version.py); catalog/jetson.yaml";
    TOO_MANY_LAYERS = 616, "more layers than an engine takes",
        "Docker refuses images deeper than 125 layers: `max depth exceeded`.",
        "Use a base with fewer layers.",
        source "https://github.com/moby/moby (maxLayerDepth in layer/layer_store.go)";
    COMPILE_MEMORY = 617, "not enough memory to compile",
        "One nvcc job of this library needs more memory than the machine has: the kernel will kill it, often after an hour.",
        "Build on a machine with more memory, add swap, or use a release with a wheel for the GPU.",
        source "`jobs.source` of the library's file in catalog/libraries/";
    EDITABLE = 618, "an editable install",
        "An editable install points back to the source tree that it was built in. In an image that tree is gone or incomplete: a Triton installed so imports, and has no `triton.language`.",
        "Name the library with `from: source` and its `git` and `ref`: it is then built into a wheel.",
        source "a field report from a Jetson AGX Thor";
    PACKAGES_CLASH = 619, "packages that do not work beside each other",
        "Two distributions own the same files, or rely on each other's undeclared versions: pip and uv install both without a word.",
        "Follow the fix in the message.",
        source "catalog/conflicts.yaml and `same_modules` of catalog/metadata.yaml, each entry with its own source";
    KNOWN_FAULT = 620, "a known fault of this release",
        "The catalog records something that does not work, or not as it seems, in this release of the library on this target.",
        "Follow the fix in the message; if you do not use the part that fails, leave it.",
        source "`known` of the library's file in catalog/libraries/, each entry with its own source";
    TOOLKIT_MISMATCH = 621, "the base's CUDA is not torch's",
        "torch's extension builder refuses an nvcc of another major release than the CUDA that torch was built with: `The detected CUDA version (12.8) mismatches the version that was used to compile PyTorch (13.0)`.",
        "Use a base with torch's CUDA, or one without CUDA: stackforge then brings the toolkit that fits.",
        source "torch/utils/cpp_extension.py (_check_cuda_version) of torch 2.9.1 to 2.15.0";
    BUILD_OPTION = 622, "an option that the library's build does not have",
        "`options` of a library say which parts of it are not compiled. Each recipe has its own: their names, their parts and the releases that have them are in the catalog, because each is an edit of the library's source. A library that is installed from a wheel has none.",
        "Use an option that the message names, or remove the line.",
        source "`options` of the library's file in catalog/libraries/";
    OPTION_NEEDED = 623, "a library needs what an option leaves out",
        "Another library of the stack uses the part that is not compiled. The part answers with an error when it is called, which may be hours into a run.",
        "Remove the option, unless the library is used without that part.",
        source "`options` of the library's file in catalog/libraries/, each with what it loses and who needs it";
    LIBRARY_MISNAMED = 624, "a wrong name for a library",
        "People write this name and mean a library that PyPI has under another. What PyPI has under this one is nothing, a placeholder, or somebody else's package: a build would fail late, or install something that nobody asked for. With `indexes` in the stack, or `index` at the library, nothing is said: that index may have its own.",
        "Write the name in the message; `stackforge check --fix` does it.",
        source "`misnomers` of catalog/metadata.yaml: PyPI's files of each name";
    NOT_RECOGNISED = 700, "nothing in the log is recognised",
        "No pattern of catalog/diagnoses.yaml, or of your own `.stackforge/diagnoses.yaml`, matches a line of the log.",
        "Look for the first line with `error`, not the last. To have it recognised next time, add it to `.stackforge/diagnoses.yaml`.";
    LIBRARY_MISSING = 701, "a shared library is missing",
        "The loader found none of the name that a program or extension was linked with, most often the library of another CUDA major.",
        "Use a build for the CUDA that is installed, or install the package that holds the library.";
    LOG_CXX11_ABI = 702, "an extension has the other C++ ABI than torch",
        "GCC has two layouts of `std::string` and marks symbols with the one they use. An extension built with one cannot call a torch built with the other.",
        "Take or build the extension with the ABI of the torch that is installed; `torch.compiled_with_cxx11_abi()` tells it.";
    TORCH_SKEW = 703, "an extension was built for another torch",
        "torch's C++ interface changes with each minor release, so an extension works with the one that it was compiled against.",
        "Install the release of the extension that was made for this torch, or build it from source against it.";
    LIBRARY_SKEW = 704, "libraries of different releases are mixed",
        "One library asks another for a symbol or version that the one found first does not have.",
        "Install all of them from one release, and remove others from `LD_LIBRARY_PATH`.";
    SYSTEM_LIBRARY_OLD = 705, "a binary needs a newer C or C++ library",
        "The binary was linked on a newer distribution than the one that it runs on. glibc cannot be replaced inside an image.",
        "Use a newer base image, or a build for an older one (a lower `manylinux` tag).";
    NO_KERNEL_IMAGE = 706, "there is no code for this GPU",
        "A CUDA binary holds code for the SMs that it was compiled for, and perhaps PTX for newer ones. None of it runs on this GPU.",
        "Build the library for the GPU's SM, or use a release that has it.";
    PTX_UNSUPPORTED = 707, "the driver cannot compile this PTX",
        "PTX made by a newer CUDA toolkit than the driver knows, or for another SM, cannot be compiled when it is loaded.",
        "Build for the GPU's SM itself, use a toolkit no newer than the driver, or update the driver.";
    MEMORY_EXHAUSTED = 708, "out of memory",
        "The kernel killed a process for memory, or refused it more. Compilers of CUDA templates take gigabytes per job.",
        "Run fewer jobs at once (`MAX_JOBS=1`, `stackforge build -j 1`), or give the machine or container more memory or swap.";
    GPU_MEMORY_EXHAUSTED = 709, "the GPU has too little memory",
        "An allocation on the GPU failed: the model, its cache or another process fills it.",
        "Use a smaller batch, context or model, or end what else uses the GPU (`nvidia-smi` shows it).";
    SHARED_MEMORY = 710, "/dev/shm is too small",
        "A container has 64 MiB of shared memory unless told otherwise; data loaders and NCCL need more.",
        "Run the container with `--shm-size=8g` or `--ipc=host`.";
    DISK_FULL = 711, "the disk is full",
        "A write failed for want of space or quota: of the disk, of the engine's data directory or of a small `/tmp`.",
        "Free space (`docker system prune`), or point `TMPDIR` or the engine's data at a larger disk.";
    HOST_COMPILER_REFUSED = 712, "nvcc refuses the host compiler",
        "Each CUDA release accepts host compilers up to a version; its headers stop at newer ones.",
        "Install an older compiler and name it with `NVCC_PREPEND_FLAGS='-ccbin g++-13'`, or use a newer toolkit.";
    SM_UNKNOWN = 713, "a compiler does not know the SM",
        "Each toolkit accepts a range of SMs: new ones came later, old ones were dropped (CUDA 13 starts at sm_75).",
        "Remove the SM from the list or use a toolkit that has it; catalog/cuda.yaml lists them.";
    LOG_TOOLKIT_SKEW = 714, "the CUDA toolkit is not the one that torch has",
        "Extensions of torch must be compiled with a toolkit of the same CUDA major as torch itself, and of the version that they ask for.",
        "Install the toolkit of torch's CUDA (`torch.version.cuda`) and point `CUDA_HOME` at it.";
    TOOLKIT_MISSING = 715, "the build finds no CUDA toolkit",
        "nvcc or CUDA's headers are not there: runtime images and torch's wheels do not hold the compiler.",
        "Build in a devel image or install the toolkit, and set `CUDA_HOME`.";
    LOG_CXX_STANDARD = 716, "the headers need a newer C++ standard",
        "torch's headers need C++20 from torch 2.14 on and C++17 before; the build asks the compiler for an older one.",
        "Change `-std=` in the library's build, or use a torch whose headers accept it.";
    CCCL_REFUSED = 717, "CUDA's C++ headers (CCCL) do not fit the build",
        "Thrust, CUB and libcu++ must come from one release, and older ones take only so many SMs at once.",
        "Compile for the target's SMs only, and remove other copies of these headers from the include path.";
    LINK_FAILED = 718, "the linker does not find a symbol or library",
        "A static library must stand after the objects that use it, and a library must be in one of the searched directories.",
        "Move `-l` options behind the objects, or name the library's directory with `-L`.";
    BUILD_REQUIREMENT = 719, "the build imports a module that is not there",
        "A build runs in an environment of its own with only the requirements that it declares; some import torch or packaging without declaring it.",
        "Install the module first and build with `--no-build-isolation`.";
    BUILD_TOOL = 720, "a program that the build needs is missing or too old",
        "Source builds run a compiler, CMake, Ninja, git or Rust; slim images hold none of them.",
        "Install it where the build runs (`packages:` of the recipe), or use a wheel.";
    HEADER_MISSING = 721, "a header is missing",
        "The compiler found no file of that name in its include directories.",
        "Install the package that holds it, or fetch the source's submodules.";
    JIT_COMPILER = 722, "Triton or torch.compile finds no compiler",
        "Both compile a small C or C++ file when they run, so the image needs a compiler and Python's headers.",
        "Install `gcc` and Python's headers in the image (`jit: true` in a stack does), or set `CC`.";
    TRITON_MISSING = 723, "torch.compile finds no working Triton",
        "On GPUs torch.compile makes Triton kernels. Triton is not installed, is too old, or does not import.",
        "Install the Triton version that torch pins (`triton: auto` in a stack).";
    ENGINE_WITHOUT_GPU = 724, "the container engine cannot give a GPU",
        "`--gpus` needs NVIDIA's container toolkit in the engine.",
        "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker` and restart the engine.";
    LOG_NO_GPU = 725, "no usable GPU is visible",
        "The process sees no driver or no device: no GPU, a container without `--gpus`, or an empty `CUDA_VISIBLE_DEVICES`.",
        "Run with `--gpus all` on a machine with a GPU; during an image build there is none.";
    LOG_DRIVER_TOO_OLD = 726, "the NVIDIA driver is too old",
        "Each CUDA major needs at least a certain driver.",
        "Update the driver, or use a stack for the CUDA that `nvidia-smi` shows.";
    FORWARD_COMPATIBILITY = 727, "the forward-compatibility driver does not fit",
        "A `libcuda` from a compat package, or of another version than the kernel module, was loaded. GeForce GPUs do not support forward compatibility.",
        "Remove the compat directory from the library path, or update the driver and reboot.";
    TORCH_WITHOUT_CUDA = 728, "this torch was built without CUDA",
        "A resolver chose a CPU-only build of torch, usually because the index has no CUDA wheel for the platform.",
        "Install torch from the index that has CUDA builds; `stackforge lock` refuses a CPU-only torch.";
    INDEX_UNREACHABLE = 729, "a package index or server cannot be reached",
        "A name did not resolve, or a connection was refused, cut or timed out.",
        "Check network, proxy (`HTTPS_PROXY`) and the index settings (`PIP_INDEX_URL`, `UV_DEFAULT_INDEX`).";
    CERTIFICATE_REFUSED = 730, "a certificate is not trusted",
        "A proxy that inspects TLS signs with a certificate authority of its own, which this environment does not know.",
        "Add its certificate to the trusted ones and set `SSL_CERT_FILE`, `PIP_CERT` or `REQUESTS_CA_BUNDLE`; do not switch verification off.";
    DIGEST_MISMATCH = 731, "a file does not have the expected digest",
        "The file that was downloaded is another than the one that was locked.",
        "Do not ignore this: check the index or mirror, clear the cache, and lock again only if the release was really replaced.";
    WHEEL_REFUSED = 732, "no file fits this Python or platform",
        "A wheel's tags name the Python, ABI, platform and glibc that it is for, and none of those on offer fit.",
        "Use the Python version and platform that the wheels are for, or build from source.";
    REQUIREMENTS_CONFLICT = 733, "the requirements contradict each other",
        "Two packages ask for versions of a third that no release satisfies.",
        "Change the version that the message names, or override the requirement that is too strict.";
    EXTERNALLY_MANAGED = 734, "the distribution's Python refuses packages from pip",
        "Debian and Ubuntu mark their Python so that pip does not mix with apt.",
        "Use a virtual environment; in an image, `--break-system-packages` or another Python does as well.";
    NUMPY_ABI = 735, "an extension was built for another NumPy",
        "Extensions compiled against NumPy 1 do not load with NumPy 2, and those compiled against a newer NumPy not with an older one.",
        "Install a release of the extension for this NumPy, or hold NumPy at `numpy<2`.";
    MODULE_MISSING = 736, "a Python module, or a name in it, is missing",
        "A package is not installed, is installed for another Python, or is only an empty or partly installed directory.",
        "Install it into the Python that runs the program; replace an editable install by a built wheel.";
    WRONG_PLATFORM = 737, "a program or image is for another processor",
        "An arm64 program does not run on amd64 and the other way around, unless the kernel emulates it.",
        "Use an image for this platform, or build on a machine or engine of the target's.";
    COLLECTIVES = 738, "NCCL could not communicate",
        "GPUs of a job could not set up or keep their connection: network interface, peer access, versions, or a rank that died.",
        "Read the first rank that failed; run with `NCCL_DEBUG=INFO`, and set `NCCL_SOCKET_IFNAME` to the right interface.";
    KERNEL_FAULT = 739, "a GPU kernel failed while it ran",
        "A kernel read outside its memory or failed an assertion. The stack trace is of a later call.",
        "Run again with `CUDA_LAUNCH_BLOCKING=1` to see the call; check indices and shapes that go into it.";
    ILLEGAL_INSTRUCTION = 740, "a binary uses instructions that this processor lacks",
        "The library was compiled for a newer instruction set, AVX-512 for instance.",
        "Use a build for an older instruction set; `catalog/cpus.yaml` lists their flags.";
    COMPILE_ERROR = 741, "a compiler stopped at an error",
        "The source does not compile with this compiler, these headers or these flags.",
        "Read the first `error:`; later ones follow from it. Compare versions of the library, torch and the toolkit.";
    BUILD_STOPPED = 742, "a build tool stopped because a step of it failed",
        "The line only says that something before it failed; nothing nearer the cause is recognised.",
        "Look for the first `error` or `FAILED` above it; build with one job so that output is in order.";
    IMAGE_UNAVAILABLE = 743, "an image cannot be pulled",
        "The registry does not have it, does not let this user have it, or limits pulls.",
        "Check the name and tag, log in (`docker login`), or pull through a mirror.";
    PORT_IN_USE = 744, "the port is in use",
        "Another process, often an earlier run of the same server, listens on that port.",
        "End it or choose another port.";
    ENGINE_UNREACHABLE = 745, "the container engine does not answer",
        "Nothing listens on the engine's socket, or this user may not open it.",
        "Start the engine, check `DOCKER_HOST`, and join the socket's group or use the engine rootless.";
    OPERATION_UNSUPPORTED = 746, "the GPU or driver does not support an operation",
        "CUDA refuses what the GPU, the driver's mode or the virtual GPU lacks: memory pools, peer access or multicast for instance.",
        "Switch the feature off in the program, or use a GPU and driver that have it.";
    COMPILER_CRASHED = 747, "a compiler crashed",
        "The compiler itself failed. Too little memory shows like this too.",
        "Build with one job; if it crashes again, use another release of the compiler or lower its optimisation.";
    ACCESS_REFUSED = 748, "a server refuses access",
        "The server answered, but requires a login, a token or an accepted licence for this file.",
        "Give the credentials as the tool wants them (`HF_TOKEN`, `docker login`, the index's user); in a build, as a secret.";
    LIBRARY_UNLOADABLE = 749, "the loader refuses a library",
        "The library is there and cannot be loaded: damaged, cut short, or in conflict with the process.",
        "Install it again, or load it first with `LD_PRELOAD`.";
    WRITTEN_FOR_ANOTHER = 750, "a package was written for another release of what it imports",
        "Names go from libraries with their major releases, and many packages put no upper bound on what they require.",
        "Update the package that imports, or hold back what it imports with the line that the diagnosis gives.";
    MODEL_FILES_MISSING = 751, "files of a model are missing",
        "Weights, tokenizers and data sets are fetched when a program first asks for them; a build, a validation and many devices have no network.",
        "Bring the files before: in the image, by a mounted cache, or as a package.";
    GPU_NOT_GIVEN = 752, "a container asks for a GPU or a part of the driver that is not there",
        "NVIDIA's container toolkit looks for the GPUs that `--gpus` or NVIDIA_VISIBLE_DEVICES name, and for the parts of the driver in NVIDIA_DRIVER_CAPABILITIES. If one of them is missing, the container does not start.",
        "Ask for what `nvidia-smi -L` lists, or for `all`; the parts are compute, compat32, display, graphics, ngx, utility and video, separated by commas. An image without these variables asks for the right ones.",
        source "https://github.com/osrf/rocker/pull/182; https://github.com/NVIDIA/enroot/issues/207";
    GPU_WITHOUT_DRIVER = 801, "an NVIDIA GPU without its driver",
        "The GPU is on the PCI bus, but no kernel module of NVIDIA's drives it, so no program can use it.",
        "Install the driver of your distribution or NVIDIA's, then restart. Images can be built without it.";
    DRIVER_SILENT = 802, "the driver does not answer",
        "The driver's library is installed and its kernel module refuses or is another version, usually after an update without a restart.",
        "Restart the machine, or reload the module (`nvidia`, `nvidia_uvm`); in a container, update the driver outside.";
    OLD_DRIVER = 803, "the driver is too old for some CUDA images",
        "Each CUDA release needs a driver of a certain branch: 12.x runs from 525 on, 13.x from 580 on. A container cannot bring a newer driver.",
        "Update the driver, or build on a base whose CUDA it runs; on a Jetson, update JetPack.";
    TOOLKIT_MISFIT = 804, "the nvcc that comes first does not fit",
        "PATH decides which nvcc builds outside of containers take. One of another major version than torch's is refused by torch; one newer than the driver makes programs that do not start. Images are built with their own toolkit and are not affected.",
        "Put the right toolkit's `bin` first in PATH and set CUDA_HOME to it.";
    TORCH_DRIVER = 805, "an installed torch is too new for the driver",
        "torch brings a CUDA runtime of its own. The driver has to be of that runtime's branch, else torch finds no GPU.",
        "Update the driver, or install a torch for the driver's CUDA.";
    LITTLE_SPACE = 806, "little free disk space",
        "CUDA stacks take tens of gigabytes while they are built.",
        "Free space there: `docker system df` shows the engine's part. `--store DIR` names another store.";
    LITTLE_MEMORY = 807, "little memory for compiling",
        "One compiler job of a CUDA library takes several gigabytes at its worst. Below that, the kernel kills it.",
        "Use wheels of these libraries, add swap, or build on a machine with more memory.";
    UNREACHABLE = 808, "a package source does not answer",
        "Locking and building fetch packages from the configured index and Debian mirror.",
        "Check the network, proxy variables and CA bundle (SSL_CERT_FILE), and the index in pip's or uv's configuration.";
    JETSON_RELEASE = 809, "no base for this Jetson's release",
        "A Jetson's driver is part of L4T, so a base has to match the release; the catalog has none for this one.",
        "Update JetPack to a release in catalog/jetson.yaml, or describe a base under `.stackforge/images/`.";
    GPU_NOT_IN_CATALOG = 810, "a GPU of this machine is not in the catalog",
        "The catalog knows products by the driver's name for them. An unknown one is not a hindrance where its SM is known.",
        "Write its SM in `target.gpu` (`sm_90`), or add it to `.stackforge/gpus.yaml`.";
    NO_GPU = 811, "no GPU here to write a stack for",
        "Without `--gpu`, `init` writes a stack for the GPU of this machine.",
        "Name one: `stackforge init --gpu h100`.";
    OBJECT_DAMAGED = 901, "an object that cannot be read",
        "The file starts like an ELF object, and its tables or its device code contradict themselves: it was cut short, damaged, or is in a format that is not known. Nothing is said about what it needs.",
        "Install the package again, and compare the file with its digest in the package's RECORD.";
    NEEDED_MISSING = 902, "a library that is needed is missing",
        "The loader searches RPATH or RUNPATH, the directories of ld.so.conf and the default ones for every NEEDED entry, after what is loaded already. None has this library: `cannot open shared object file: No such file or directory`.",
        "Install the package that holds it, or add its directory to the loader's configuration.",
        source "ld.so(8); `_dl_map_object` in elf/dl-load.c of glibc";
    NEEDED_ELSEWHERE = 903, "a library that is needed is not part of what was audited",
        "A single wheel or object leaves libraries to others: CUDA's wheels, torch, the base. Whether they are there shows only where all of them are.",
        "Audit the site-packages directory that the wheel is installed in, with `--sysroot` for its base.";
    SECOND_COPY = 904, "two copies of one library",
        "Wheels bring copies of libraries under changed names, and a process that imports them loads each. Those that keep threads, devices or communicators of their own then work against each other: two OpenMP pools, two CUDA runtimes.",
        "Use packages that were built against the same copy, or remove one of them.",
        source "https://github.com/joblib/threadpoolctl (multiple_openmp.md)";
    TORCH_SYMBOL_MISSING = 905, "torch does not have a symbol that an extension needs",
        "torch's C++ interface changes with each minor release. An extension that was compiled against another one fails to load: `undefined symbol: _ZN3c10…`.",
        "Install the release of the extension that was made for this torch, or build it from source against it.",
        source "undefined and exported symbols of the objects themselves";
    OTHER_PYTHON = 906, "an extension module for another Python",
        "The name of an extension module says for which Python it was compiled (`cpython-312`). Others do not see it: `ModuleNotFoundError`.",
        "Install the wheel for the Python that is there.",
        source "PEP 3149; `importlib.machinery.EXTENSION_SUFFIXES`";
    RUNTIME_TOO_OLD = 907, "an object that needs a newer C or C++ runtime than the base has",
        "Versioned symbols of glibc and libstdc++ are there from a release on. On an older base the loader refuses the object: version `GLIBC_2.34' not found.",
        "Use a newer base, or a build for an older one (a lower `manylinux` tag).",
        source "DT_VERNEED of the objects; glibc's banner; the file name of libstdc++.so.6 (https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html)";
    NOTHING_TO_AUDIT = 908, "nothing that can be audited",
        "An audit reads a shared object, a wheel, a directory that holds some, or an image.",
        "Name a path, `NAME==VERSION`, `docker:IMAGE`, `registry:IMAGE`, `oci:DIR` or `oci-archive:FILE`; other archives have to be unpacked first.";
    WHEEL_BREAKS_TAG = 909, "a wheel that needs a newer glibc than its tag says",
        "`manylinux_2_17` in a wheel's name promises that glibc 2.17 is enough, and pip installs it wherever that is so. An object that needs a newer one installs and then fails to load: version `GLIBC_2.27' not found.",
        "Install it only where the base has that glibc, or build the library from source on an older base.",
        source "PEP 600; DT_VERNEED of the objects";
    OTHER_MACHINE = 910, "an object for another processor than its wheel or its neighbours",
        "The loader passes over a library for another machine, and refuses an extension module: wrong ELF class or `cannot open shared object file`. A wheel whose tag names one processor and whose objects are for another was tagged by hand or built by a wrong cross compiler.",
        "Install the wheel for this processor, or build the library from source on it.",
        source "`e_machine` of the object; the platform tag of the wheel (PEP 425)";
    BUILD_SEARCH_PATH = 911, "a search path that leads to a directory of the machine that built it",
        "RPATH and RUNPATH are absolute where a build did not say `$ORIGIN`. On another machine the directory is missing, so that the library is found by chance or not at all; and below `/tmp` anyone can put a library that is then loaded.",
        "Link with `-Wl,-rpath,$ORIGIN/…`, or set the path with `patchelf --set-rpath`.",
        source "ld.so(8)";
    EXECUTABLE_STACK = 912, "an object that asks for an executable stack",
        "One object without the mark `.note.GNU-stack`, mostly of assembly, makes the linker ask for it. From glibc 2.41 on `dlopen` refuses such an object: cannot enable executable stack as shared object requires.",
        "Use a newer release of the library, or clear the mark with `patchelf --clear-execstack`.",
        source "glibc 2.41's NEWS; PT_GNU_STACK of the object";
    IMAGE_UNREADABLE = 920, "an image that cannot be read",
        "A layout, archive or registry holds something else than its digests or the OCI image specification say.",
        "Copy the image again from where it came; the message names the part.",
        source "https://github.com/opencontainers/image-spec (image-layout.md, manifest.md, layer.md)";
    NO_SUCH_IMAGE = 921, "no such image",
        "No image of that name or for that platform is there, or there are several and none was named.",
        "Name one of those that the message lists by its tag or digest, or with `--platform`.";
    WHEEL_UNSOUND = 922, "a wheel that cannot be installed",
        "A wheel's contents contradict its own directory or RECORD, or it would write where it may not.",
        "Fetch it again; if it is the published file, tell its authors: the message names the member.",
        source "https://packaging.python.org/en/latest/specifications/binary-distribution-format/";
    NOT_AN_INDEX = 1001, "a tag that is an image and not an index of variants",
        "A variant is entered into an index. The tag stands for a single image, which would be lost if an index took its place.",
        "Push the variant under another tag, or remove that one from the registry first.";
    INDEX_BUSY = 1002, "an index that others change all the time",
        "A registry cannot change an index in one step, so stackforge reads, writes and reads again until every variant is in it. Others were faster each time.",
        "Push again: the variant itself is in the registry, under a tag of its own, and only its entry is missing.";
    NONE_RUNS = 1003, "no variant that runs on this device",
        "Every variant of the index was compared with the platform, the GPUs' SMs, the driver, the L4T release and the instruction sets of this device, and each is refused for the reason that stands beside it.",
        "Build a variant for this device, update its driver or L4T, or name one with `--variant` if you know better. `stackforge doctor` shows what the device is.";
    NO_SUCH_VARIANT = 1004, "a variant that the index does not have",
        "The name after `--variant` is none of those in the index.",
        "Use one of the names that the message lists.";
    OUTPUT_IN_THE_WAY = 1005, "a directory that is in the way of an image",
        "A root file system replaces only one that stackforge wrote, so that no other directory is ever removed.",
        "Name a directory that is not there yet, or move it away. If it is `DIR~N`, a lower `--keep` leaves it alone.";
    OUTPUT_MOUNTED = 1008, "a mount in a directory that an image replaces",
        "A root file system is exchanged for the one before, which is removed later. A file system that is mounted at it or in it would move away with the old files.",
        "Unmount it, or name a directory below the mount point, without mounts in it.";
    IMAGE_OLDER = 1009, "an image that is older than the one before it",
        "With `--no-downgrade` the time that an image was signed at is compared with that of the image that was pulled under the name before. The registry now has one that was signed earlier, or one that does not say when: an old image with a known fault is signed as well as the new one.",
        "If the publisher went back on purpose, have it sign the older image again; or pull without `--no-downgrade`.";
    UPDATE_SETTINGS = 1010, "settings of an update that cannot be meant",
        "`stackforge update` reads a file that says which image the device takes, where its service finds it, and when the service is well. A key that is not known, or a value that contradicts another one, is refused before anything is done.",
        "Correct what the message names; examples/edge/edge.yaml has every setting.";
    UPDATE_STATE = 1011, "the state of an update that cannot be read",
        "`state.json` says which step was begun, so that the next run can end it after a power cut. It is written whole, so a file that does not parse was damaged by something else; what it knew is not guessed.",
        "See that the service runs, and start it if it does not. Then remove the file.";
    UPDATE_SERVICE = 1012, "a service that does not start or stop",
        "systemd was asked to start, stop or restart the unit, and refused.",
        "`systemctl status UNIT` and `journalctl -u UNIT` say why.";
    UPDATE_UNDER_WAY = 1013, "another update of this device is under way",
        "One run at a time has the state: a validation takes long, and a timer may fire meanwhile.",
        "Wait for it. `stackforge update CONFIG --status` says where it stands.";
    UPDATE_REFUSED = 1014, "a new image that this device does not take",
        "The image was not signed as it has to be, did not validate on this device, the service was not well with it, or the device went down with it three times. The service has the image before.",
        "The message and `report.json` beside the state say why. A publisher publishes a better one; `--retry` forgets what was refused.";
    UPDATE_FAILED = 1015, "an update that could not be done now",
        "The network, the engine or the disk kept it from that, or it was stopped. The service has the image before, and no image is blamed.",
        "The next run goes on from there; `stackforge doctor` says what this machine lacks.";
    UPDATE_NEEDS_HELP = 1016, "a device that a person has to look at",
        "The service may not run: it was not well with the new image, and the one before is gone, does not start, or is not well either.",
        "Look at the unit and at the engine. The next update goes on by itself if it can.";
    UPDATE_FOREIGN = 1017, "a state directory that is not this update's",
        "The state says what is rolled back after a power cut, so it is of one place, and nobody else may write it. The directory has the state of another place, belongs to another user, or others may write it.",
        "Name a directory of its own in `state` for each configuration, and let only its user write it (`chmod go-w`). If a configuration's place has changed on purpose, remove the old state.";
    EVIDENCE_OTHER_STACK = 1101, "evidence for an image that another stack made",
        "SBOM and provenance are made from a stack's lock and attached to an image. This image's labels name another plan, so they would say what is not true.",
        "Name the stack and variant that the image was built from, with its lock of that time.";
    EVIDENCE_MISSING = 1102, "a kind of evidence that an image does not have",
        "Nothing of that kind is attached to the image in this registry.",
        "`stackforge inspect REF` lists what is attached; `stackforge attach REF --stack STACK` attaches it.";
    KEY_UNUSABLE = 1103, "a key that cannot be used",
        "Keys are ECDSA on P-256 in PEM: PKCS#8 or SEC1 for signing, SPKI for checking. Encrypted keys are not read, neither openssl's nor cosign's.",
        "`stackforge sign --generate-key NAME` makes a pair; `cosign import-key-pair` takes its private key into cosign.";
    SIGNATURE_MISSING = 1104, "an image without a signature",
        "No signature of this manifest is in the registry. A tag that was moved to an image that nobody signed looks like this too.",
        "Ask the publisher, or sign the image with `stackforge sign REF --key KEY`.";
    SIGNATURE_FOREIGN = 1105, "an image that was signed with other keys",
        "The image has signatures, and none of them was made with the private half of this key.",
        "Check that the key is the publisher's; do not run an image that somebody else signed.";
    SIGNATURE_OTHER = 1106, "a signature of another manifest",
        "The key did sign, but another manifest than the one that is there; or what the registry sends is not what its digest says. Somebody changed the image, or moved a signature to it.",
        "Do not use the image; ask the publisher for its digest.";
    SIGNATURE_NAME = 1107, "an image that was signed under another name",
        "The key did sign this image, for another repository or tag than the one it was asked for. A key signs many products: whoever holds a registry could put any of them, or an old one, under this tag.",
        "For a mirror, give the name that was signed with `--verify-name`. Else do not use the image, and ask the publisher.";
    STACK_NOT_BUILT = 1201, "a stack whose image is not there",
        "`run` starts the image that `build` made of a stack, by the name that `build` gives it. Neither the engine nor the store has one of that name.",
        "Build it: `stackforge build STACK`. If it was built with `-t`, run it by that tag.";
    STACK_CHANGED = 1202, "an image of an earlier form of the stack",
        "The image's labels name the plan that made it, and the stack's plan is another one now.",
        "Build it again if the change matters: `stackforge build STACK`.";
    NO_SUCH_GPU = 1203, "a GPU that the device does not have",
        "`--gpus` names a GPU, or asks for all of them, and this device or its CDI specification has none of that name.",
        "Name one that the message lists, or leave `--gpus` out: then the program gets what the device has.";
    RUN_NEEDS_ENGINE = 1204, "something that only a container engine does",
        "Without an engine the program runs in namespaces below this process, with the host's network: it cannot go on without this process, and its ports are the host's.",
        "Leave it out, or run the image with Docker or Podman.";
    VOLUME_MISSING = 1205, "a volume whose source is not there",
        "An engine would make a directory of that name that belongs to root, and the program would find it empty.",
        "Correct the path, or create the directory.";
    NO_COMMAND = 1206, "an image that names no program",
        "The image's configuration has neither an entry point nor a command, or it is not known: a root file system is started by the configuration of its image, which the store keeps.",
        "Name a program after `--`, or set `image.cmd` in the stack. For a root file system whose image the store does not have any more, pull it again.";
    NO_SUCH_USER = 1207, "an image whose user it does not have",
        "The configuration names a user or a group that is not in the image's /etc/passwd or /etc/group, so nobody knows the number.",
        "Correct the image: create the user in it, or name the user by number.";
    NOT_PUSHED = 1301, "an image whose digest is not known",
        "What starts a service names its image by digest, so that every machine runs the same bytes. A registry gives the digest when the image is pushed, and the store remembers it for the stack as it was then.",
        "Build and push the stack: `stackforge build STACK --push REF`. If another machine pushed it, name that image with `--image REF`.";
    NO_NODE = 1302, "a variant that no node of a cluster would start",
        "Each variant's pods go to the nodes whose GPUs it serves best, by the labels that NVIDIA's GPU feature discovery gives nodes. Those labels tell compute capabilities apart, not instruction sets, CUDA releases or Python versions; and an image whose labels name no known GPU fits none of them.",
        "Name the variants that are meant, one for each GPU, with `--variant`.",
        source "https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md";
    FOREIGN_IMAGE = 1303, "an image of another stack than the one that is rendered",
        "`--image` names an image in a registry, and its labels or its platform say that another stack or variant made it: ports, volumes and health check of this stack would not be its own.",
        "Name the image that was pushed of this stack, or render the stack that the image is of.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_ordered_and_explained() {
        for pair in TABLE.windows(2) {
            assert!(
                pair[0].code < pair[1].code,
                "{} before {}",
                pair[0].code,
                pair[1].code
            );
        }
        for e in TABLE {
            assert!(e.why.ends_with('.') && e.fix.ends_with('.'), "{}", e.code);
            assert!(!e.title.ends_with('.'), "{}", e.code);
        }
    }

    #[test]
    fn codes_parse_as_people_type_them() {
        assert_eq!("SF0002".parse(), Ok(UNKNOWN_KEY));
        assert_eq!("sf2".parse(), Ok(UNKNOWN_KEY));
        assert_eq!("SF9999".parse::<Code>(), Err(()));
    }
}
