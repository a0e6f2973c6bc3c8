"""How each kind of client gets onto the machine: by its registry's own tool, into a cache outside
the repository ($BASALT_CLIENTS or ~/.cache/basalt/clients), one folder for each pinned version.

What cannot be installed raises NotRun, with the last line of what the installer said.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

from processes import run
from records import NotRun

CACHE = pathlib.Path(os.environ.get("BASALT_CLIENTS")
                     or pathlib.Path.home() / ".cache" / "basalt" / "clients")
HERE = pathlib.Path(__file__).resolve().parent
INSTALL_SECONDS = 600
ONE_AT_A_TIME = threading.Lock()


def install(command, **more):
    try:
        return run([str(word) for word in command], seconds=INSTALL_SECONDS, **more)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        last = str(error).strip().splitlines()
        raise NotRun(f"cannot be installed: {last[-1] if last else error}"[:300]) from error


def apt(program, *packages):
    """A program of the system; packages of Debian where it is missing."""
    if not shutil.which(program):
        install(["apt-get", "install", "-y", "--no-install-recommends", *packages])


def once(name, work):
    """The folder CACHE/name, filled by `work` when it is not whole yet."""
    folder = CACHE / name
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        work(folder)
        (folder / "done").touch()
    return folder


def python(name, requirements):
    """An environment with wheels in it; its interpreter."""
    def work(folder):
        install([sys.executable, "-m", "venv", folder])
        install([folder / "bin" / "python", "-m", "pip", "install", "-q",
                 "--disable-pip-version-check", "--only-binary", ":all:", *requirements])
    return once(name, work) / "bin" / "python"


def node(name, packages, environment):
    """A folder of modules, for NODE_PATH. What has to be compiled finds the headers beside node,
    where it is not told otherwise."""
    apt("node", "nodejs")
    apt("npm", "npm")
    prefix = pathlib.Path(shutil.which("node")).resolve().parents[1]
    if (prefix / "include" / "node").exists():
        environment = {"npm_config_nodedir": str(prefix), **environment}

    def work(folder):
        install(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *packages],
                env={**os.environ, **environment}, cwd=folder)
    return once(name, work) / "node_modules"


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>basalt</groupId><artifactId>clients</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId>
    <version>{version}</version>
  </dependency></dependencies>
</project>
"""


def java(artifact, version):
    """A command line of java with an artifact of Apache Kafka, and what it needs, as class path."""
    apt("java", "default-jdk-headless")
    apt("mvn", "maven")

    def work(folder):
        pom = folder / "pom.xml"
        pom.write_text(POM.format(artifact=artifact, version=version))
        install(["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies",
                 f"-DoutputDirectory={folder}"])
    folder = once(f"{artifact}-{version}", work)
    return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-cp", f"{folder}/*"]


def go(program):
    """Builds adapters/go/PROGRAM with the versions in its go.mod."""
    if not shutil.which("go"):
        raise NotRun("cannot be installed: there is no go compiler here")
    CACHE.mkdir(parents=True, exist_ok=True)
    binary = CACHE / f"go-{program}"
    with ONE_AT_A_TIME:
        install(["go", "build", "-mod=readonly", "-o", binary, f"./{program}"],
                cwd=HERE / "adapters" / "go")
    return binary


def cargo(program):
    """Builds adapters/rust's PROGRAM with the versions in its lock file."""
    if not shutil.which("cargo"):
        raise NotRun("cannot be installed: there is no cargo here")
    target = CACHE / "rust"
    with ONE_AT_A_TIME:
        install(["cargo", "build", "-q", "--locked", "--bin", program, "--target-dir", target,
                 "--manifest-path", HERE / "adapters" / "rust" / "Cargo.toml"])
    return target / "debug" / program


def cargo_example(program):
    """Builds an example of the broker's package, with what `cargo test --workspace` has built."""
    if not shutil.which("cargo"):
        raise NotRun("cannot be installed: there is no cargo here")
    command = ["cargo", "build", "--workspace", "--locked", "--example", program,
               "--message-format", "json"]
    with ONE_AT_A_TIME:
        text = install(command, cwd=HERE.parents[1])
    made = (json.loads(line) for line in text.splitlines())
    return next(line["executable"] for line in made
                if line.get("executable") and line["target"]["name"] == program)
