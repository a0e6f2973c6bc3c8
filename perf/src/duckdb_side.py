"""DuckDB's side of `basalt-perf sql`: the same statements over the same Parquet files.

One JSON object comes in: `files`, `statements` (with `{t}` for the table), `rounds`. One goes out:
the version, and for each statement its times in ms and its rows as objects.
"""
import json
import sys
import time

import duckdb

ask = json.load(sys.stdin)
files = ", ".join("'" + name.replace("'", "''") + "'" for name in ask["files"])
connection = duckdb.connect()
# What it shows while it works would stand among what goes out.
connection.execute("SET enable_progress_bar = false")
results = []
for statement in ask["statements"]:
    query = statement.replace("{t}", f"read_parquet([{files}])")
    times = []
    for _ in range(ask["rounds"]):
        begun = time.perf_counter()
        answer = connection.execute(query)
        names = [column[0] for column in answer.description]
        rows = answer.fetchall()
        times.append((time.perf_counter() - begun) * 1000)
    results.append({"ms": times, "rows": [dict(zip(names, row)) for row in rows]})
print(json.dumps({"version": duckdb.__version__, "results": results}))
