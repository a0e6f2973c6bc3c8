"""Rows of a topic as every reader prints them, and their comparison.

A row is a line of JSON: [partition, offset, key, value, [[name, value], ...], timestamp_broker,
timestamp_producer], with bytes as hex digits, timestamps in microseconds, null where there is
nothing. Readers know nothing of one another, so what they agree on is in the table.
"""
import json
import sys


class Wrong(AssertionError):
    """Readers that do not agree."""


def text_of(data):
    return None if data is None else bytes(data).hex()


def micros(moment):
    """Of a datetime with a zone."""
    if moment is None:
        return None
    whole = moment.replace(microsecond=0)
    return round(whole.timestamp()) * 1_000_000 + moment.microsecond


def row(partition, offset, key, value, headers, broker_us, producer_us):
    """`headers` are pairs of bytes."""
    named = [[text_of(name), text_of(held)] for name, held in headers]
    return [partition, offset, text_of(key), text_of(value), named, broker_us, producer_us]


def of_record(record):
    """A row of a dictionary that has the columns of the table."""
    headers = [(header["key"], header["value"]) for header in record["headers"]]
    return row(record["kafka_partition"], record["kafka_offset"], record["key"], record["value"],
               headers, micros(record["timestamp_broker"]), micros(record["timestamp_producer"]))


def dump(rows):
    for found in rows:
        print(json.dumps(found))


def serve(steps):
    """The loop of a reader: a line at standard input is a step's name and its arguments; what the
    step prints is closed by a line `done`, or by `failed` with the reason as JSON."""
    for line in sys.stdin:
        step, *arguments = line.split()
        try:
            steps[step](*arguments)
            closing = "done"
        except Exception as error:
            closing = "failed " + json.dumps(f"{type(error).__name__}: {error}")
        print(closing, flush=True)


def parse(text):
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda found: found[:2])


def compare(name, found, expected, without=()):
    """`without` names fields, by their place, that a reader cannot know."""
    def bare(rows):
        return [[None if place in without else field for place, field in enumerate(line)]
                for line in rows]
    found, expected = bare(found), bare(expected)
    if found == expected:
        return
    places, wanted = [line[:2] for line in found], [line[:2] for line in expected]
    if places != wanted:
        lost = [place for place in wanted if place not in places]
        more = [place for place in places if place not in wanted]
        twice = len(places) - len({tuple(place) for place in places})
        raise Wrong(f"{name} has {len(found)} rows of {len(expected)}: {len(lost)} are missing "
                    f"{lost[:5]}, {len(more)} should not be there {more[:5]}, {twice} are there "
                    "twice")
    differing = [pair for pair in zip(found, expected) if pair[0] != pair[1]]
    raise Wrong(f"{name} has {len(differing)} rows that differ, the first is {differing[0][0]} "
                f"and should be {differing[0][1]}")


def selftest():
    """The comparison finds what it is there to find."""
    right = [[0, 0, "a", "b", [], 1, 2], [0, 1, None, "", [["n", None]], 3, None]]
    wrong = [right[:1], right + right[:1], right[1:] + right[:1],
             [right[0], [0, 1, "", "", [["n", None]], 3, None]],
             [right[0], [0, 1, None, None, [["n", None]], 3, None]],
             [right[0], [0, 1, None, "", [["n", ""]], 3, None]],
             [right[0], [0, 1, None, "", [["n", None]], 4, None]],
             [right[0], [0, 2, None, "", [["n", None]], 3, None]]]
    compare("itself", right, right)
    for rows in wrong:
        try:
            compare("a planted fault", rows, right)
        except Wrong:
            continue
        raise SystemExit(f"the comparison misses {rows}")
