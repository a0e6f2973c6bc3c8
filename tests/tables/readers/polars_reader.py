"""Polars, over a table that pyiceberg looks up. The steps are in ../readers.py."""
import sys

import polars
from pyiceberg.catalog import load_catalog

from rows import dump, of_record, serve


def frame(topic, snapshot=None):
    found = load_catalog("basalt", type="rest", uri=CATALOGUE)
    return polars.scan_iceberg(found.load_table(f"kafka_topics.{topic}"),
                               snapshot_id=snapshot and int(snapshot))


def rows(topic, snapshot=None):
    dump(map(of_record, frame(topic, snapshot).collect().to_dicts()))


def where(topic, partition, offset):
    chosen = (polars.col("kafka_partition") == int(partition)) \
        & (polars.col("kafka_offset") >= int(offset))
    dump(map(of_record, frame(topic).filter(chosen).collect().to_dicts()))


def count(topic):
    print(frame(topic).select(polars.len()).collect().item())


def version():
    print(polars.__version__)


CATALOGUE = sys.argv[1]
serve(globals())
