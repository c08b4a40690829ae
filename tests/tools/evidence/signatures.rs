//! Signatures: ours before openssl, openssl's before us, and what must be refused.

use super::server::{Kind, Server, skopeo};
use super::{document, made, plain};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use stackforge_types::Digest;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::Sandbox;

struct Signing {
    server: Server,
    sandbox: Sandbox,
    name: String,
    image: Digest,
}

impl Signing {
    fn new() -> Self {
        let server = Server::start(Kind::Open);
        let name = format!("{}/team/app:v1", server.host);
        let image = made::push(server.dir.path(), &name, &json!({ "n": "1" }), &[]);
        let sandbox = Sandbox::new();
        for pair in ["own", "other"] {
            let run = sandbox.run(&["sign", "--generate-key", pair]);
            assert_eq!(run.code, 0, "{}", run.stderr);
        }
        Self {
            server,
            sandbox,
            name,
            image,
        }
    }

    fn sign(&self, key: &str) {
        let sign = ["sign", &self.name, "--key", key];
        let run = (self.sandbox).run_with(&sign, &[("SOURCE_DATE_EPOCH", "1767225600")]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }

    /// Exit code and what is said.
    fn verify(&self, key: &str) -> (i32, String) {
        let run = self.sandbox.run(&["verify", &self.name, "--key", key]);
        (run.code, plain(&(run.stdout + &run.stderr), &self.server))
    }

    /// A small image in the registry, whole.
    fn fetched(&self, tag: &str) -> PathBuf {
        let dir = self.sandbox.path(&format!("fetched-{tag}"));
        let _ = std::fs::remove_dir_all(&dir);
        skopeo(&[
            "copy",
            "--quiet",
            "--src-tls-verify=false",
            &format!("docker://{}/team/app:{tag}", self.server.host),
            &format!("dir:{}", dir.display()),
        ]);
        dir
    }

    fn put(&self, dir: &Path, tag: &str) {
        skopeo(&[
            "copy",
            "--quiet",
            "--preserve-digests",
            "--dest-tls-verify=false",
            &format!("dir:{}", dir.display()),
            &format!("docker://{}/team/app:{tag}", self.server.host),
        ]);
    }

    /// Where cosign looks for signatures.
    fn tag(&self) -> String {
        format!("sha256-{}.sig", self.image.hex())
    }
}

fn openssl(dir: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("openssl");
    let out = command.args(arguments).current_dir(dir).output().unwrap();
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

#[test]
fn openssl_takes_our_signature() {
    let signing = Signing::new();
    signing.sign("own.key");
    let dir = signing.fetched(&signing.tag());
    let manifest = std::fs::read(dir.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layer = &manifest["layers"][0];
    assert_eq!(
        layer["mediaType"],
        "application/vnd.dev.cosign.simplesigning.v1+json"
    );
    let statement = dir.join(&layer["digest"].as_str().unwrap()["sha256:".len()..]);
    let signature = layer["annotations"]["dev.cosignproject.cosign/signature"]
        .as_str()
        .unwrap();
    std::fs::write(dir.join("signature"), STANDARD.decode(signature).unwrap()).unwrap();
    std::fs::copy(&statement, dir.join("statement")).unwrap();
    let judge = |key: &str| {
        let key = signing.sandbox.path(key).display().to_string();
        let mut openssl = Command::new("openssl");
        let openssl = openssl.args(["dgst", "-sha256", "-verify", &key]);
        let openssl = openssl.args(["-signature", "signature", "statement"]);
        let out = openssl.current_dir(&dir).output().unwrap();
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    };
    assert_eq!(judge("own.pub"), "Verified OK");
    assert!(!judge("other.pub").contains("Verified OK"));
    let statement: Value = serde_json::from_slice(&std::fs::read(statement).unwrap()).unwrap();
    let critical = &statement["critical"];
    assert_eq!(critical["type"], "cosign container image signature");
    assert_eq!(
        critical["image"]["docker-manifest-digest"],
        signing.image.to_string()
    );
    let name = signing.name.trim_end_matches(":v1");
    assert_eq!(critical["identity"]["docker-reference"], name);
}

#[test]
fn a_signature_of_openssl_is_taken() {
    let signing = Signing::new();
    let dir = signing.sandbox.path("");
    openssl(
        &dir,
        &[
            "ecparam",
            "-name",
            "prime256v1",
            "-genkey",
            "-out",
            "sec1.pem",
        ],
    );
    openssl(
        &dir,
        &[
            "pkcs8",
            "-topk8",
            "-nocrypt",
            "-in",
            "sec1.pem",
            "-out",
            "pkcs8.pem",
        ],
    );
    openssl(
        &dir,
        &["pkey", "-in", "sec1.pem", "-pubout", "-out", "theirs.pub"],
    );
    // Both forms of its private key sign here, and once is enough for the two.
    signing.sign("sec1.pem");
    signing.sign("pkcs8.pem");
    let run = signing
        .sandbox
        .run(&["verify", &signing.name, "--key", "theirs.pub", "--json"]);
    let verified = document(&run);
    assert_eq!(verified["signatures"].as_array().unwrap().len(), 1);
    assert_eq!(
        verified["signatures"][0]["digest"],
        signing.image.to_string()
    );

    // The statement stays; the signature becomes one that openssl makes.
    let dir = signing.fetched(&signing.tag());
    let path = dir.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let layer = &mut manifest["layers"][0];
    let statement = layer["digest"].as_str().unwrap()["sha256:".len()..].to_owned();
    let key = signing.sandbox.path("sec1.pem").display().to_string();
    openssl(
        &dir,
        &[
            "dgst",
            "-sha256",
            "-sign",
            &key,
            "-out",
            "signature",
            &statement,
        ],
    );
    let signature = STANDARD.encode(std::fs::read(dir.join("signature")).unwrap());
    let kept = &mut layer["annotations"]["dev.cosignproject.cosign/signature"];
    assert_ne!(
        *kept,
        signature.as_str(),
        "openssl's are random, ours are not"
    );
    *kept = signature.into();
    std::fs::write(&path, manifest.to_string()).unwrap();
    signing.put(&dir, &signing.tag());
    assert_eq!(signing.verify("theirs.pub").0, 0);
    assert_eq!(signing.verify("own.pub").0, 1);
}

#[test]
fn what_cannot_be_trusted_is_refused_each_with_its_code() {
    let signing = Signing::new();
    let mut output = String::new();
    let mut refused = |key: &str, code: &str| {
        let (exit, text) = signing.verify(key);
        assert_eq!(exit, 1, "{text}");
        assert!(text.starts_with(code), "{text}");
        output += &text;
    };
    refused("own.pub", "SF1104");
    signing.sign("own.key");
    refused("other.pub", "SF1105");
    let (exit, good) = signing.verify("own.pub");
    assert_eq!(exit, 0, "{good}");

    // The tag moves to another manifest, which nobody signed, and takes the signature along.
    let old = signing.fetched(&signing.tag());
    let labels = json!({ "n": "2" });
    let moved = made::push(signing.server.dir.path(), &signing.name, &labels, &[]);
    refused("own.pub", "SF1104");
    signing.put(&old, &format!("sha256-{}.sig", moved.hex()));
    refused("own.pub", "SF1106");
    insta::assert_snapshot!("untrusted", format!("{output}{good}"));
}

/// The registry's own files: a manifest of another content under the same digest, and a statement.
#[test]
fn a_registry_that_alters_what_it_keeps_is_refused() {
    let signing = Signing::new();
    signing.sign("own.key");
    let blob = |digest: &Digest| {
        let hex = digest.hex();
        let store = signing
            .server
            .dir
            .path()
            .join("store/docker/registry/v2/blobs");
        store.join(format!("sha256/{}/{hex}/data", &hex[..2]))
    };
    let layer = {
        let dir = signing.fetched(&signing.tag());
        let text = std::fs::read(dir.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&text).unwrap();
        let digest = manifest["layers"][0]["digest"].as_str().unwrap();
        digest.parse::<Digest>().unwrap()
    };
    for digest in [&layer, &signing.image] {
        let path = blob(digest);
        let text = std::fs::read(&path).unwrap();
        // A digit that the registry itself does not look at: of a size, else of a digest.
        let mark = b"\"size\":";
        let size = text.windows(mark.len()).position(|w| w == mark);
        let last = text.iter().rposition(u8::is_ascii_digit);
        let at = size.map(|at| at + mark.len()).or(last).unwrap();
        let mut other = text.clone();
        other[at] = if text[at] == b'1' { b'2' } else { b'1' };
        std::fs::write(&path, &other).unwrap();
        let (exit, output) = signing.verify("own.pub");
        assert_ne!(exit, 0, "{output}");
        assert!(output.starts_with("SF1106"), "{output}");
        std::fs::write(&path, &text).unwrap();
        assert_eq!(signing.verify("own.pub").0, 0, "it is whole again");
    }
}

#[test]
fn an_index_is_signed_with_its_images_where_that_is_asked() {
    let signing = Signing::new();
    let dir = signing.server.dir.path();
    let second = format!("{}/team/app:v2", signing.server.host);
    let two = made::push(dir, &second, &json!({ "n": "2" }), &[]);
    let entry = |tag: &str, digest: &Digest| {
        let size = skopeo(&[
            "inspect",
            "--raw",
            "--tls-verify=false",
            &format!("docker://{}/team/app:{tag}", signing.server.host),
        ]);
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest.to_string(), "size": size.len(),
            "platform": { "os": "linux", "architecture": "amd64" },
        })
    };
    let kind = "application/vnd.oci.image.index.v1+json";
    let index = json!({
        "schemaVersion": 2, "mediaType": kind,
        "manifests": [entry("v1", &signing.image), entry("v2", &two)],
    });
    let put = |index: &Value| {
        let index = bytes::Bytes::from(index.to_string());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            use stackforge_transfer::registry::{Keychain, Options, Registry, Target};
            let keychain = std::sync::Arc::new(Keychain::of_files([]));
            let host = &signing.server.host;
            let registry = Registry::connect(host, keychain, &Options::default()).unwrap();
            let tag = Target::Tag("all".parse().unwrap());
            let repository = "team/app".parse().unwrap();
            let put = registry.put_manifest(&repository, &tag, kind, &index);
            put.await.unwrap();
        });
    };
    put(&index);
    let all = format!("{}/team/app:all", signing.server.host);
    let verify = |name: &str| {
        let run = signing.sandbox.run(&["verify", name, "--key", "own.pub"]);
        run.code
    };
    let sign = |more: &[&str]| {
        let run = signing
            .sandbox
            .run(&[&["sign", &all, "--key", "own.key"], more].concat());
        assert_eq!(run.code, 0, "{}", run.stderr);
    };
    let pull = |name: &str| {
        let arguments = ["pull", name, "--platform", "linux/amd64"];
        let verify = ["--verify", "own.pub"];
        let run = signing.sandbox.run(&[&arguments[..], &verify].concat());
        (run.code, run.stderr.chars().take(6).collect::<String>())
    };
    let unsigned = (1, "SF1104".to_owned());
    assert_eq!(pull(&all), unsigned);
    sign(&[]);
    assert_eq!((verify(&all), verify(&second)), (0, 1));
    // Who signed an index vouches for what it names, under its name alone.
    assert_eq!(pull(&all).0, 0);
    assert_eq!(pull(&second), unsigned);
    sign(&["--recursive"]);
    assert_eq!((verify(&second), verify(&signing.name)), (0, 0));
    assert_eq!(pull(&second).0, 0);
    // The tag is moved to an index with one image more, which nobody signed.
    let third = format!("{}/team/app:v3", signing.server.host);
    let three = made::push(dir, &third, &json!({ "n": "3" }), &[]);
    put(&json!({
        "schemaVersion": 2, "mediaType": kind,
        "manifests": [entry("v3", &three), entry("v1", &signing.image)],
    }));
    assert_eq!(pull(&all), unsigned);
}

