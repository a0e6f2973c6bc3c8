"""How each kind of client gets onto the machine: by its registry's own tool, into a cache outside
the repository ($BASALT_CLIENTS or ~/.cache/basalt/clients), one folder for each pinned version.

What cannot be installed raises NotRun, with the last line of what the installer said.
"""
import json
import os
import pathlib
import re
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
        said = reason(getattr(error, "said", str(error)))
        raise NotRun(f"cannot be installed: {said}"[:300]) from error


def reason(text):
    """The first line that says what is wrong, or the last one."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()]
    lines = [line for line in lines if re.search(r"\w", line)]
    telling = [line for line in lines if re.match(r"(\[?error|npm err).{20}", line, re.IGNORECASE)]
    return (telling or lines[-1:] or [text])[0]


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


def node(name, packages, system, environment):
    """A folder of modules, for NODE_PATH. What has to be compiled needs packages of the `system`
    and finds the headers beside node."""
    apt("node", "nodejs")
    apt("npm", "npm")
    prefix = pathlib.Path(shutil.which("node")).resolve().parents[1]
    if (prefix / "include" / "node").exists():
        environment = {"npm_config_nodedir": str(prefix), **environment}

    def work(folder):
        if system:
            install(["apt-get", "install", "-y", "--no-install-recommends", *system])
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
        install(["mvn", "-q", "-B", "-U", "-f", pom, "dependency:copy-dependencies",
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
        install(["go", "mod", "download"], cwd=HERE / "adapters" / "go")
        run(["go", "build", "-mod=readonly", "-o", str(binary), f"./{program}"],
            seconds=INSTALL_SECONDS, cwd=HERE / "adapters" / "go")
    return binary


def cargo(program):
    """Builds adapters/rust's PROGRAM with the versions in its lock file."""
    return cargo_build(HERE / "adapters" / "rust", "--bin", program,
                       "--target-dir", CACHE / "rust")


def cargo_example(program):
    """Builds an example of the broker's package, with what `cargo test --workspace` has built."""
    return cargo_build(HERE.parents[1], "--workspace", "--example", program)


def cargo_build(folder, *words):
    """What has to be fetched may be out of reach; what does not compile then is a failure."""
    if not shutil.which("cargo"):
        raise NotRun("cannot be installed: there is no cargo here")
    command = ["cargo", "build", "-q", "--locked", "--offline", "--message-format", "json", *words]
    with ONE_AT_A_TIME:
        install(["cargo", "fetch", "-q", "--locked"], cwd=folder)
        text = run([str(word) for word in command], seconds=INSTALL_SECONDS, cwd=folder)
    made = [json.loads(line) for line in text.splitlines()]
    return next(line["executable"] for line in made if line.get("executable"))
