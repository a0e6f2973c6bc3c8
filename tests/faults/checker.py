#!/usr/bin/env python3
"""Judges from outside whether a broker kept its word while something was done to it.

    checker.py --selftest
    checker.py -b HOST:PORT [--seconds 30] [--idempotent] [--fault COMMAND --fault-every 5]
               [--consumers 3] [--commits] [--producers 3] [--partitions 3] [--seed N]

Two halves. `judge` is a function of a `History`: what was written and how it was answered, what a
last reading finds, what readers saw meanwhile, what groups committed. It touches no client and no
clock, so `--selftest` plants each fault in a history made up for it and demands its name.
`Workload` makes a history with confluent-kafka (scenarios use it as well): each value says who
wrote it where as which number, and can be made again from that, so that one changed byte shows.

The last line is CHECKER PASS, FAIL or INVALID (too little was done to judge), the status 0, 1, 2.

A worked example: producer 0 writes numbers 0, 1, 2 to a partition and is told offsets 0, 1, 2. The
last reading finds 0 at 0, 2 at 1. Then number 1 is lost, and number 2 has moved.
"""
import argparse
import collections
import hashlib
import random
import struct
import subprocess
import sys
import threading
import time

# What the judgement can find, and what it means.
FINDINGS = {
    "lost": "acknowledged, and nowhere to be read",
    "moved": "acknowledged at an offset that holds something else, and found at another",
    "duplicated": "an idempotent producer's record stands twice",
    "reordered": "a producer's record stands behind a later one of the same producer",
    "strange": "a record that nobody sent",
    "torn": "a record that is not as it was sent",
    "misplaced": "a record in another partition than it was sent to",
    "revived": "refused for certain, and there all the same",
    "offset shared": "two acknowledgements name one offset",
    "offsets fell": "a reading came to an offset at or below the one before",
    "end fell": "the partition ends below an acknowledged offset",
    "vanished": "a reader saw it, and it is gone",
    "changed": "a reader saw something else at this offset",
    "skipped": "a reader was not given what stands between two records it was given",
    "unread": "no member of the group was given it",
    "commit fell": "a group's committed offset is below one that was confirmed",
}
REFUSED, UNKNOWN = "refused", "unknown"
HEAD = struct.Struct(">QHHI")
Stamp = collections.namedtuple("Stamp", "producer partition number")


def value_of(run, stamp):
    """The bytes of a record: its stamp, then what follows from it; sizes of 40 to 300 bytes, now
    and then 4 KiB."""
    head = HEAD.pack(run, *stamp)
    made = hashlib.shake_128(head)
    first = made.digest(2)
    return head + made.digest(4096 if first[0] < 4 else 24 + first[1])


def stamp_of(run, value):
    """Who wrote it; None when it is not what `value_of` makes."""
    if value is None or len(value) < HEAD.size:
        return None
    found, *stamp = HEAD.unpack_from(value)
    stamp = Stamp(*stamp)
    return stamp if found == run and value == value_of(run, stamp) else None


class History:
    def __init__(self, idempotent):
        self.idempotent = idempotent
        self.sent = set()
        # Stamp: offset of its acknowledgement (None: acknowledged, offset not told), or REFUSED, or
        # UNKNOWN.
        self.answers = {}
        # Partition: [(offset, stamp or None)] as the last reading came, and first offset and end.
        self.final, self.ranges = {}, {}
        # One list for each partition a reader was assigned: (partition, [(offset, stamp)]).
        self.views = []
        # Whether the readers were given the time to come to the end.
        self.read_to_end = False
        # (group, partition, highest offset that was confirmed, what is told at the end)
        self.commits = []


def judge(history):
    """Name of a finding: what was found."""
    findings = collections.defaultdict(list)
    places = collections.defaultdict(list)
    for partition, records in history.final.items():
        judge_order(history, partition, records, findings)
        for offset, stamp in records:
            judge_record(history, (partition, offset), stamp, findings)
            if stamp:
                places[stamp].append((partition, offset))
    for stamp, found in places.items():
        if len(found) > 1 and history.idempotent:
            findings["duplicated"].append((stamp, found))
    judge_answers(history, places, findings)
    judge_views(history, findings)
    for group, partition, confirmed, told in history.commits:
        if told < confirmed:
            findings["commit fell"].append((group, partition, confirmed, told))
    assert set(findings) <= set(FINDINGS)
    return dict(findings)


