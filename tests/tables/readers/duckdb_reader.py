"""DuckDB with its Iceberg extension, which comes as a wheel. The steps are in ../readers.py."""
import base64
import importlib
import pathlib
import sys

import duckdb

from rows import dump, row, serve

# Timestamps as numbers: as objects of Python they would need one more package.
COLUMNS = ("kafka_partition, kafka_offset, key, value, headers, epoch_us(timestamp_broker), "
           "epoch_us(timestamp_producer)")


def connect():
    connection = duckdb.connect()
    for name in ("httpfs", "avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        found = sorted(pathlib.Path(package.__file__).parent.rglob("*.duckdb_extension"))
        connection.load_extension(str(found[0]))
    connection.execute(f"ATTACH 'default' AS basalt (TYPE iceberg, ENDPOINT '{CATALOGUE}', "
                       "AUTHORIZATION_TYPE 'none')")
    return connection


def show(connection, query):
    for *place, key, value, headers, broker, producer in connection.execute(query).fetchall():
        headers = [(header["key"], header["value"]) for header in headers]
        dump([row(*place, key, value, headers, broker, producer)])


def name(topic):
    return f'basalt.kafka_topics."{topic}"'


def rows(topic, snapshot=None):
    at = f" AT (VERSION => {snapshot})" if snapshot else ""
    show(connect(), f"SELECT {COLUMNS} FROM {name(topic)}{at}")


def where(topic, partition, offset):
    show(connect(), f"SELECT {COLUMNS} FROM {name(topic)} "
         f"WHERE kafka_partition = {partition} AND kafka_offset >= {offset}")


def count(topic):
    print(connect().execute(f"SELECT count(*) FROM {name(topic)}").fetchone()[0])


def ends(topic):
    query = f"SELECT max(kafka_offset), min(kafka_offset) FROM {name(topic)}"
    print(*connect().execute(query).fetchone())


def write(topic):
    connect().execute(f"INSERT INTO {name(topic)} SELECT * FROM {name(topic)} LIMIT 1")


def ask(text):
    found = connect().execute(base64.b64decode(text).decode()).fetchall()
    dump([None if field is None else str(field) for field in line] for line in found)


def version():
    print(duckdb.__version__)


CATALOGUE = sys.argv[1]
serve(globals())
