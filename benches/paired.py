"""Two builds of stackforge beside each other: a no-op build, an image assembled of wheels, a pull.

Usage: paired.py PATH_OF_OLD PATH_OF_NEW [ROUNDS]. In each round both do the same, in turns first; what is
printed is the median over the rounds of the ratio of the new one's wall time to the old one's. Needs what
pull.py needs, and the network once for some 150 MB of wheels and a base.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import pull

DIR = os.path.abspath("target/bench/paired")
STACK = """stack: paired
base: debian-bookworm
target: { platform: linux/amd64, gpu: [h100] }
python: "3.11"
libraries:
  numpy: auto
  scipy: auto
  pandas: auto
  scikit-learn: auto
  matplotlib: auto
jit: false
"""


def build(program, work):
    return [program, "--quiet", "--store", f"{work}/store", "build", f"{DIR}/paired.yaml"] + [
        "--engine",
        "native",
        "-o",
        f"oci:{work}/layout",
    ]


def prepare(program, work):
    """A store that has every file and no layer, and one that has the image."""
    os.makedirs(work, exist_ok=True)
    if not os.path.exists(f"{DIR}/paired.lock"):
        subprocess.run(
            [program, "--quiet", "--store", f"{work}/store", "lock", f"{DIR}/paired.yaml"], check=True
        )
    subprocess.run(build(program, work), check=True, stdout=subprocess.DEVNULL)


def without_layers(work):
    """Forgets what was made, and keeps what was fetched and unpacked of the base."""
    with open(f"{work}/layout/index.json") as file:
        digest = json.load(file)["manifests"][0]["digest"].split(":")[1]
    with open(f"{work}/layout/blobs/sha256/{digest}") as file:
        manifest = json.load(file)
    for blob in [*manifest["layers"], manifest["config"], {"digest": f"sha256:{digest}"}]:
        path = f"{work}/store/blobs/sha256/{blob['digest'].split(':')[1]}"
        if os.path.exists(path):
            os.remove(path)
    shutil.rmtree(f"{work}/store/actions", ignore_errors=True)
    shutil.rmtree(f"{work}/layout", ignore_errors=True)


def paired(label, programs, rounds, run):
    ratios, seen = [], {name: [] for name in programs}
    for number in range(rounds):
        names = list(programs)
        if number % 2:
            names.reverse()
        for name in names:
            seen[name].append(run(name))
        ratios.append(seen["new"][-1] / seen["old"][-1])
    old, new = (statistics.median(seen[name]) for name in ("old", "new"))
    print(f"{label:24} old {old:7.3f} s, new {new:7.3f} s: {statistics.median(ratios):.3f} times")


def main():
    programs = {"old": os.path.abspath(sys.argv[1]), "new": os.path.abspath(sys.argv[2])}
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 7
    os.makedirs(DIR, exist_ok=True)
    os.makedirs(pull.DIR, exist_ok=True)
    with open(f"{DIR}/paired.yaml", "w") as file:
        file.write(STACK)
    works = {name: f"{DIR}/{name}" for name in programs}
    for name, program in programs.items():
        prepare(program, works[name])

    def noop(name):
        return pull.timed(build(programs[name], works[name]))[0]

    def assemble(name):
        without_layers(works[name])
        return pull.timed(build(programs[name], works[name]))[0]

    paired("no-op build", programs, 5 * rounds, noop)
    paired("assemble", programs, rounds, assemble)
    source = f"{pull.DIR}/image"
    if os.fork() == 0:
        pull.image(source)
        os._exit(0)
    if os.wait()[1]:
        sys.exit("the image could not be made")
    server, host = pull.serve()
    try:
        name = f"{host}/bench:v1"
        push = [programs["new"], "--quiet", "--store", f"{DIR}/push", "push", f"oci:{source}:v1"]
        subprocess.run([*push, name], check=True, stdout=subprocess.DEVNULL)

        def pulled(kind):
            def run(who):
                with tempfile.TemporaryDirectory(dir=DIR) as work:
                    command = [programs[who], "--quiet", "--store", f"{work}/store", "pull", name]
                    command += ["--platform", "linux/amd64", "-o", f"{kind}:{work}/out"]
                    seconds = pull.timed(command)[0]
                os.sync()
                return seconds

            return run

        paired("pull into a layout", programs, rounds, pulled("oci"))
        paired("pull of files", programs, rounds, pulled("rootfs"))
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(f"{pull.DIR}/registry", ignore_errors=True)


if __name__ == "__main__":
    main()
