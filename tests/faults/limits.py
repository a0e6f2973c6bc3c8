"""What the machine does not grant: io_uring, locked memory, open files, a directory to write to."""
import ctypes
import os
import platform
import resource
import socket
import struct
import subprocess
import time

from records import NotRun
from trial import passes, scenario, until

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_DROP = 38, 22, 24
CAP_SYS_RESOURCE, CAP_IPC_LOCK = 24, 14
IO_URING_SETUP = 425
EXITS_WITHIN = 1.0


def prctl(*words):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*words) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def deny_rings():
    """In the child: io_uring_setup answers EPERM, as in a container."""
    code = b"".join(struct.pack("HBBI", *line) for line in [
        (0x20, 0, 0, 0),                    # load the number of the call
        (0x15, 0, 1, IO_URING_SETUP),       # another one: allowed
        (0x06, 0, 0, 0x00050000 | 1),       # EPERM
        (0x06, 0, 0, 0x7FFF0000)])
    kept = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(kept)))
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0)


def deny_memory():
    """In the child: no memory may be locked, and the limit cannot be raised."""
    if os.geteuid() == 0:
        for capability in (CAP_SYS_RESOURCE, CAP_IPC_LOCK):
            prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))


@scenario("denied", 60, 60)
def denied(trial):
    """io_uring denied (seccomp), no locked memory: the broker ends within 1 s and names the fix"""
    if platform.machine() not in ("x86_64", "aarch64"):
        raise NotRun(f"the number of io_uring_setup is not known on {platform.machine()}")
    told = []
    for name, deny, words in (("io_uring denied", deny_rings, ("io_uring is denied", "seccomp")),
                              ("memlock 0", deny_memory, ("ulimit -l", "memlock"))):
        begun = time.monotonic()
        command = [trial.binary, "serve", "--data-dir", trial.path(name), "--listen",
                   "127.0.0.1:0", "--http", "127.0.0.1:0", "--pg", "127.0.0.1:0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, preexec_fn=deny)
        seconds = time.monotonic() - begun
        lacking = [word for word in words if word not in done.stderr]
        if done.returncode == 0 or seconds > EXITS_WITHIN or lacking or "panicked" in done.stderr:
            raise AssertionError(f"{name}: status {done.returncode} after {seconds:.2f} s, not "
                                 f"said: {lacking}\n{done.stdout[-500:]}{done.stderr[-1500:]}")
        told.append(f"{name}: status {done.returncode} after {seconds:.2f} s")
    return ", ".join(told)


@scenario("files", 180, 60)
def files(trial):
    """no more files may be opened, under load with tables: the broker runs on, reads and (once the
    limit is lifted) everything else work within 10 s"""
    from trial import SMALL
    with trial.broker(SMALL) as broker:
        load = trial.workload(broker, producers=2, rate=200, consumers=1).start()
        load.await_acknowledged(300, 30)
        reader = trial.workload(broker, producers=1, rate=50).start()
        reader.await_acknowledged(50, 30)
        before = broker.limit_files(broker.open_files())
        idle = []
        try:
            host, port = broker.address.rsplit(":", 1)
            for _ in range(100):
                # The kernel takes them; the broker has no file for them.
                idle.append(socket.create_connection((host, int(port)), timeout=10))
            end = time.monotonic() + trial.pick(5, 30)
            while time.monotonic() < end:
                broker.running()
                time.sleep(0.1)
        finally:
            for connection in idle:
                connection.close()
        broker.limit_files(before)
        back = load.await_acknowledged(100, 30)
        reader.await_acknowledged(20, 30)
        figures = passes(load, broker, tables=True)
        passes(reader, broker)
        broker.ends_well()
    if back > 10:
        raise AssertionError(f"writes resumed {back:.1f} s after the limit was lifted")
    return f"100 connections without a file, writes {back:.2f} s after the limit, {figures}"


class Image:
    """A small ext4 on a loop device."""

    def __init__(self, trial, size=512 << 20):
        self.file, self.mount = trial.path("image"), trial.path("mount")
        if os.geteuid() != 0:
            raise NotRun("needs root to mount an image")
        self.size = size

    def __enter__(self):
        try:
            with open(self.file, "wb") as image:
                os.posix_fallocate(image.fileno(), 0, self.size)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.file], check=True,
                           capture_output=True)
            os.mkdir(self.mount)
            self.attach()
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotRun(f"no loop-mounted image here: {error}") from error
        return self

    def attach(self):
        subprocess.run(["mount", "-o", "loop", self.file, self.mount], check=True,
                       capture_output=True)

    def abort(self):
        """What ext4 does to itself after an error of its journal: read-only from now on."""
        subprocess.run(["mount", "-o", "remount,abort", self.mount], check=False,
                       capture_output=True)
        try:
            with open(os.path.join(self.mount, "probe"), "w"):
                pass
        except OSError:
            return
        raise NotRun("this kernel does not let ext4 be aborted")

    def detach(self):
        subprocess.run(["umount", self.mount], check=True, capture_output=True)

    def __exit__(self, *_):
        subprocess.run(["umount", self.mount], check=False, capture_output=True)


@scenario("readonly", 180, 120)
def readonly(trial):
    """the file system becomes read-only under load: no crash, what was acknowledged can be read,
    nothing is acknowledged any more; after a repair and a start all is there and writes go on"""
    with Image(trial) as image:
        data = os.path.join(image.mount, "data")
        settings = ["log.segment.bytes=1MiB", "log.segment.initial.bytes=256KiB",
                    "log.inline.max.bytes=256KiB"]
        try:
            with trial.broker(settings, data=data) as broker:
                load = trial.workload(broker).start()
                load.await_acknowledged(500, 30)
                image.abort()
                # What was on its way is answered one way or the other.
                stood_still = until(lambda: stands_still(load), 30, "acknowledgements end")
                broker.running()
                seen = read_all(broker, load)
                broker.kill()
                image.detach()
                subprocess.run(["e2fsck", "-fy", image.file], check=False, capture_output=True)
                image.attach()
                broker.start()
                load.await_acknowledged(100, 60)
                figures = passes(load, broker)
                broker.ends_well()
        finally:
            for broker in trial.brokers:
                broker.kill()
    return f"no acknowledgement after {stood_still:.1f} s, {seen} records read meanwhile, {figures}"


def stands_still(load):
    before = load.acknowledged()
    time.sleep(2)
    return load.acknowledged() == before


def read_all(broker, load):
    """All that is acknowledged can be read now."""
    import confluent_kafka as ck
    consumer = ck.Consumer({"bootstrap.servers": broker.address, "group.id": "none",
                            "enable.partition.eof": True, "auto.offset.reset": "error",
                            "enable.auto.commit": False, "log_level": 0})
    consumer.assign([ck.TopicPartition(load.topic, number, ck.OFFSET_BEGINNING)
                     for number in range(load.partitions)])
    open_count, seen, end = load.partitions, 0, time.monotonic() + 30
    while open_count and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and not message.error():
            seen += 1
        elif message is not None:
            if message.error().code() != ck.KafkaError._PARTITION_EOF:
                raise AssertionError(f"read-only: a read ends with {message.error()}")
            open_count -= 1
    consumer.close()
    if open_count or seen < load.acknowledged():
        raise AssertionError(f"read-only: {seen} of {load.acknowledged()} acknowledged records "
                             f"read, {open_count} partitions do not end")
    return seen
