"""The scenario, the same for all clients; each client has a broker of its own in it.

1. A topic with three partitions. A joins a group, then B.
2. 1,000 records in the first codec, read by both; what was read is committed.
3. In the middle of 1,000 more B leaves and C joins.
4. In the middle of 1,000 more the broker is killed with SIGKILL; it comes back on the same data,
   and the producer and the consumers have to get over it.
5. 1,000 records in each codec that is left. A and C leave.
6. The broker is stopped and started, then killed and started. Committed offsets stand at the ends,
   the client reads everything from another process by assignment, finds records by their time, and
   D, in the same group, sees only what is new. With the topic its committed offsets go.

Judged: every record, its key, headers, partition and order; who owned what; committed offsets
against the ends, asked through the client and through the wire; nothing below a committed offset
is delivered again. A client without groups plays 1, 4, 5 and 6 without them.
"""
import os
import shutil
import time

import wire
from processes import Consumer, Producer
from records import NotRun, Wrong, below, first_at, judge, one_after_the_other, repeated

__all__ = ["NotRun", "Play", "PARTITIONS"]

PARTITIONS = 3
ALL = list(range(PARTITIONS))
PATIENCE = 60
# Apache Kafka waits 3 s for more members before a new group's first generation; the rest is a JVM
# that starts while two cores are busy.
FIRST_JOIN_WITHIN = 12
# A member that says goodbye is replaced at the others' next heartbeat (3 s), not at its timeout.
LEFT_WITHIN = 15
DOWN_SECONDS = 1.0
# Apache Kafka takes the offsets away after its answer, Basalt before it.
TOPIC_GONE_WITHIN = 15


def until(what, ready, seconds=PATIENCE, detail=lambda: ""):
    """Waits for `ready` to give something; its value."""
    begun = time.monotonic()
    while True:
        value = ready()
        if value:
            return value
        if time.monotonic() - begun > seconds:
            raise Wrong(f"not within {seconds} s: {what} {detail()}".strip())
        time.sleep(0.05)


