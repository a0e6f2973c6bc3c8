"""pyiceberg: rows, snapshots and an attempt to write. The steps are in ../readers.py."""
import pathlib
import sys
import urllib.parse

import pyarrow
import pyiceberg
from pyiceberg.catalog import load_catalog

from rows import dump, of_record, serve


def table(topic):
    return load_catalog("basalt", type="rest", uri=CATALOGUE).load_table(f"kafka_topics.{topic}")


def rows(topic, snapshot=None):
    scan = table(topic).scan(snapshot_id=snapshot and int(snapshot))
    dump(map(of_record, scan.to_arrow().to_pylist()))


def snapshots(topic):
    for entry in table(topic).metadata.snapshots:
        print(entry.snapshot_id, entry.summary.operation.value, entry.timestamp_ms)


def where(topic, partition, offset):
    chosen = f"kafka_partition = {partition} and kafka_offset >= {offset}"
    scan = table(topic).scan(row_filter=chosen)
    dump(map(of_record, scan.to_arrow().to_pylist()))


def count(topic):
    print(table(topic).scan().count())


def names():
    found = load_catalog("basalt", type="rest", uri=CATALOGUE)
    assert found.list_namespaces() == [("kafka_topics",)], found.list_namespaces()
    assert found.table_exists("kafka_topics.no-such-topic") is False
    for _, name in found.list_tables("kafka_topics"):
        print(name)


def write(topic):
    into = table(topic)
    into.append(into.scan(limit=1).to_arrow().cast(into.schema().as_arrow()))


def hold(topic):
    HELD[:] = [table(topic)]
    HELD[1:] = [pathlib.Path(urllib.parse.urlparse(task.file.file_path).path)
                for task in HELD[0].scan().plan_files()]
    print(len(HELD[1:]))


def held():
    dump(map(of_record, HELD[0].scan().to_arrow().to_pylist()))


def files():
    print(sum(path.exists() for path in HELD[1:]))


def version():
    print(pyiceberg.__version__, "pyarrow", pyarrow.__version__)


CATALOGUE = sys.argv[1]
# The table that is kept, and its files.
HELD = []
serve(globals())
