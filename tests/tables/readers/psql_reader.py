"""psql, PostgreSQL's own client. The steps are in ../readers.py; headers are not compared."""
import csv
import datetime
import io
import subprocess
import sys

from rows import dump, micros, row, serve

COLUMNS = "kafka_partition, kafka_offset, key, value, timestamp_broker, timestamp_producer"
NULL = "<null>"


def query(text, database=("--dbname", "default")):
    host, port = ADDRESS.rsplit(":", 1)
    command = ["psql", "--host", host, "--port", port, "--username", "reader", *database,
               "--no-psqlrc", "--no-password", "--csv", "--tuples-only",
               "--pset", f"null={NULL}", "--command", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(done.stderr.strip())
    return list(csv.reader(io.StringIO(done.stdout)))


def name(topic):
    return f'kafka_topics."{topic}"'


def data(text):
    return None if text == NULL else bytes.fromhex(text.removeprefix("\\x"))


def moment(text):
    return None if text == NULL else micros(datetime.datetime.fromisoformat(text))


def show(found):
    dump(row(int(partition), int(offset), data(key), data(value), [], moment(broker),
             moment(producer))
         for partition, offset, key, value, broker, producer in found)


def rows(topic):
    show(query(f"SELECT {COLUMNS} FROM {name(topic)}"))


def where(topic, partition, offset):
    show(query(f"SELECT {COLUMNS} FROM {name(topic)} WHERE kafka_partition = {partition} "
               f"AND kafka_offset >= {offset}"))


def count(topic):
    """As in README: no database, and the topic's name alone."""
    print(query(f'SELECT count(*) FROM "{topic}"', ())[0][0])


def ends(topic):
    print(*query(f"SELECT max(kafka_offset), min(kafka_offset) FROM {name(topic)}")[0])


def version():
    done = subprocess.run(["psql", "--version"], capture_output=True, text=True, timeout=60)
    print(done.stdout.strip())


ADDRESS = sys.argv[1]
serve(globals())
