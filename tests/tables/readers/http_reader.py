"""POST /sql: rows as an Arrow stream, with all their columns, counts as CSV, ends as JSON. The steps
are in ../readers.py."""
import json
import sys
import urllib.request

import pyarrow

from rows import dump, of_record, serve

ARROW = "application/vnd.apache.arrow.stream"


def post(text, accept):
    request = urllib.request.Request(f"http://{ADDRESS}/sql", text.encode(), {"Accept": accept})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def name(topic):
    return f'kafka_topics."{topic}"'


def show(text):
    with pyarrow.ipc.open_stream(post(text, ARROW)) as stream:
        dump(map(of_record, stream.read_all().to_pylist()))


def rows(topic):
    show(f"SELECT * FROM {name(topic)}")


def where(topic, partition, offset):
    show(f"SELECT * FROM {name(topic)} WHERE kafka_partition = {partition} "
         f"AND kafka_offset >= {offset}")


def count(topic):
    lines = post(f"SELECT count(*) AS n FROM {name(topic)}", "text/csv").decode().splitlines()
    assert lines[0] == "n", lines
    print(lines[1])


def ends(topic):
    text = f"SELECT max(kafka_offset) AS last, min(kafka_offset) AS first FROM {name(topic)}"
    found = json.loads(post(text, "*/*"))
    print(found["last"], found["first"])


def version():
    print("pyarrow", pyarrow.__version__)


ADDRESS = sys.argv[1]
serve(globals())