def judge_record(history, place, stamp, findings):
    if stamp is None:
        findings["torn"].append(place)
    elif stamp not in history.sent:
        findings["strange"].append((place, stamp))
    elif stamp.partition != place[0]:
        findings["misplaced"].append((place, stamp))
    elif history.answers.get(stamp) == REFUSED:
        findings["revived"].append((place, stamp))


def judge_order(history, partition, records, findings):
    """Offsets rise; so do a producer's numbers, where a copy of what was seen is no step back."""
    last, newest, seen = -1, {}, set()
    for offset, stamp in records:
        if offset <= last:
            findings["offsets fell"].append((partition, last, offset))
        last = offset
        if stamp is None or stamp in seen:
            continue
        seen.add(stamp)
        if stamp.number < newest.get(stamp.producer, -1):
            findings["reordered"].append((partition, offset, stamp))
        newest[stamp.producer] = max(stamp.number, newest.get(stamp.producer, -1))


def judge_answers(history, places, findings):
    final = {partition: dict(records) for partition, records in history.final.items()}
    holders = {}
    for stamp, offset in history.answers.items():
        if offset in (REFUSED, UNKNOWN):
            continue
        if offset is None:
            if stamp not in places:
                findings["lost"].append((stamp, "offset not told"))
            continue
        other = holders.setdefault((stamp.partition, offset), stamp)
        if other != stamp:
            findings["offset shared"].append((offset, other, stamp))
        if offset >= history.ranges[stamp.partition][1]:
            findings["end fell"].append((offset, history.ranges[stamp.partition]))
        if final[stamp.partition].get(offset) != stamp:
            found = places.get(stamp)
            findings["moved" if found else "lost"].append((stamp, offset, found))


def judge_views(history, findings):
    """What readers saw is what is there. Each view goes forwards without gaps; together they have
    everything."""
    given = collections.defaultdict(set)
    for partition, records in history.views:
        final = dict(history.final[partition])
        order = {offset: place for place, (offset, _) in enumerate(history.final[partition])}
        before = None
        for offset, stamp in records:
            given[partition].add(offset)
            if offset not in final:
                findings["vanished"].append((partition, offset, stamp))
            elif final[offset] != stamp:
                findings["changed"].append((partition, offset, stamp, final[offset]))
            if before is not None and offset <= before:
                findings["offsets fell"].append((partition, before, offset))
            elif before in order and offset in order and order[offset] != order[before] + 1:
                findings["skipped"].append((partition, before, offset))
            before = offset
    if history.read_to_end:
        for partition, records in history.final.items():
            unread = [offset for offset, _ in records if offset not in given[partition]]
            if unread:
                findings["unread"].append((partition, len(unread), unread[:5]))


# The workload --------------------------------------------------------------------------------


