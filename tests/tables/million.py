"""Many rows: counts, filters and groups in SQL of the broker and in DuckDB over the same files.

The rows are in table files when they are asked about, so that both read the same Parquet: the
broker's own engine, and DuckDB through the Iceberg catalogue. Answers have to be equal.
"""
import base64
import json
import time

from readers import Reader, of_tables, sql
from rows import Wrong
from sources import Live

SETTINGS = ["hot.bytes=0", "hot.ms=0", "table.commit.ms=1s", "log.segment.bytes=64MiB"]
PATIENCE = 120
FIELD = {"psycopg": "json_get_str(utf8(value), 'lava')",
         "duckdb": "json_extract_string(decode(value), '$.lava')"}
NUMBER = {"psycopg": "json_get_int(utf8(value), 'heat')",
          "duckdb": "CAST(json_extract(decode(value), '$.heat') AS BIGINT)"}
SIZE = {"psycopg": "octet_length(utf8(value))", "duckdb": "octet_length(value)"}
TABLE = {"psycopg": "kafka_topics.many", "duckdb": "basalt.kafka_topics.many"}
QUESTIONS = [
    "SELECT count(*) FROM {table}",
    "SELECT count(*), count(key), min(kafka_offset), max(kafka_offset) FROM {table}",
    "SELECT kafka_partition, count(*), sum({size}) FROM {table} "
    "GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM {table} "
    "WHERE kafka_partition = 1 AND kafka_offset BETWEEN 1000 AND 42424",
    "SELECT kafka_partition, kafka_offset FROM {table} WHERE kafka_offset % 9973 = 0 ORDER BY 1, 2",
    "SELECT {field}, count(*), sum({number}) FROM {table} GROUP BY 1 ORDER BY 1",
    "SELECT count(*) FROM {table} WHERE {field} = 'red' AND {number} < 500",
    "SELECT {number} % 10, max(kafka_offset) FROM {table} WHERE {number} > 900 "
    "GROUP BY 1 ORDER BY 1",
]


class Many(Live):
    topic, settings = "many", SETTINGS


def compare(binary, directory, count=1_000_000):
    """What was found, as a line."""
    with Many(binary, directory) as source:
        begun = time.monotonic()
        source.client.ask("bulk", source.topic, count)
        produced = time.monotonic() - begun
        broker = Reader("psycopg_reader.py", sql, source.place("pg"), directory)
        duck = Reader("duckdb_reader.py", of_tables("duckdb")[1], source.catalogue, directory)
        with broker, duck:
            in_files(duck, count)
            for question in QUESTIONS:
                answers = [ask(reader, question) for reader in (broker, duck)]
                if answers[0] != answers[1] or not answers[0]:
                    raise Wrong(f"{question}: the broker says {str(answers[0])[:400]}, DuckDB "
                                f"{str(answers[1])[:400]}")
        source.broker.check_said()
    return f"{count} rows, {len(QUESTIONS)} questions, produced in {produced:.1f} s"


def ask(reader, question):
    words = {"table": TABLE, "field": FIELD, "number": NUMBER, "size": SIZE}
    text = question.format(**{word: by[reader.name] for word, by in words.items()})
    encoded = base64.b64encode(text.encode()).decode()
    return [json.loads(line) for line in reader.ask("ask", encoded)]


def in_files(duck, count):
    """Waits until the catalogue shows every row."""
    until = time.monotonic() + PATIENCE
    while int(duck.ask("count", "many")[0]) != count:
        if time.monotonic() > until:
            raise Wrong(f"after {PATIENCE} s DuckDB finds {duck.ask('count', 'many')[0]} rows")
        time.sleep(0.5)
