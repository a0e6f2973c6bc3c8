"""Readers that have loaded a table, while its rows are taken away.

1. pyiceberg loads two tables and keeps them. Then DeleteRecords empties the topic of one, and
   retention that of the other.
2. Who loads a table afterwards sees none of these rows.
3. Within the grace time (iceberg.reader.grace.ms) what was loaded is still read in full: the rows
   of its snapshot, and its files are on the disk.
4. After it they go from the disk.
"""
import time

from readers import Reader, of_tables
from rows import Wrong, compare, parse
from sources import Live

GRACE_SECONDS, RETENTION_SECONDS, PATIENCE = 15, 4, 60
COUNT = 3000


class Fading(Live):
    topic = "emptied"
    settings = [*Live.settings, f"iceberg.reader.grace.ms={GRACE_SECONDS}s",
                "log.retention.check.interval.ms=200ms"]


def within(seconds, what, condition):
    """Waits for it."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Wrong(f"{what}: not within {seconds} s")
        time.sleep(0.2)


class Kept:
    """A table as it was loaded once, by a reader of its own."""

    def __init__(self, reader, topic):
        self.reader, self.topic, self.rows = reader, topic, []
        within(PATIENCE, f"{COUNT} rows in {topic}", self.is_whole)
        self.begun = time.monotonic()
        self.count = int(self.reader.ask("files")[0])
        if not self.count:
            raise Wrong(f"{topic} has no files")

    def is_whole(self):
        self.reader.ask("hold", self.topic)
        self.rows = parse("\n".join(self.reader.ask("held")))
        return len(self.rows) == COUNT

    def gone(self):
        """For who loads it anew."""
        return int(self.reader.ask("count", self.topic)[0]) == 0

    def is_there(self):
        found = parse("\n".join(self.reader.ask("held")))
        files = int(self.reader.ask("files")[0])
        seconds = time.monotonic() - self.begun
        if seconds > GRACE_SECONDS:
            raise Wrong(f"{self.topic}: read {seconds:.1f} s after it was loaded, too late to tell")
        compare(f"the kept {self.topic}", found, self.rows)
        if files != self.count:
            raise Wrong(f"{self.topic}: {files} files of {self.count} after {seconds:.1f} s")
        return f"{len(found)} rows of {self.topic} after {seconds:.1f} s"

    def went(self):
        return int(self.reader.ask("files")[0]) == 0


def look(binary, directory):
    """What was found, as a line."""
    script, install = of_tables("pyiceberg")
    with Fading(binary, directory) as source:
        client = source.client
        client.ask("create", "aged", f"retention.ms={RETENTION_SECONDS * 1000}")
        first, second = (Reader(script, install, source.catalogue, directory) for _ in range(2))
        with first, second:
            client.ask("produce", source.topic, "none", 100000, COUNT)
            emptied = Kept(first, source.topic)
            client.ask("new", "aged", COUNT)
            aged = Kept(second, "aged")
            client.ask("empty", source.topic)
            within(PATIENCE, "emptied of all rows", emptied.gone)
            found = [emptied.is_there()]
            within(PATIENCE, "rows dropped by retention", aged.gone)
            found.append(aged.is_there())
            for kept in (emptied, aged):
                within(GRACE_SECONDS + PATIENCE, f"{kept.topic}: files gone", kept.went)
                seconds = time.monotonic() - kept.begun
                found.append(f"files of {kept.topic} gone after {seconds:.1f} s")
        source.broker.check_said()
    return "; ".join(found)