class Workload:
    """Producers and readers from `start` to `finish`, which gives the findings.

    No record of it is given up before two minutes; the deadlines of `finish` bound the rest."""

    def __init__(self, address, idempotent=True, producers=2, partitions=3, rate=300, consumers=0,
                 commits=False, topic=None, seed=None, create=True):
        import confluent_kafka
        self.ck, self.address = confluent_kafka, address
        self.count, self.partitions, self.rate = producers, partitions, rate
        self.consumers, self.commits = consumers, commits
        self.chance = random.Random(seed)
        self.run = self.chance.getrandbits(64) if seed is not None else random.getrandbits(64)
        self.topic = topic or f"checked-{self.run:016x}"
        self.group = f"readers-{self.run:016x}"
        self.history = History(idempotent)
        self.lock = threading.Lock()
        self.ended, self.readers_ended = threading.Event(), threading.Event()
        self.paused = threading.Event()
        self.errors = collections.Counter()
        # (when it was answered, seconds it took) of each acknowledged record.
        self.latencies = []
        self.confirmed, self.create = {}, create
        self.threads, self.readers = [], []

    def settings(self, **more):
        return {"bootstrap.servers": self.address, "log_level": 0, "socket.timeout.ms": 10000,
                "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 300,
                "error_cb": self.noted, **more}

    def noted(self, error):
        self.errors[error.name()] += 1

    def start(self):
        from confluent_kafka.admin import AdminClient, NewTopic
        if self.create:
            admin = AdminClient(self.settings())
            made = admin.create_topics([NewTopic(self.topic, self.partitions, 1)])
            made[self.topic].result(30)
        self.threads = [threading.Thread(target=self.produce, args=(number,), daemon=True)
                        for number in range(self.count)]
        self.readers = [threading.Thread(target=self.consume, daemon=True)
                        for _ in range(self.consumers)]
        for thread in self.threads + self.readers:
            thread.start()
        return self

    def produce(self, number):
        ck, idempotent = self.ck, self.history.idempotent
        producer = ck.Producer(self.settings(**{
            "acks": "all", "enable.idempotence": idempotent, "linger.ms": 2,
            "max.in.flight": 5 if idempotent else 1, "message.timeout.ms": 120000,
            "retry.backoff.ms": 20, "retry.backoff.max.ms": 300}))
        chance = random.Random(self.run + number)
        numbers = [0] * self.partitions
        due = time.monotonic()
        while not self.ended.is_set():
            if not self.paused.is_set() and len(producer) < 2000:
                partition = chance.randrange(self.partitions)
                stamp = Stamp(number, partition, numbers[partition])
                with self.lock:
                    self.history.sent.add(stamp)
                try:
                    producer.produce(self.topic, value_of(self.run, stamp), partition=partition,
                                     key=f"{number}-{partition}", on_delivery=self.answered(stamp))
                except ck.KafkaException as error:  # an idempotent producer cannot go on
                    self.errors[f"producer {error.args[0].name()}"] += 1
                    break
                numbers[partition] += 1
            due = max(due + 1 / self.rate, time.monotonic() - 0.2)
            producer.poll(max(0, due - time.monotonic()))
        producer.flush(130)

    def answered(self, stamp):
        begun = time.monotonic()

        def done(error, message):
            now = time.monotonic()
            with self.lock:
                if error is None:
                    offset = message.offset()
                    self.history.answers[stamp] = offset if offset >= 0 else None
                    self.latencies.append((now, now - begun))
                    return
                self.errors[error.name()] += 1
                # Only these say for certain that nothing was written.
                sure = error.code() in (self.ck.KafkaError.MSG_SIZE_TOO_LARGE,
                                        self.ck.KafkaError.TOPIC_AUTHORIZATION_FAILED,
                                        self.ck.KafkaError._PURGE_QUEUE)
                self.history.answers[stamp] = REFUSED if sure else UNKNOWN
        return done

    def consume(self, ended=None):
        """One reader of the group, until its own end or that of all."""
        ck, views = self.ck, {}
        ended = ended or self.readers_ended
        consumer = ck.Consumer(self.settings(**{
            "group.id": self.group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "session.timeout.ms": 10000, "heartbeat.interval.ms": 1000, "check.crcs": True}))

        def changed(_, partitions):
            views.clear()

        consumer.subscribe([self.topic], on_assign=changed, on_revoke=changed, on_lost=changed)
        committed_at = time.monotonic()
        while not (ended.is_set() or self.readers_ended.is_set()):
            message = consumer.poll(0.1)
            if message is not None and message.error():
                self.errors[message.error().name()] += 1
            elif message is not None:
                self.seen(views, message)
            if self.commits and time.monotonic() > committed_at + 0.3:
                self.commit(consumer, views)
                committed_at = time.monotonic()
        consumer.close()

    def seen(self, views, message):
        partition = message.partition()
        if partition not in views:
            views[partition] = []
            with self.lock:
                self.history.views.append((partition, views[partition]))
        views[partition].append((message.offset(), stamp_of(self.run, message.value())))

    def commit(self, consumer, views):
        """Commits how far was read; what is confirmed may not fall."""
        wanted = [self.ck.TopicPartition(self.topic, partition, records[-1][0] + 1)
                  for partition, records in views.items() if records]
        if not wanted:
            return
        try:
            answers = consumer.commit(offsets=wanted, asynchronous=False)
        except self.ck.KafkaException as error:
            self.errors[f"commit {error.args[0].name()}"] += 1
            return
        with self.lock:
            for answer in answers:
                if answer.error is None:
                    self.confirmed[answer.partition] = max(
                        answer.offset, self.confirmed.get(answer.partition, 0))

    def acknowledged(self):
        with self.lock:
            return len(self.latencies)

    def await_acknowledged(self, more, seconds):
        """Until `more` records than now are acknowledged; how long that took."""
        begun, wanted = time.monotonic(), self.acknowledged() + more
        while self.acknowledged() < wanted:
            if time.monotonic() > begun + seconds:
                raise AssertionError(f"{self.acknowledged()} of {wanted} records acknowledged "
                                     f"after {seconds} s: {dict(self.errors)}")
            time.sleep(0.01)
        return time.monotonic() - begun

    def finish(self, seconds=150):
        """Ends it, reads everything and judges."""
        deadline = time.monotonic() + seconds
        self.ended.set()
        for thread in self.threads:
            thread.join(max(0.1, deadline - time.monotonic()))
            if thread.is_alive():
                raise AssertionError(f"a producer hangs: {dict(self.errors)}")
        for stamp in self.history.sent - self.history.answers.keys():
            self.history.answers[stamp] = UNKNOWN
        self.read_final(deadline)
        if self.consumers:
            self.await_readers(deadline)
        self.readers_ended.set()
        for thread in self.readers:
            thread.join(30)
        if self.commits:
            self.read_commits()
        return judge(self.history)

    def read_final(self, deadline):
        ck = self.ck
        consumer = ck.Consumer(self.settings(**{
            "group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True,
            "auto.offset.reset": "error", "check.crcs": True}))
        for number in range(self.partitions):
            place = ck.TopicPartition(self.topic, number, ck.OFFSET_BEGINNING)
            self.history.ranges[number] = self.patiently(
                lambda place=place: consumer.get_watermark_offsets(place, 10), deadline)
            consumer.assign([place])
            records = self.history.final[number] = []
            while True:
                message = consumer.poll(1)
                if time.monotonic() > deadline:
                    raise AssertionError(f"[{number}] read {len(records)} records up to the "
                                         f"deadline: {dict(self.errors)}")
                if message is None:
                    continue
                if not message.error():
                    records.append((message.offset(), stamp_of(self.run, message.value())))
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    break
                else:
                    self.errors[f"read {message.error().name()}"] += 1
        consumer.close()

    def patiently(self, work, deadline):
        while True:
            try:
                return work()
            except self.ck.KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def await_readers(self, deadline):
        """The group comes to the end in time, or what is missing is a finding."""
        self.history.read_to_end = True
        wanted = {(number, records[-1][0])
                  for number, records in self.history.final.items() if records}
        until = min(deadline, time.monotonic() + 60)
        while time.monotonic() < until:
            with self.lock:
                seen = {(number, records[-1][0])
                        for number, records in self.history.views if records}
            if wanted <= seen:
                return
            time.sleep(0.05)

    def read_commits(self):
        ck = self.ck
        consumer = ck.Consumer(self.settings(**{"group.id": self.group}))
        places = [ck.TopicPartition(self.topic, number) for number in self.confirmed]
        told = self.patiently(lambda: consumer.committed(places, timeout=10),
                              time.monotonic() + 60) if places else []
        self.history.commits = [(self.group, place.partition, self.confirmed[place.partition],
                                 place.offset) for place in told]
        consumer.close()

    def numbers(self, findings):
        """The line of figures of this workload."""
        history = self.history
        found = sum(map(len, history.final.values()))
        distinct = len({stamp for records in history.final.values() for _, stamp in records})
        return " ".join([
            f"sent={len(history.sent)} acked={len(self.latencies)} read={found}",
            *(f"{name.replace(' ', '-')}={len(findings.get(name, []))}"
              for name in ("lost", "moved", "duplicated", "reordered", "commit fell")),
            f"repeated={found - distinct}",
            f"wrong={sum(map(len, findings.values()))}"])