/// A release and an audit may sign one image at the same moment.
#[test]
fn signers_at_once_lose_no_signature() {
    let signing = Signing::new();
    let keys: Vec<String> = (0..6).map(|n| format!("key{n}")).collect();
    for key in &keys {
        let run = signing.sandbox.run(&["sign", "--generate-key", key]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    }
    let signing_one = &signing;
    std::thread::scope(|scope| {
        for key in &keys {
            scope.spawn(move || signing_one.sign(&format!("{key}.key")));
        }
    });
    for key in &keys {
        assert_eq!(signing.verify(&format!("{key}.pub")).0, 0, "{key}");
    }
}

#[test]
fn keys_that_are_not_read_say_why() {
    let signing = Signing::new();
    let dir = signing.sandbox.path("");
    let cosign = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\neyJrZGYi\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n";
    signing.sandbox.write("cosign.key", cosign);
    openssl(&dir, &["genrsa", "-out", "rsa.pem", "2048"]);
    let curve = ["ecparam", "-name", "secp384r1", "-genkey", "-noout"];
    openssl(&dir, &[&curve[..], &["-out", "p384.pem"]].concat());
    let encrypt = ["pkcs8", "-topk8", "-passout", "pass:x", "-in", "own.key"];
    openssl(&dir, &[&encrypt[..], &["-out", "locked.pem"]].concat());
    signing.sandbox.write("text.pem", "no key\n");
    let mut output = String::new();
    for key in [
        "cosign.key",
        "rsa.pem",
        "p384.pem",
        "locked.pem",
        "text.pem",
        "own.pub",
        "gone.pem",
        "env://STACKFORGE_NO_SUCH_KEY",
    ] {
        let run = signing.sandbox.run(&["sign", &signing.name, "--key", key]);
        assert_eq!(run.code, 2, "{key}: {}", run.stderr);
        output += &run.stderr;
    }
    let (exit, text) = signing.verify("own.key");
    assert_eq!(exit, 2);
    output += &text;
    let again = signing.sandbox.run(&["sign", "--generate-key", "own"]);
    assert_eq!(again.code, 2, "a key is never overwritten");
    output += &again.stderr;
    insta::assert_snapshot!("keys", plain(&output, &signing.server));

    let key = std::fs::read_to_string(signing.sandbox.path("own.key")).unwrap();
    let arguments = ["sign", &signing.name, "--key", "env://SIGNING_KEY"];
    let run = signing
        .sandbox
        .run_with(&arguments, &[("SIGNING_KEY", &key)]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(signing.verify("own.pub").0, 0);
}

/// What is not signed is not even fetched.
#[test]
fn only_what_is_signed_is_pulled() {
    let signing = Signing::new();
    let layout = signing.sandbox.path("pulled");
    let output = format!("oci:{}", layout.display());
    let pull = |key: &str| {
        let arguments = ["pull", &signing.name, "--platform", "linux/amd64"];
        let more = ["--verify", key, "--output", &output];
        let run = signing.sandbox.run(&[&arguments[..], &more].concat());
        (run.code, run.stderr)
    };
    let (code, stderr) = pull("own.pub");
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.starts_with("SF1104"), "{stderr}");
    signing.sign("own.key");
    let (code, stderr) = pull("other.pub");
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.starts_with("SF1105"), "{stderr}");
    assert!(!layout.exists(), "nothing is kept of what is not signed");
    let (code, stderr) = pull("own.pub");
    assert_eq!(code, 0, "{stderr}");
    assert!(layout.join("index.json").exists());
}

