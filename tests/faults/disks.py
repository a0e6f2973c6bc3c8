"""The disk: full, without power, slow, standing still, with errors.

The last four need a disk of one's own: that of a QEMU guest (guest.py), which this process serves.
"""
import time

from trial import HERE, passes, percentile, scenario, until

SMALL_SEGMENTS = ["--cores", "2", "--set", "log.segment.bytes=1MiB",
                  "--set", "log.segment.initial.bytes=256KiB",
                  "--set", "log.inline.max.bytes=256KiB"]
SLOW_SECONDS, HANG_SECONDS = 0.2, 30


@scenario("full", 600, 600)
def full(trial):
    """a small file system that fills up (fulldisk): no crash, reads work, writes resume"""
    lines = trial.command(HERE / "fulldisk", "--binary", trial.binary, seconds=590)
    return "; ".join(line.strip() for line in lines if "resume" in line)


@scenario("power", 7200, 420)
def power(trial):
    """the power of a guest machine is cut under `commit` load (powercut): nothing acknowledged
    lost, nothing read that is later gone"""
    lines = trial.command(HERE / "powercut", "--rounds", trial.pick(2, 20), "--seed", trial.seed,
                          "--binary", trial.binary, seconds=trial.pick(410, 7190))
    return lines[-1]


class Guest:
    """A booted guest under load; what the console says stands in for the broker's words."""

    def __init__(self, trial):
        from guest import Disk, Machine
        self.trial, self.disk = trial, Disk(trial.directory, 4096)
        self.machine = Machine(trial.directory, self.disk, trial.binary,
                               ["--flush", "commit", *SMALL_SEGMENTS])
        self.address = self.machine.address

    def __enter__(self):
        self.machine.boot()
        self.load = self.trial.workload(self, producers=1, rate=100).start()
        self.load.await_acknowledged(200, 90)
        return self

    def __exit__(self, *_):
        self.disk.mend()
        self.machine.kill()

    def errors(self):
        return self.machine.said()[-4000:]

    def running(self):
        said = self.machine.said()
        if not self.machine.is_running() or "the broker ended" in said or "panicked" in said:
            raise AssertionError(f"the broker has gone\n{self.errors()}")


def asked(address, seconds):
    """The 90th percentile of how long requests take that need no disk; one that is not answered
    counts with the time it was waited for."""
    from wire import ask
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        try:
            ask(address, 18, 0, b"")
        except TimeoutError:
            pass
        took.append(time.monotonic() - begun)
        time.sleep(0.05)
    return percentile(took, 0.9)


@scenario("slow", 600, 300)
def slow(trial):
    """a disk that takes 200 ms a write, then one that stands still for 30 s: other requests within
    2 x, nothing acknowledged falsely, back in 5 s"""
    with Guest(trial) as guest:
        usual = asked(guest.address, 5)
        guest.disk.delay = SLOW_SECONDS
        slowly = asked(guest.address, trial.pick(8, 60))
        guest.load.await_acknowledged(10, 60)
        guest.disk.hold()
        until(lambda: stands(guest.load), 20, "acknowledgements end while the disk stands still")
        before = guest.load.acknowledged()
        meanwhile = asked(guest.address, trial.pick(8, HANG_SECONDS))
        false = guest.load.acknowledged() - before
        guest.disk.mend()
        back = guest.load.await_acknowledged(50, 60)
        guest.running()
        figures = passes(guest.load, guest)
    if false:
        raise AssertionError(f"{false} records acknowledged while no write went to the disk")
    # Below that it is the emulated machine that takes the time.
    allowed = max(2 * usual, 0.1)
    if max(slowly, meanwhile) > allowed or back > 5:
        raise AssertionError(f"requests without a disk took {slowly:.3f} s on the slow one, "
                             f"{meanwhile:.3f} s on the one that stood still, {usual:.3f} s "
                             f"before; back after {back:.1f} s")
    return f"other requests {usual * 1e3:.0f} ms, {slowly * 1e3:.0f} ms on the slow disk, " \
           f"{meanwhile * 1e3:.0f} ms while it stood still; back after {back:.2f} s, {figures}"


def stands(load):
    before = load.acknowledged()
    time.sleep(1)
    return load.acknowledged() == before


@scenario("errors", 600, 420)
def errors(trial):
    """the disk fails one write: no acknowledgement by that log afterwards, reads go on; after a
    start everything acknowledged is there"""
    with Guest(trial) as guest:
        guest.disk.failing = 1
        until(lambda: guest.disk.failing == 0, 30, "a write fails")
        until(lambda: "rror" in guest.machine.said() or stands(guest.load), 30, "it is noticed")
        if "the broker ended" in guest.machine.said() or "panicked" in guest.machine.said():
            raise AssertionError(f"the broker has gone\n{guest.errors()}")
        asked(guest.address, 2)
        guest.machine.kill()
        guest.disk.thread.join(10)
        guest.machine.boot()
        guest.load.await_acknowledged(50, 90)
        guest.running()
        figures = passes(guest.load, guest)
    return f"1 failed write, {figures}"
