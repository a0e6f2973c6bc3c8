"""What DBeaver and Grafana do with the door of PostgreSQL's clients.

1. DBeaver's driver reads the rows of a topic like any other reader (run does that).
2. Each statement the two ask is answered, with the rows it is asked for (statements).
3. The driver's own look into the catalogue finds the topics, their columns, no keys.
4. What would run for long ends when it is cancelled, and when its time is over.
5. What writes, reads files or changes settings is refused, with a reason.
"""
import base64
import json

import statements
from readers import Failed
from rows import Wrong

# As the driver names them.
COLUMNS = [["column", "key", "bytea"], ["column", "value", "bytea"],
           ["column", "timestamp_broker", "timestamptz"],
           ["column", "timestamp_producer", "timestamptz"], ["column", "headers", "text"],
           ["column", "kafka_partition", "int4"], ["column", "kafka_offset", "int8"]]
# Of now in all tests, which run between these.
FIRST, LAST = "1970-01-01T00:00:00Z", "2100-01-01T00:00:00.123456Z"


# What is refused, and a word of the reason.
REFUSED = [("INSERT INTO {table} VALUES (1)", "queries only read"),
           ("DELETE FROM {table}", "queries only read"),
           ("CREATE TABLE copied AS SELECT * FROM {table}", "queries only read"),
           ("COPY {table} TO '/tmp/copied.parquet'", "queries only read"),
           ("SET datafusion.execution.batch_size = 1", "queries only read"),
           ("SELECT * FROM '/etc/passwd'", "not found"),
           ("SELECT * FROM read_parquet('/etc/passwd')", "not found")]


def ask(reader, mode, text, values=()):
    encoded = base64.b64encode(text.encode()).decode()
    return [json.loads(line) for line in reader.ask("ask", mode, encoded, *values)][1:]


def begins(row, wanted):
    return len(row) >= len(wanted) and all(
        expected is None or found == expected for found, expected in zip(row, wanted))


def check(reader, mode, statement):
    rows = ask(reader, mode, statement.text, statement.values)
    missing = [wanted for wanted in statement.sees
               if not any(begins(row, wanted) for row in rows)]
    if missing or (statement.none and rows):
        raise Wrong(f"{statement.text[:200]}: {missing} should be among {str(rows)[:600]}")
    return rows


def dbeaver(reader, topic, expected):
    schema = ask(reader, "extended", *statements.oid_of_schema())[0][0]
    table = ask(reader, "extended", *statements.oid_of_table(topic, schema))[0][0]
    for statement in statements.dbeaver(topic, schema, table):
        check(reader, "extended", statement)
    metadata(reader, topic)
    early(reader)
    refused(reader, topic)
    grafana(reader, topic, expected)


def grafana(reader, topic, expected):
    """Grafana sends whole texts, which the driver does too when it is told to."""
    for statement in statements.grafana(topic, FIRST, LAST):
        check(reader, "simple", statement)
    minutes = {}
    for row in expected:
        minute = row[6] // 60_000_000 * 60
        minutes[minute] = minutes.get(minute, 0) + 1
    rows = ask(reader, "simple", statements.minutes(topic, FIRST, LAST))
    found = {int(float(minute)): int(count) for minute, count in rows}
    if found != minutes:
        raise Wrong(f"rows a minute are {minutes}, Grafana sees {found}")


def metadata(reader, topic):
    found = [json.loads(line) for line in reader.ask("metadata", topic)]
    for wanted in [["product", "PostgreSQL", "true"], ["schema", "kafka_topics"],
                   ["catalog", "default"], ["table", "kafka_topics", topic, "TABLE"], *COLUMNS]:
        if not any(begins(row, wanted) for row in found):
            raise Wrong(f"the driver does not find {wanted} but {str(found)[:600]}")
    keys = [row for row in found if row[0] in ("primary key", "index")]
    if keys:
        raise Wrong(f"the driver finds {keys}, and there are none")


def refused(reader, topic):
    for text, reason in REFUSED:
        text = text.format(table=f'kafka_topics."{topic}"')
        for mode in ("simple", "extended"):
            try:
                ask(reader, mode, text)
            except Failed as refusal:
                if reason not in str(refusal):
                    raise Wrong(f"{text} is refused without a reason: {refusal}") from refusal
            else:
                raise Wrong(f"{text} is not refused")


def early(reader):
    found = [json.loads(line) for line in reader.ask("ends-early")]
    wanted = [["cancelled", "57014", "soon"], ["timed out", "57014", "soon"],
              ["afterwards", "42"]]
    if found != wanted:
        raise Wrong(f"statements that run for long: {found}, not {wanted}")