/// One key signs many products; whoever holds the registry could put any of them under any name.
#[test]
fn a_signature_is_for_its_name() {
    let signing = Signing::new();
    let dir = signing.server.dir.path();
    let host = &signing.server.host;
    let shell = format!("{host}/internal/debug-shell:1");
    made::push(dir, &shell, &json!({ "n": "1" }), &[]);
    let run = signing.sandbox.run(&["sign", &shell, "--key", "own.key"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    // The image and all that was signed of it, under another name.
    let signatures = format!("internal/debug-shell:{}", signing.tag());
    for (from, to) in [
        (
            "internal/debug-shell:1".to_owned(),
            "team/app:v1".to_owned(),
        ),
        (signatures, format!("team/app:{}", signing.tag())),
    ] {
        skopeo(&[
            "copy",
            "--quiet",
            "--preserve-digests",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
            &format!("docker://{host}/{from}"),
            &format!("docker://{host}/{to}"),
        ]);
    }
    let (code, output) = signing.verify("own.pub");
    assert_eq!(code, 1, "{output}");
    assert!(output.starts_with("SF1107"), "{output}");
    insta::assert_snapshot!("another_name", output);
    let pull = |more: &[&str]| {
        let arguments = ["pull", &signing.name, "--platform", "linux/amd64"];
        let all = [&arguments[..], &["--verify", "own.pub"], more].concat();
        signing.sandbox.run(&all)
    };
    let run = pull(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.starts_with("SF1107"), "{}", run.stderr);
    // A mirror says whose images it has.
    let name = format!("{host}/internal/debug-shell");
    let run = pull(&["--verify-name", &name]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains(&format!("  {name}@sha256:")),
        "{}",
        run.stdout
    );
    let run = pull(&["--verify-name", &format!("{host}/internal/other")]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    let verify = ["verify", &signing.name, "--key", "own.pub"];
    let named = ["--verify-name", &name];
    let run = signing.sandbox.run(&[&verify[..], &named].concat());
    assert_eq!(run.code, 0, "{}", run.stderr);
}

/// The registry puts an old image, that the same key signed, under the tag again.
#[test]
fn an_older_image_is_refused_where_that_is_asked() {
    let signing = Signing::new();
    let image = |name: &str, n: &str, time: &str| {
        made::push(signing.server.dir.path(), name, &json!({ "n": n }), &[]);
        let sign = ["sign", name, "--key", "own.key"];
        let run = signing
            .sandbox
            .run_with(&sign, &[("SOURCE_DATE_EPOCH", time)]);
        assert_eq!(run.code, 0, "{}", run.stderr);
    };
    let pull = |more: &[&str]| {
        let arguments = ["pull", &signing.name, "--platform", "linux/amd64"];
        let all = [&arguments[..], &["--verify", "own.pub", "--json"], more].concat();
        let run = signing.sandbox.run(&all);
        (run.code, document(&run))
    };
    let guarded = ["--no-downgrade"];
    image(&signing.name, "old", "1000");
    assert_eq!(pull(&guarded).0, 0, "the first one");
    image(&signing.name, "new", "2000");
    let (code, document) = pull(&guarded);
    assert_eq!(code, 0, "{document}");
    assert_eq!(document["signatures"][0]["time"], 2000, "{document}");
    assert_eq!(pull(&guarded).0, 0, "what is there already");
    made::push(
        signing.server.dir.path(),
        &signing.name,
        &json!({ "n": "old" }),
        &[],
    );
    for more in [&guarded[..], &["--no-downgrade", "--dry-run"]] {
        let (code, document) = pull(more);
        assert_eq!(code, 1, "{document}");
        assert_eq!(document["diagnostics"][0]["code"], "SF1009", "{document}");
    }
    // Signed again, it is the newest.
    image(&signing.name, "old", "3000");
    assert_eq!(pull(&guarded).0, 0);
    // A person may go back.
    made::push(
        signing.server.dir.path(),
        &signing.name,
        &json!({ "n": "new" }),
        &[],
    );
    assert_eq!(pull(&guarded).0, 1);
    assert_eq!(pull(&[]).0, 0);
    assert_eq!(pull(&guarded).0, 0, "and stays there");
}