# The checker's own test ----------------------------------------------------------------------


def made_up():
    """Ten records of producer 0 in partition 0, read by one reader, 5 committed; one record of
    producer 1 in partition 1."""
    history = History(idempotent=True)
    stamps = [Stamp(0, 0, number) for number in range(10)]
    other = Stamp(1, 1, 0)
    history.sent = {*stamps, other}
    history.answers = {**{stamp: stamp.number for stamp in stamps}, other: 0}
    history.final = {0: [(stamp.number, stamp) for stamp in stamps], 1: [(0, other)]}
    history.ranges = {0: (0, 10), 1: (0, 1)}
    history.views = [(0, list(history.final[0])), (1, list(history.final[1]))]
    history.read_to_end = True
    history.commits = [("group", 0, 5, 5)]
    return history


def plant_exchange(history):
    """Two records stand in each other's place, and the acknowledgements agree with that."""
    four, five = Stamp(0, 0, 4), Stamp(0, 0, 5)
    history.final[0][4], history.final[0][5] = (4, five), (5, four)
    history.answers.update({four: 5, five: 4})
    history.views[0] = (0, list(history.final[0]))


def plant_end(history):
    for records in (history.final[0], history.views[0][1]):
        records.pop()
    history.ranges[0] = (0, 9)


def plant_move(history):
    history.final[0][9] = (11, Stamp(0, 0, 9))
    history.views[0][1][9] = (11, Stamp(0, 0, 9))
    history.ranges[0] = (0, 12)


