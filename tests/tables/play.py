"""What is asked of readers of tables.

Of each reader of Iceberg, while the table changes step by step:

1. After each step it sees exactly the rows there are: none twice, none missing, nulls apart from
   empty bytes, headers in order.
2. At the end the snapshots of before still show the rows of before.
3. A predicate on partition and offset, a count and the ends (from metadata where it takes them
   from there) agree with the rows.
4. An attempt to write fails, says why, and changes nothing.

Of each reader of SQL: the same rows and the same count. What else DBeaver and Grafana ask is in
doors.py; rows that are taken away in grace.py; many rows in million.py.
"""
from readers import Failed
from rows import Wrong, compare, parse

# Fields, by their place in a row, that a reader does not print.
NOT_COMPARED = {"psycopg": [4], "psql": [4], "jdbc": [4]}


class Play:
    """A source's run; `looks` remembers what was there at which snapshot."""

    def __init__(self, source, directory):
        self.source, self.directory = source, directory
        self.looks = []
        self.whole = None

    def expected(self):
        return self.source.rows() if self.whole is None else self.whole

    def trust(self, reader):
        """From now on its rows, which agree with the source's, are what others are held to: they
        have the columns that the source does not know."""
        self.look(reader)
        self.whole = parse("\n".join(reader.ask("rows", self.source.topic)))

    def same(self, reader, lines, expected):
        compare(reader.name, parse("\n".join(lines)), expected,
                [*(self.source.unknown_to_kafka if self.whole is None else ()),
                 *NOT_COMPARED.get(reader.name, ())])

    def look(self, reader):
        """The rows of now."""
        expected = self.expected()
        self.same(reader, reader.ask("rows", self.source.topic), expected)
        return expected

    def remember(self, historian, expected):
        """The newest snapshot, as the reader `historian` tells it, and its rows."""
        newest = historian.ask("snapshots", self.source.topic)[-1].split()[0]
        if not self.looks or self.looks[-1][0] != newest:
            self.looks.append((newest, expected))

    def travel(self, reader, count=3):
        """Back to the last snapshots of before."""
        if len(self.looks) < 2:
            raise Wrong(f"{len(self.looks)} snapshots are too few to go back")
        for snapshot, expected in self.looks[-1 - count:-1]:
            self.same(reader, reader.ask("rows", self.source.topic, snapshot), expected)

    def questions(self, reader, can):
        """Whatever a reader answers without reading everything."""
        expected, topic = self.expected(), self.source.topic
        partition, offset = expected[len(expected) // 2][:2]
        wanted = [row for row in expected if row[0] == partition and row[1] >= offset]
        self.same(reader, reader.ask("where", topic, partition, offset), wanted)
        counted = int(reader.ask("count", topic)[0])
        if counted != len(expected):
            raise Wrong(f"{reader.name} counts {counted} rows, there are {len(expected)}")
        if "ends" in can:
            offsets = [row[1] for row in expected]
            ends = [int(number) for number in reader.ask("ends", topic)[0].split()]
            if ends != [max(offsets), min(offsets)]:
                raise Wrong(f"{reader.name} takes {ends} for the ends, they are "
                            f"{[max(offsets), min(offsets)]}")
        if "names" in can and topic not in reader.ask("names"):
            raise Wrong(f"{reader.name} does not find {topic}")

    def refused(self, reader, words):
        """A write has to fail with one of these words, and to change nothing."""
        try:
            reader.ask("write", self.source.topic)
        except Failed as refusal:
            said = str(refusal)
        else:
            raise Wrong(f"{reader.name} could write")
        if not any(word in said for word in words):
            raise Wrong(f"{reader.name} is refused without a reason: {said[:600]}")
        self.look(reader)
        return said