class Play:
    """One client's run of the scenario; `notes` gets what is worth reading of a pass."""

    def __init__(self, client, broker, directory, count):
        self.client, self.broker, self.directory, self.count = client, broker, directory, count
        self.topic, self.group = f"{client.name}-lava", f"{client.name}-group"
        self.sent, self.phase, self.consumers, self.producers = [], 0, {}, []
        self.settled, self.notes = {}, []
        self.begun = time.monotonic()

    def say(self, what):
        """The steps with their times, beside what the programs said."""
        with open(os.path.join(self.directory, "steps"), "a") as steps:
            steps.write(f"{time.monotonic() - self.begun:7.2f} s  {what}\n")

    def run(self):
        try:
            self.client.create(self.broker.address, self.topic, PARTITIONS)
            if self.client.has_groups:
                self.in_group()
            else:
                self.without_group()
            self.afterwards()
            self.broker.check_said()
        finally:
            for process in [*self.consumers.values(), *self.producers]:
                process.kill()
            self.broker.said.flush()
            shutil.copy(self.broker.said.name, os.path.join(self.directory, "broker.err"))

    def in_group(self):
        self.join("A")
        self.await_members("A")
        took = time.monotonic() - self.consumers["A"].begun
        self.notes.append(f"first join {took:.1f} s")
        if took > FIRST_JOIN_WITHIN:
            raise Wrong(f"the first join took {took:.1f} s, {FIRST_JOIN_WITHIN} are allowed")
        self.join("B")
        self.await_members("A", "B")
        self.produce(self.codec())
        self.settle("two members")
        self.shared_work("A", "B")

        self.produce(self.codec(), third=self.exchange)
        self.await_members("A", "C")
        self.settle("one left, one joined")

        self.produce(self.codec(), half=self.kill)
        self.settle("the broker was killed")
        self.await_members("A", "C")
        self.remaining_codecs()
        self.settle("all codecs")
        self.shared_work("A", "C")
        self.leave("A"), self.leave("C")
        until("the group is empty", lambda: self.group_now().state == "Empty")

    def without_group(self):
        self.produce(self.codec())
        self.produce(self.codec(), half=self.kill)
        self.remaining_codecs()

    def afterwards(self):
        """What has to be true of the log and the group on disk."""
        address = self.broker.address
        ends = wire.offsets(address, self.topic)
        everything = [delivery for consumer in self.consumers.values()
                      for delivery in consumer.deliveries]
        for when, again in ((" after a restart", self.broker.stop_and_start),
                            (" after a kill", self.broker.kill_and_start)):
            again()
            self.say(f"the broker is back{when}")
            self.same("ends" + when, ends, wire.offsets(address, self.topic))
            if self.client.has_groups:
                self.committed_at(ends, when)
            fetched = self.client.fetch(address, self.topic, ends)
            log = judge(self.sent, everything + fetched, ends)
            judge(self.sent, fetched, ends)
            one_after_the_other(fetched, dict.fromkeys(ALL, 0), ends)
            self.say(f"{len(fetched)} records fetched{when}")
        self.notes.append(f"{repeated(log)} sent again, "
                          f"{len(everything) - len({d.place() for d in everything})} seen again")
        self.look_ups(log, ends)
        if self.client.has_groups:
            self.only_the_new(ends)
        self.client.more(self)
        if self.client.has_groups:
            self.without_topic()
        self.say("done")

    # Steps -----------------------------------------------------------------------------------

    def codec(self):
        return self.client.codecs[self.phase % len(self.client.codecs)]

    def remaining_codecs(self):
        for codec in self.client.codecs[self.phase:]:
            self.produce(codec)

    def produce(self, codec, third=None, half=None, count=None):
        """A run of the client's producer; in the middle of it `third` or `half` happens."""
        records = self.client.records(self.phase, len(self.sent), count or self.count)
        for record in records:
            record.may_repeat = half is not None and not self.client.is_idempotent
        before = sum(wire.offsets(self.broker.address, self.topic).values())
        producer = self.client.producer(self, codec, self.phase, len(records))
        self.producers.append(producer)
        self.sent += records
        self.phase += 1
        cut = len(records) // (3 if third else 2)
        producer.feed(self.client.lines(records[:cut]))
        if third or half:
            def arrived():
                return sum(wire.offsets(self.broker.address, self.topic).values()) - before
            until("records of the first part arrive", lambda: arrived() >= cut // 2,
                  detail=lambda: f"{arrived()} of {cut}; {producer.errors()}")
            (third or half)(producer, self.client.lines(records[cut:2 * cut]))
        else:
            producer.feed(self.client.lines(records[cut:2 * cut]))
        producer.feed(self.client.lines(records[2 * cut:]))
        producer.finish()
        self.say(f"{len(records)} records produced, {codec}")

    def exchange(self, producer, more):
        self.leave("B")
        self.await_members("A", seconds=LEFT_WITHIN)
        self.join("C")
        producer.feed(more)

    def kill(self, producer, more):
        self.broker.kill()
        self.say("the broker is killed")
        producer.feed(more)
        time.sleep(DOWN_SECONDS)
        self.broker.start()
        self.say("the broker is back")

    def join(self, name):
        command = self.client.consumer(self.broker.address, self.group, self.topic, self.directory)
        self.consumers[name] = Consumer(name, command, self.directory, self.client.delivery)

    def leave(self, name):
        self.consumers[name].leave(self.client.leave_statuses)

    # Judgements ------------------------------------------------------------------------------

    def group_now(self):
        return wire.group(self.broker.address, self.group, self.topic)

    def await_members(self, *names, seconds=PATIENCE):
        """The group is stable, each member has a share, each partition one owner."""
        last = None

        def ready():
            nonlocal last
            for name in names:
                self.consumers[name].check(may_end=False)
            last = self.group_now()
            shares = [share for _, share in last.members]
            return (last.state == "Stable" and len(shares) == len(names) and all(shares)
                    and sorted(sum(shares, [])) == ALL)
        names_text = ", ".join(names)
        until(f"a stable group of {names_text}", ready, seconds, lambda: str(last))
        self.say(f"{names_text} share the topic: {last}")

    def settle(self, when):
        """All is seen and committed. From here on nothing of it may be delivered again."""
        ends = wire.offsets(self.broker.address, self.topic)
        wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}

        def seen():
            places = set()
            for consumer in self.consumers.values():
                consumer.check()
                places.update(delivery.place() for delivery in consumer.deliveries[:])
            return places
        until(f"all records are seen ({when})", lambda: seen() >= wanted,
              detail=lambda: f"{len(wanted - seen())} of {len(wanted)} are not")
        now = None

        def is_committed():
            nonlocal now
            now = wire.committed(self.broker.address, self.group, self.topic, PARTITIONS)
            return now == ends
        until(f"committed offsets reach {ends} ({when})", is_committed, detail=lambda: str(now))
        self.say(f"settled at {ends}: {when}")
        time.sleep(0.2)  # lets what was printed before the commit arrive here
        self.nothing_again(when)
        self.settled = ends, {name: len(consumer.deliveries)
                              for name, consumer in self.consumers.items()}

    def nothing_again(self, when):
        """No delivery since the last settling lies below what was committed then."""
        if not self.settled:
            return
        ends, counts = self.settled
        for name, consumer in self.consumers.items():
            old = below(consumer.deliveries[counts.get(name, 0):], ends)
            if old:
                raise Wrong(f"{name} got {len(old)} records again, which were committed "
                            f"({when}): {old[:5]}; committed was {ends}")

    def shared_work(self, *names):
        """Members that share the partitions have both got records."""
        idle = [name for name in names if not self.consumers[name].deliveries]
        if idle:
            raise Wrong(f"{', '.join(idle)} got no records in a group of {', '.join(names)}")

    def committed_at(self, ends, when):
        self.same("committed offsets, by the wire" + when, ends,
                  wire.committed(self.broker.address, self.group, self.topic, PARTITIONS))
        theirs = self.client.committed(self.broker.address, self.group, self.topic)
        if theirs is not None:
            self.same("committed offsets, by the client" + when, ends, theirs)

    def look_ups(self, log, ends):
        """First offsets, ends and look-ups by time, through the client."""
        address = self.broker.address
        self.same("first offsets", {number: 0 for number in ALL},
                  wire.offsets(address, self.topic, wire.EARLIEST))
        partition = max(log, key=lambda number: len(log[number]))
        times = sorted({delivery.timestamp for delivery in log[partition].values()})
        for timestamp in (times[0] - 1, times[len(times) // 2], times[-1], times[-1] + 1):
            wanted = {number: first_at(log, number, timestamp) for number in ALL}
            self.same(f"offsets for time {timestamp}, by the wire", wanted,
                      wire.offsets(address, self.topic, timestamp))
        # Some clients say the end where no record is so late: each partition has one here.
        lasts = (max(delivery.timestamp for delivery in held.values()) for held in log.values())
        timestamp = min(times[len(times) // 2], *lasts)
        theirs = self.client.offsets(address, self.topic, timestamp)
        if theirs is not None:
            firsts, lasts, found = theirs
            self.same("first offsets, by the client", {number: 0 for number in ALL}, firsts)
            self.same("ends, by the client", ends, lasts)
            self.same(f"offsets for time {timestamp}, by the client",
                      {number: first_at(log, number, timestamp) for number in ALL}, found)

    def only_the_new(self, ends):
        """A member that comes later begins where the group stopped."""
        self.join("D")
        self.await_members("D")
        self.produce(self.client.codecs[0], count=30)
        self.settle("a later member")
        self.leave("D")
        self.say("D left")
        now = wire.offsets(self.broker.address, self.topic)
        one_after_the_other(self.consumers["D"].deliveries, ends, now)

    def without_topic(self):
        """With the topic goes what was committed in it: a new one of that name starts afresh."""
        wire.delete(self.broker.address, self.topic)
        none = dict.fromkeys(ALL, -1)
        until("committed offsets of a deleted topic are gone", lambda: none == wire.committed(
            self.broker.address, self.group, self.topic, PARTITIONS), TOPIC_GONE_WITHIN)

    def same(self, what, wanted, got):
        if wanted != got:
            raise Wrong(f"{what}: expected {wanted}, got {got}")

