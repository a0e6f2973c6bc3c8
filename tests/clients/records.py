"""The records of the scenario, what consumers saw of them, and the judgement.

A delivery is a record as one consumer saw it, with its partition and offset. The judgement knows
no client and no broker: what was sent, where the partitions end, who saw what.
"""
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class NotRun(Exception):
    """The client cannot be had here."""


class Wrong(AssertionError):
    """Something a broker or a client may not do."""


class Record:
    """Text throughout: what each client's command line can say. Headers are None where a client
    cannot show them; `may_repeat` says that a producer may have sent it twice."""

    def __init__(self, key, value, headers, may_repeat=False):
        self.key, self.value, self.headers = key, value, headers
        self.may_repeat = may_repeat

    def content(self):
        return self.key, self.value, self.headers

    def is_like(self, other):
        visible = None not in (self.headers, other.headers)
        return (self.key, self.value) == (other.key, other.value) and \
            (not visible or list(self.headers) == list(other.headers))


class Delivery:
    def __init__(self, partition, offset, record, timestamp=None):
        self.partition, self.offset = partition, offset
        self.record, self.timestamp = record, timestamp

    def place(self):
        return self.partition, self.offset


def make_records(first, count):
    """Keyed, of changing size, now and then beyond 1 KiB, each value unlike all others, a header
    twice."""
    return [Record(f"key-{number % 97}",
                   f"value-{number:06}" + " lava" * (number % 60 + 300 * (number % 50 == 0)),
                   [("number", str(number)), ("twice", "a"), ("twice", "b"), ("source", "basalt")])
            for number in range(first, first + count)]


def log_of(deliveries):
    """Partition → offset → delivery; each place holds one record, whoever looks."""
    log = {}
    for delivery in deliveries:
        held = log.setdefault(delivery.partition, {}).setdefault(delivery.offset, delivery)
        if held.timestamp is None:
            held.timestamp = delivery.timestamp
        if not held.record.is_like(delivery.record) \
                or delivery.timestamp not in (None, held.timestamp):
            raise Wrong(f"[{delivery.partition}] {delivery.offset} was {held.record.content()} at "
                        f"{held.timestamp}, then {delivery.record.content()} at "
                        f"{delivery.timestamp}")
    return log


def judge(sent, deliveries, ends):
    """All that was sent is there and was seen, whole, in its key's partition, in order; what was
    repeated was in flight when the broker died. The log of what was seen."""
    log = log_of(deliveries)
    for partition, end in ends.items():
        held = log.get(partition, {})
        missing = [offset for offset in range(end) if offset not in held]
        beyond = [offset for offset in held if offset >= end]
        if missing or beyond:
            raise Wrong(f"[{partition}] ends at {end}; {len(missing)} offsets were never seen "
                        f"{missing[:10]}, {len(beyond)} lie beyond {beyond[:10]}")
    number_of = {record.value: number for number, record in enumerate(sent)}
    places, keys = {}, {}
    for partition, held in log.items():
        newest = -1
        for offset in sorted(held):
            seen = held[offset].record
            number = number_of.get(seen.value)
            if number is None or not sent[number].is_like(seen):
                wanted = "nothing like it" if number is None else sent[number].content()
                raise Wrong(f"[{partition}] {offset} holds {seen.content()}, sent was {wanted}")
            if keys.setdefault(seen.key, partition) != partition:
                raise Wrong(f"key {seen.key} in partitions {keys[seen.key]} and {partition}")
            if number in places and not sent[number].may_repeat:
                raise Wrong(f"[{partition}] {offset} repeats {seen.value[:20]} of {places[number]}")
            if number not in places and number < newest:
                raise Wrong(f"[{partition}] {offset} is out of order: {seen.value[:20]}")
            newest = max(newest, number)
            places.setdefault(number, (partition, offset))
    lost = [sent[number].value[:20] for number in range(len(sent)) if number not in places]
    if lost:
        raise Wrong(f"{len(lost)} of {len(sent)} records are lost: {lost[:10]}")
    return log


