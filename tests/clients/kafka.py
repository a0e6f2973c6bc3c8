"""Apache Kafka itself as the broker of the scenario: what fails there as well is not Basalt's.

One combined node (KRaft) on loopback, from the same jars as its clients, ended by its id.
"""
import os
import pathlib
import subprocess
import time

import wire
from broker import Broker, free_port

READY_WITHIN = 60
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{address},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{address}
log.dirs={data}
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""


class Kafka(Broker):
    """Started by `java`, a command line up to the class path."""
    clean_statuses = (0, 143)

    def __init__(self, java, data, port=None):
        super().__init__("java", data, port=port)
        self.java = java
        self.properties = pathlib.Path(data) / "server.properties"

    def format(self):
        pathlib.Path(self.data).mkdir(parents=True, exist_ok=True)
        text = PROPERTIES.format(address=self.address, controller=free_port(),
                                 data=os.path.join(self.data, "log"))
        self.properties.write_text(text)
        command = [*self.java, "kafka.tools.StorageTool", "format", "--cluster-id",
                   "basaltbasaltbasaltbasa", "--config", str(self.properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=READY_WITHIN)
        if done.returncode:
            raise RuntimeError(f"Kafka's storage cannot be made: {done.stderr or done.stdout}")

    def start(self):
        if not self.properties.exists():
            self.format()
        begun = time.monotonic()
        self.process = subprocess.Popen([*self.java, "kafka.Kafka", str(self.properties)],
                                        stdin=subprocess.DEVNULL, stdout=self.said,
                                        stderr=self.said)
        while not self.answers():
            if not self.is_running() or time.monotonic() - begun > READY_WITHIN:
                self.kill()
                raise RuntimeError(f"Kafka is not ready:\n{self.errors()}")
            time.sleep(0.2)
        self.ready_seconds = time.monotonic() - begun

    def answers(self):
        try:
            answer = wire.ask(self.address, wire.METADATA, 1, wire.many([]))
            return answer.int32() > 0
        except (OSError, IndexError):
            return False
