"""The clients, each behind the same four steps: prepare, create, produce, consume.

Each step runs the client's own program in a process of its own. What has to be installed goes
into a cache outside the repository: $BASALT_CLIENTS or ~/.cache/basalt/clients.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

from scenario import NotRun, Record

CACHE = pathlib.Path(os.environ.get("BASALT_CLIENTS")
                     or pathlib.Path.home() / ".cache" / "basalt" / "clients")
HERE = pathlib.Path(__file__).resolve().parent
STEP_SECONDS = 120
INSTALL_SECONDS = 400
PARTITIONS = 3


def run(command, text=None, seconds=STEP_SECONDS, **more):
    """The standard output of a command that has to succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds,
                          **more)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-800:]
        raise RuntimeError(f"{os.path.basename(command[0])} ended with {done.returncode}: {said}")
    return done.stdout


def install(command):
    """Runs an installer; what it cannot get is a client that is not run."""
    try:
        run(command, seconds=INSTALL_SECONDS)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        last = str(error).strip().splitlines()
        raise NotRun(f"cannot be installed: {last[-1] if last else error}"[:300]) from error


class Kcat:
    """Debian's kcat. Topics come by themselves; one run sets the same headers for all records."""
    name = "kcat"
    headers = [("twice", "a"), ("twice", "b"), ("source", "basalt")]

    def prepare(self):
        if not shutil.which("kcat"):
            install(["apt-get", "install", "-y", "--no-install-recommends", "kcat"])
        text = run(["kcat", "-V"])
        version = text.split("Version ")[1].split(" ")[0]
        library = text.split("librdkafka ")[1].split(" ")[0]
        return f"{version} (librdkafka {library})"

    def create(self, address, topic):
        pass

    def sent_as(self, records):
        return [Record(record.key, record.value, self.headers) for record in records]

    def produce(self, address, topic, codec, records):
        headers = [word for key, value in self.headers for word in ("-H", f"{key}={value}")]
        text = "".join(f"{record.key}\t{record.value}\n" for record in records)
        run(["kcat", "-b", address, "-P", "-t", topic, "-z", codec, "-K", "\t", *headers], text)

    def consume(self, address, topic, count):
        text = run(["kcat", "-b", address, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J"])
        return [kcat_record(json.loads(line)) for line in text.splitlines()]


def kcat_record(message):
    flat = message["headers"]
    return Record(message["key"], message["payload"], list(zip(flat[::2], flat[1::2])),
                  message["partition"], message["offset"])


class Confluent:
    """confluent-kafka in an environment of its own; idempotent where it is the newest."""

    def __init__(self, name, requirement, is_idempotent):
        self.name, self.requirement, self.is_idempotent = name, requirement, is_idempotent
        self.python = CACHE / name / "bin" / "python"

    def prepare(self):
        if not self.python.exists():
            CACHE.mkdir(parents=True, exist_ok=True)
            install([sys.executable, "-m", "venv", str(CACHE / self.name)])
        pip = [str(self.python), "-m", "pip", "install", "-q", "--disable-pip-version-check",
               "--only-binary", ":all:", "-U", self.requirement]
        try:
            install(pip)
        except NotRun:
            if not self.is_installed():
                raise
        version, library = json.loads(self.program("version"))
        return f"{version} (librdkafka {library})"

    def is_installed(self):
        command = [str(self.python), "-c", "import confluent_kafka"]
        return subprocess.run(command, capture_output=True).returncode == 0

    def program(self, *words, text=None):
        return run([str(self.python), str(HERE / "confluent.py"), *words], text)

    def create(self, address, topic):
        self.program("create", address, topic, str(PARTITIONS))

    def sent_as(self, records):
        return records

    def produce(self, address, topic, codec, records):
        text = "".join(json.dumps(record.content()) + "\n" for record in records)
        acks = "idempotent" if self.is_idempotent else "all"
        self.program("produce", address, topic, codec, acks, text=text)

    def consume(self, address, topic, count):
        seen = []
        for line in self.program("consume", address, topic, str(PARTITIONS)).splitlines():
            partition, offset, key, value, headers = json.loads(line)
            headers = [tuple(header) for header in headers]
            seen.append(Record(key, value, headers, partition, offset))
        return seen


class Java:
    """Apache Kafka's console producer and consumer, from Maven Central."""
    name = "java-console"
    version = "4.1.0"
    jars = CACHE / f"kafka-tools-{version}"

    def prepare(self):
        for tool in ("java", "mvn"):
            if not shutil.which(tool):
                install(["apt-get", "install", "-y", "--no-install-recommends",
                         "default-jdk-headless", "maven"])
        if not (self.jars / "done").exists():
            self.jars.mkdir(parents=True, exist_ok=True)
            pom = self.jars / "pom.xml"
            pom.write_text(POM.format(version=self.version))
            install(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                     f"-DoutputDirectory={self.jars}"])
            (self.jars / "done").touch()
        return f"{self.version} ({run(['java', '--version']).splitlines()[0]})"

    def tool(self, name, *words, text=None):
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-cp", f"{self.jars}/*"]
        return run([*java, f"org.apache.kafka.tools.{name}", *words], text)

    def create(self, address, topic):
        self.tool("TopicCommand", "--bootstrap-server", address, "--create", "--topic", topic,
                  "--partitions", "1", "--replication-factor", "1")

    def sent_as(self, records):
        return records

    def produce(self, address, topic, codec, records):
        lines = [",".join(f"{key}:{value}" for key, value in record.headers)
                 + f"\t{record.key}\t{record.value}\n" for record in records]
        self.tool("ConsoleProducer", "--bootstrap-server", address, "--topic", topic,
                  "--compression-codec", codec, "--property", "parse.key=true",
                  "--property", "parse.headers=true", text="".join(lines))

    def consume(self, address, topic, count):
        wanted = [f"print.{part}=true" for part in ("partition", "offset", "headers", "key")]
        properties = [word for part in wanted for word in ("--property", part)]
        text = self.tool("consumer.ConsoleConsumer", "--bootstrap-server", address,
                         "--topic", topic, "--partition", "0", "--offset", "earliest",
                         "--max-messages", str(count), "--timeout-ms", "30000", *properties)
        return [java_record(line) for line in text.splitlines()]


def java_record(line):
    partition, offset, headers, key, value = line.split("\t")
    headers = [tuple(header.split(":", 1)) for header in headers.split(",")]
    return Record(key, value, headers, int(partition.split(":")[1]), int(offset.split(":")[1]))


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>basalt</groupId><artifactId>clients</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
    <version>{version}</version>
  </dependency></dependencies>
</project>
"""

CLIENTS = [
    Kcat(),
    Confluent("confluent-kafka-2.4", "confluent-kafka==2.4.0", is_idempotent=False),
    Confluent("confluent-kafka-newest", "confluent-kafka", is_idempotent=True),
    Java(),
]
