"""psycopg, over PostgreSQL's wire. The steps are in ../readers.py; headers are not compared."""
import base64
import sys

import psycopg

from rows import dump, micros, row, serve

COLUMNS = "kafka_partition, kafka_offset, key, value, timestamp_broker, timestamp_producer"


def query(text, *values):
    host, port = ADDRESS.rsplit(":", 1)
    with psycopg.connect(host=host, port=port, user="reader", dbname="default",
                         autocommit=True, connect_timeout=10) as connection:
        return connection.execute(text, values or None).fetchall()


def name(topic):
    return f'kafka_topics."{topic}"'


def show(found):
    dump(row(partition, offset, key, value, [], micros(broker), micros(producer))
         for partition, offset, key, value, broker, producer in found)


def rows(topic):
    show(query(f"SELECT {COLUMNS} FROM {name(topic)}"))


def where(topic, partition, offset):
    show(query(f"SELECT {COLUMNS} FROM {name(topic)} WHERE kafka_partition = %s "
               "AND kafka_offset >= %s", int(partition), int(offset)))


def count(topic):
    print(query(f"SELECT count(*) FROM {name(topic)}")[0][0])


def ends(topic):
    print(*query(f"SELECT max(kafka_offset), min(kafka_offset) FROM {name(topic)}")[0])


def ask(text):
    dump([None if field is None else str(field) for field in line]
         for line in query(base64.b64decode(text).decode()))


def version():
    print(psycopg.__version__)


ADDRESS = sys.argv[1]
serve(globals())
