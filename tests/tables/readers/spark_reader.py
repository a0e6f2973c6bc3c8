"""Spark with the Iceberg runtime, whose jar is $ICEBERG_RUNTIME. The steps are in ../readers.py."""
import datetime
import os
import sys

import pyspark
from pyspark.sql import SparkSession

from rows import dump, of_record, serve

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.catalog.basalt": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.basalt.type": "rest",
    # Otherwise Spark does not look for new rows for 30 s.
    "spark.sql.catalog.basalt.cache-enabled": "false",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def session():
    builder = SparkSession.builder.master("local[2]").appName("basalt")
    builder = builder.config("spark.jars", os.environ["ICEBERG_RUNTIME"])
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    started = builder.config("spark.sql.catalog.basalt.uri", CATALOGUE).getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def show(frame):
    def with_zone(record):
        """Spark gives local times without saying so."""
        for name in ("timestamp_broker", "timestamp_producer"):
            if record[name] is not None:
                record[name] = record[name].astimezone(datetime.timezone.utc)
        return record
    dump(of_record(with_zone(line.asDict(recursive=True))) for line in frame.collect())


def name(topic):
    return f"basalt.kafka_topics.`{topic}`"


def rows(topic, snapshot=None):
    at = f" VERSION AS OF {snapshot}" if snapshot else ""
    show(session().sql(f"SELECT * FROM {name(topic)}{at}"))


def where(topic, partition, offset):
    show(session().sql(f"SELECT * FROM {name(topic)} WHERE kafka_partition = {partition} "
                                f"AND kafka_offset >= {offset}"))


def count(topic):
    print(session().sql(f"SELECT count(*) FROM {name(topic)}").first()[0])


def ends(topic):
    query = f"SELECT max(kafka_offset), min(kafka_offset) FROM {name(topic)}"
    print(*session().sql(query).first())


def names():
    started = session()
    found = started.sql("SHOW NAMESPACES IN basalt").collect()
    assert [line[0] for line in found] == ["kafka_topics"], found
    for line in started.sql("SHOW TABLES IN basalt.kafka_topics").collect():
        print(line["tableName"])


def snapshots(topic):
    query = (f"SELECT snapshot_id, operation, unix_millis(committed_at) "
             f"FROM {name(topic)}.snapshots ORDER BY committed_at")
    for line in session().sql(query).collect():
        print(*line)


def write(topic):
    session().sql(f"INSERT INTO {name(topic)} SELECT * FROM {name(topic)} LIMIT 1")


def version():
    print(pyspark.__version__, os.path.basename(os.environ["ICEBERG_RUNTIME"]))


CATALOGUE = sys.argv[1]
serve(globals())