def below(deliveries, ends):
    """Places that lie below the ends: what a group must not be given again."""
    return [delivery.place() for delivery in deliveries
            if delivery.offset < ends[delivery.partition]]


def one_after_the_other(deliveries, firsts, ends):
    """A single reader got each offset from first to end once, in order."""
    for partition, end in ends.items():
        offsets = [delivery.offset for delivery in deliveries if delivery.partition == partition]
        if offsets != list(range(firsts[partition], end)):
            raise Wrong(f"[{partition}] from {firsts[partition]} to {end} came as "
                        f"{offsets[:5]} … {offsets[-5:]}, {len(offsets)} records")


def repeated(log):
    """How many places hold a record that another place holds as well."""
    values = [delivery.record.value for held in log.values() for delivery in held.values()]
    return len(values) - len(set(values))


def first_at(log, partition, timestamp):
    """What a look-up by time has to answer: the first offset at or after it, -1 for none."""
    later = [offset for offset, delivery in log.get(partition, {}).items()
             if delivery.timestamp >= timestamp]
    return min(later, default=-1)


def placed():
    return [Delivery(number % 2, number // 2, record, 1000 + number)
            for number, record in enumerate(make_records(0, 6))]


def planted_faults():
    """What may not happen, by name: each changes deliveries that are right."""
    def change(index, **fields):
        def work(seen):
            for name, value in fields.items():
                setattr(seen[index], name, value)
        return work

    def swap(seen):
        seen[0].record, seen[2].record = seen[2].record, seen[0].record

    def repeat(seen):
        seen[4].record = seen[2].record
    records = placed()
    longer = Record("key-1", records[1].record.value + "x", records[1].record.headers)
    bare = Record("key-1", records[1].record.value, [])
    turned = Record("key-1", records[1].record.value, records[1].record.headers[::-1])
    other = Record("key-5", records[1].record.value, records[1].record.headers)
    return {
        "a lost record": lambda seen: seen.pop(2),
        "a lost end": lambda seen: seen.pop(),
        "a record beyond the end": lambda seen: seen.append(Delivery(0, 3, records[4].record)),
        "a repeated record": repeat,
        "two records in the wrong order": swap,
        "a gap of offsets": change(4, offset=3),
        "another value": change(1, record=longer),
        "another key": change(1, record=other),
        "lost headers": change(1, record=bare),
        "headers in another order": change(1, record=turned),
        "one place with two records":
            lambda seen: seen.append(Delivery(0, 0, records[2].record, 1000)),
        "one place with two times":
            lambda seen: seen.append(Delivery(0, 0, records[0].record, 1001)),
    }


def is_found(change):
    seen = placed()
    change(seen)
    try:
        judge(make_records(0, 6), seen, {0: 3, 1: 3})
    except Wrong:
        return True
    return False


def is_refused(deliveries):
    try:
        one_after_the_other(deliveries, {0: 0, 1: 0}, {0: 3, 1: 3})
    except Wrong:
        return True
    return False


def selftest():
    """The judgement finds what it is there to find."""
    missed = [name for name, change in planted_faults().items() if not is_found(change)]
    if is_found(lambda seen: None) or is_found(lambda seen: seen.append(seen[0])):
        missed.append("that nothing is wrong")
    if first_at(log_of(placed()), 0, 1001) != 1 or first_at(log_of(placed()), 0, 1005) != -1:
        missed.append("the time of a record")
    if below(placed(), {0: 0, 1: 1}) != [(1, 0)]:
        missed.append("what is given again")
    wrong_orders = placed()[::-1], placed() + placed()[:1], placed()[1:], placed()[:-1]
    if is_refused(placed()) or not all(map(is_refused, wrong_orders)):
        missed.append("the order of a reader")
    if missed:
        raise SystemExit(f"the judgement misses: {', '.join(missed)}")
