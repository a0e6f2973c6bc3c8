"""The clients and how each is installed, with their versions in one table at the end."""
import re

import installs
from client import Adapter, Confluent
from native import ConsoleTools, Kcat, VerifiableTools

ADAPTERS = installs.HERE / "adapters"


def folder_of(package):
    return re.sub(r"[^\w.]+", "-", package).strip("-")


def python_client(script, requirements):
    def prepare():
        return [installs.python(folder_of(requirements[0]), requirements), ADAPTERS / script], {}
    return prepare


def node_client(flavour, packages, system=(), **environment):
    def prepare():
        modules = installs.node(folder_of(packages[0]), packages, system, environment)
        return ["node", ADAPTERS / "javascript.js", flavour], {"NODE_PATH": str(modules)}
    return prepare


def go_client(program):
    return lambda: ([installs.go(program)], {})


def rust_client(install, program):
    return lambda: ([install(program)], {})


KAFKA_BROKER = "4.1.0"
KAFKA_PYTHON = "kafka-python[crc32c,lz4,snappy,zstd]=="
AIOKAFKA = "aiokafka[lz4,snappy,zstd]=="

CLIENTS = [
    Kcat("kcat"),
    Confluent("confluent-kafka-2.4",
              python_client("confluent.py", ["confluent-kafka==2.4.0"]), is_idempotent=False),
    Confluent("confluent-kafka-newest",
              python_client("confluent.py", ["confluent-kafka==2.16.1"])),
    Adapter("kafka-python-2.3.2",
            python_client("kafka_python.py", [KAFKA_PYTHON + "2.3.2"]), is_idempotent=False),
    Adapter("kafka-python-3.0.11", python_client("kafka_python.py", [KAFKA_PYTHON + "3.0.11"])),
    Adapter("kafka-python-3.0.12", python_client("kafka_python.py", [KAFKA_PYTHON + "3.0.12"])),
    Adapter("aiokafka-0.10",
            python_client("aio.py", [AIOKAFKA + "0.10.0"]), is_idempotent=False),
    Adapter("aiokafka-newest", python_client("aio.py", [AIOKAFKA + "0.14.0"])),
    Adapter("kafkajs",
            node_client("kafkajs", ["kafkajs@2.2.4", "kafkajs-snappy@1.1.0"]),
            codecs=["none", "gzip", "snappy"], is_idempotent=False),
    Adapter("confluent-javascript",
            node_client("confluent", ["@confluentinc/kafka-javascript@1.10.1"],
                        ["g++", "make", "python3", "libssl-dev", "libzstd-dev", "zlib1g-dev"],
                        CKJS_LINKING="dynamic", npm_config_build_from_source="true")),
    ConsoleTools("java-console-4.1", "4.1.0"),
    ConsoleTools("java-console-newest", "4.4.0"),
    VerifiableTools("java-verifiable", "4.4.0"),
    Adapter("franz-go", go_client("franz")),
    Adapter("sarama", go_client("sarama")),
    Adapter("rdkafka", rust_client(installs.cargo_example, "rdkafka")),
    Adapter("rskafka", rust_client(installs.cargo, "rskafka"), has_groups=False,
            is_idempotent=False, repeats_headers=False),
]

# These always run with `run --rotate`: librdkafka old and new are most of what is out there.
CORE = ["kcat", "confluent-kafka-newest"]