def plant_more(stamp, sent=True, answer=None):
    """One more record at the end of partition 0, and its reader saw it."""
    def plant(history):
        if sent and stamp:
            history.sent.add(stamp)
        if answer:
            history.answers[stamp] = answer
        history.final[0].append((10, stamp))
        history.views[0][1].append((10, stamp))
        history.ranges[0] = (0, 11)
    return plant


def plant_loss_untold(history):
    """Acknowledged without an offset, and not there."""
    stamp = Stamp(0, 0, 10)
    history.sent.add(stamp)
    history.answers[stamp] = None


# A fault planted in a history that is right, and all that has to be found.
PLANTED = [
    ("a record in the middle is gone",
     lambda h: (h.final[0].pop(4), h.views[0][1].pop(4)), {"lost"}),
    ("the last record is gone", plant_end, {"lost", "end fell"}),
    ("one is gone whose offset was not told", plant_loss_untold, {"lost"}),
    ("a record is at another offset", plant_move, {"moved"}),
    ("a record stands twice", plant_more(Stamp(0, 0, 3)), {"duplicated"}),
    ("two records have changed places", plant_exchange, {"reordered"}),
    ("a record that nobody sent", plant_more(Stamp(7, 0, 0), sent=False), {"strange"}),
    ("a record with a changed byte", plant_more(None), {"torn"}),
    ("a record of another partition", plant_more(Stamp(0, 1, 9)), {"misplaced"}),
    ("a refused record is there", plant_more(Stamp(0, 0, 10), answer=REFUSED), {"revived"}),
    ("two acknowledgements of one offset",
     lambda h: h.answers.update({Stamp(0, 0, 9): 8}), {"offset shared", "moved"}),
    ("a reading goes back", lambda h: h.final[0].insert(5, h.final[0].pop(6)),
     {"offsets fell", "reordered", "skipped"}),
    ("a reader goes back", lambda h: h.views[0][1].append(h.final[0][2]), {"offsets fell"}),
    ("what was read is gone",
     lambda h: (h.final[0].pop(4), h.answers.update({Stamp(0, 0, 4): UNKNOWN})), {"vanished"}),
    ("a reader saw another record",
     lambda h: h.views[0][1].__setitem__(3, (3, Stamp(0, 0, 8))), {"changed"}),
    ("a reader was not given two records",
     lambda h: h.views[0][1].__delitem__(slice(4, 6)), {"skipped", "unread"}),
    ("a group never came to the end", lambda h: h.views[0][1].pop(), {"unread"}),
    ("a committed offset fell",
     lambda h: h.commits.append(("group", 1, 1, 0)), {"commit fell"}),
    ("committed offsets are gone",
     lambda h: h.commits.append(("group", 1, 1, -1001)), {"commit fell"}),
]
# What looks odd and is allowed.
ALLOWED = [
    ("nothing", lambda h: None),
    ("a repetition by a producer that is not idempotent",
     lambda h: (setattr(h, "idempotent", False), plant_more(Stamp(0, 0, 9))(h))),
    ("a record of unknown outcome is there", plant_more(Stamp(0, 0, 10), answer=UNKNOWN)),
    ("a record of unknown outcome is not there",
     lambda h: (h.sent.add(Stamp(0, 0, 10)), h.answers.update({Stamp(0, 0, 10): UNKNOWN}))),
    ("an acknowledgement without an offset", lambda h: h.answers.update({Stamp(0, 0, 9): None})),
    ("a second reader begins at the committed offset",
     lambda h: h.views.append((0, h.final[0][5:]))),
]


