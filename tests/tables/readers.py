"""The readers of tables: how each is installed, and how each is asked.

A reader is a program in readers/ that stays up for a run. It gets an address as its argument and
steps as lines (rows.serve); what a step prints is its answer:

    version                            a line
    names                              the topics there are, a line each
    rows TOPIC [SNAPSHOT]              rows, as rows.py has them; of now, or of a snapshot
    where TOPIC PARTITION OFFSET       the rows of a partition from an offset on
    count TOPIC                        how many rows there are, from metadata where it can
    ends TOPIC                         the greatest and the least offset
    snapshots TOPIC                    id, operation and time in ms, a line each, oldest first
    write TOPIC                        tries to add a row, which has to fail
    ask MODE BASE64 [TYPE:VALUE...]    the names and rows of a statement (jdbc), or the rows of one
                                       in BASE64 (psycopg, duckdb), as lists of texts
    hold TOPIC                         loads a table and keeps it (pyiceberg): its rows and files
    held                               the rows of the table that was kept
    files                              how many of its files are there still

The Kafka client writes as well: produce TOPIC CODEC FIRST COUNT, and its rows take the ends; `bulk
TOPIC COUNT` writes many small records, `empty TOPIC` deletes all records there are.
"""
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
import installs
from records import NotRun

SPARK = ("pyspark==4.0.5", "iceberg-spark-runtime-4.0_2.13", "1.10.1")
TABLES = ["pyiceberg[pyarrow]==0.12.0", "polars==2.1.0", "duckdb==1.5.5",
          "duckdb-extension-iceberg==1.5.5", "duckdb-extension-avro==1.5.5",
          "duckdb-extension-httpfs==1.5.5"]
KAFKA = ["confluent-kafka==2.16.1"]
SQL = ["psycopg[binary]==3.3.9"]
JDBC = ("postgresql", "42.7.4")


def tables():
    return installs.python("readers-of-tables", TABLES), {}


def kafka():
    return installs.python("confluent-kafka--2.16.1", KAFKA), {}


def sql():
    """Both clients of PostgreSQL: psycopg, and the program psql."""
    installs.apt("psql", "postgresql-client")
    return installs.python("psycopg-3.3.9", SQL), {}


def jdbc():
    """PostgreSQL's JDBC driver; its reader is compiled as it starts."""
    artifact, version = JDBC
    installs.apt("java", "default-jdk-headless")
    installs.apt("mvn", "maven")

    def jar(folder):
        installs.install(["mvn", "-q", "-B", "dependency:copy",
                          f"-Dartifact=org.postgresql:{artifact}:{version}",
                          f"-DoutputDirectory={folder}"])
    folder = installs.once(f"pgjdbc-{version}", jar)
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
            folder / f"{artifact}-{version}.jar"], {}


def spark():
    """The runtime of Iceberg comes from where the Java clients come from."""
    package, artifact, version = SPARK
    installs.apt("java", "default-jdk-headless")
    installs.apt("mvn", "maven")

    def jar(folder):
        installs.install(["mvn", "-q", "-B", "dependency:copy",
                          f"-Dartifact=org.apache.iceberg:{artifact}:{version}",
                          f"-DoutputDirectory={folder}"])
    folder = installs.once(f"{artifact}-{version}", jar)
    # Spark's package comes as sources, which need nothing but Python to install.
    def environment(into):
        installs.install([sys.executable, "-m", "venv", into])
        installs.install([into / "bin" / "python", "-m", "pip", "install", "-q",
                          "--disable-pip-version-check", package])
    python = installs.once(f"pyspark-{package.rsplit('=', 1)[1]}", environment) / "bin" / "python"
    runtime = str(folder / f"{artifact}-{version}.jar")
    return python, {"ICEBERG_RUNTIME": runtime, "PYSPARK_PYTHON": str(python)}


class Failed(RuntimeError):
    """What a reader said of a step that failed."""


class Reader:
    """One program; used in a `with`."""

    def __init__(self, script, install, address, directory):
        self.name = pathlib.Path(script).stem.removesuffix("_reader").lower()
        self.script, self.install, self.address = script, install, address
        self.errors = os.path.join(directory, f"{self.name}.err")
        self.child = None

    def __enter__(self):
        program, environment = self.install()
        program = program if isinstance(program, list) else [program]
        environment = {**os.environ, **environment, "PYTHONPATH": str(HERE),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        with open(self.errors, "wb") as errors:
            self.child = subprocess.Popen(
                [*map(str, program), str(HERE / "readers" / self.script), self.address],
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=environment)
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()

    def ask(self, *step):
        """The lines a step prints."""
        self.child.stdin.write(" ".join(str(word) for word in step) + "\n")
        self.child.stdin.flush()
        lines = []
        for line in self.child.stdout:
            line = line.rstrip("\n")
            if line == "done":
                return lines
            if line.startswith("failed "):
                raise Failed(json.loads(line.removeprefix("failed ")))
            lines.append(line)
        with open(self.errors, errors="replace") as said:
            raise Failed(f"{self.name} ended: {said.read()[-1500:]}")


def of_tables(name):
    return f"{name}_reader.py", spark if name == "spark" else tables


def of_sql(name):
    scripts = {"jdbc": ("Jdbc.java", jdbc), "http": ("http_reader.py", tables)}
    return scripts.get(name) or (f"{name}_reader.py", sql)


__all__ = ["Failed", "NotRun", "Reader", "kafka", "of_sql", "of_tables", "sql", "tables"]
