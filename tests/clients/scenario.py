"""The records of the scenario and how they are compared."""
import re

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class NotRun(Exception):
    """The client cannot be had here."""


class Record:
    """Text throughout: what each client's command line can say."""

    def __init__(self, key, value, headers, partition=None, offset=None):
        self.key, self.value, self.headers = key, value, headers
        self.partition, self.offset = partition, offset

    def content(self):
        return self.key, self.value, self.headers

    def number(self):
        return int(re.match(r"value-(\d+)", self.value).group(1))


def make_records(count):
    """Keyed, of changing size, each value unlike all others, a header twice."""
    return [Record(f"key-{number % 97}", f"value-{number:06}" + " lava" * (number % 60),
                   [("number", str(number)), ("twice", "a"), ("twice", "b"), ("source", "basalt")])
            for number in range(count)]


def compare(sent, seen, what):
    """All of what was sent is there once, whole, and in order within its partition."""
    partitions = {}
    for record in seen:
        partitions.setdefault(record.partition, []).append(record)
    for partition, records in partitions.items():
        offsets = [record.offset for record in records]
        if offsets != list(range(len(records))):
            raise AssertionError(f"{what}: partition {partition} has offsets {offsets[:20]}…")
        numbers = [record.number() for record in records]
        if numbers != sorted(numbers):
            raise AssertionError(f"{what}: partition {partition} is out of order")
    keys = {}
    for record in seen:
        if keys.setdefault(record.key, record.partition) != record.partition:
            raise AssertionError(f"{what}: key {record.key} in two partitions")
    by_number = sorted(seen, key=Record.number)
    for want, got in zip(sent, by_number):
        if want.content() != got.content():
            raise AssertionError(f"{what}: sent {want.content()}, got {got.content()}")
    if len(sent) != len(seen):
        raise AssertionError(f"{what}: {len(seen)} records of {len(sent)}")


def selftest():
    """The comparison finds what it is there to find."""
    def placed():
        return [Record(record.key, record.value, list(record.headers), 0, offset)
                for offset, record in enumerate(make_records(5))]

    def renumbered(records):
        for offset, record in enumerate(records):
            record.offset = offset
        return records

    def is_found(change):
        seen = placed()
        changed = change(seen)
        seen = changed if isinstance(changed, list) else seen
        try:
            compare(make_records(5), seen, "planted")
        except AssertionError:
            return True
        return False

    planted = {
        "a lost record": lambda seen: renumbered(seen[:2] + seen[3:]),
        "a lost end": lambda seen: seen[:-1],
        "a repeated record": lambda seen: renumbered(seen[:3] + placed()[2:]),
        "a repeated end": lambda seen: renumbered(seen + placed()[4:]),
        "two records in the wrong order": lambda seen: renumbered([seen[1], seen[0]] + seen[2:]),
        "a gap of offsets": lambda seen: setattr(seen[4], "offset", 5),
        "another value": lambda seen: setattr(seen[1], "value", "value-000001 lav"),
        "another key": lambda seen: setattr(seen[1], "key", "key-2"),
        "a lost header": lambda seen: seen[1].headers.pop(),
        "headers in another order": lambda seen: seen[1].headers.reverse(),
    }
    missed = [name for name, change in planted.items() if not is_found(change)]
    if missed or is_found(lambda seen: None):
        raise SystemExit(f"the comparison misses: {', '.join(missed) or 'that nothing is wrong'}")