def selftest():
    missed = []
    for name, plant, wanted in PLANTED + [(name, plant, set()) for name, plant in ALLOWED]:
        history = made_up()
        plant(history)
        found = set(judge(history))
        if found != wanted:
            missed.append(name)
        print(f"  {'told  ' if found == wanted else 'MISSED'} {name}: {sorted(found)}")
    never = set(FINDINGS) - set().union(*(wanted for _, _, wanted in PLANTED))
    if never:
        missed.append(f"never planted: {never}")
    value = value_of(5, Stamp(1, 2, 3))
    for byte in range(len(value)):
        changed = value[:byte] + bytes([value[byte] ^ 1 << byte % 8]) + value[byte + 1:]
        if stamp_of(5, changed) is not None:
            missed.append(f"byte {byte} changed")
    if stamp_of(5, value) != Stamp(1, 2, 3) or stamp_of(6, value) or stamp_of(5, value[:-1]):
        missed.append("a value as it was sent")
    print(f"CHECKER SELFTEST {'FAIL' if missed else 'PASS'} planted={len(PLANTED)} "
          f"allowed={len(ALLOWED)} missed={len(missed)} {missed or ''}".rstrip())
    return 1 if missed else 0


# The command ---------------------------------------------------------------------------------


def play(chosen):
    """A workload during which a command is run again and again."""
    load = Workload(chosen.bootstrap, chosen.idempotent, chosen.producers, chosen.partitions,
                    chosen.rate, chosen.consumers, chosen.commits, seed=chosen.seed).start()
    chance, faults, failed = random.Random(chosen.seed), 0, 0
    until = time.monotonic() + chosen.seconds
    while chosen.fault:
        pause = chance.uniform(0.5, 1.5) * chosen.fault_every
        if time.monotonic() + pause > until:
            break
        time.sleep(pause)
        faults += 1
        done = subprocess.run(chosen.fault, shell=True, stdout=subprocess.DEVNULL)
        failed += done.returncode != 0
    time.sleep(max(0, until - time.monotonic()))
    findings = load.finish()
    for name, found in findings.items():
        print(f"FOUND {name}, {len(found)} times ({FINDINGS[name]}): {found[:3]}")
    if load.errors:
        print("clients were told:", dict(load.errors))
    enough = load.acknowledged() >= 100 and (not chosen.fault or faults > failed)
    verdict = "FAIL" if findings or failed else "PASS" if enough else "INVALID"
    print(f"CHECKER {verdict} {load.numbers(findings)} faults={faults} failed-faults={failed} "
          f"idempotent={int(chosen.idempotent)}")
    return {"PASS": 0, "FAIL": 1, "INVALID": 2}[verdict]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--producers", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--rate", type=float, default=400, help="records a second and producer")
    parser.add_argument("--consumers", type=int, default=0, help="readers, all of one group")
    parser.add_argument("--commits", action="store_true", help="readers commit as they go")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--fault", help="command that does something to the broker")
    parser.add_argument("--fault-every", type=float, default=5, help="mean seconds between faults")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--selftest", action="store_true")
    chosen = parser.parse_args()
    return selftest() if chosen.selftest else play(chosen)


if __name__ == "__main__":
    sys.exit(main())
