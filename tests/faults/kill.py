#!/usr/bin/env python3
"""Kills a broker under load again and again, and has the history judged by a checker from outside.

    tests/faults/kill.py [--seconds 180] [--every 3.5] [--modes idempotent,plain,commits,tables]

The checker is checker.py beside this, or another with the same command line (LOGCHECK=PATH). It
writes with acks=all, asks for a kill through a socket, reads all back at the end and says PASS or
FAIL. Here the broker is killed with SIGKILL, started again on the same data, and the time until it
is ready is held against a bound. One line for each mode and a closing line.
"""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
from broker import Broker, find_binary
from records import NotRun
from tools import CLIENTS

MODES = {
    "idempotent": ["--idempotent"],
    "plain": [],
    # Three readers of a group commit as they go; what was committed may not fall or be lost.
    "commits": ["--idempotent", "--consumers", "3", "--commits"],
    # Records are read back out of table files, written and merged while the broker is killed.
    "tables": ["--idempotent"],
}
# What the broker is told in a mode. The log keeps next to nothing of what is in files.
SETTINGS = {
    "tables": [
        "hot.bytes=0", "hot.ms=0", "table.commit.bytes=64KiB", "table.commit.ms=200ms",
        "table.file.max.bytes=4MiB", "iceberg.reader.grace.ms=100ms",
        "log.retention.check.interval.ms=100ms", "log.segment.bytes=1MiB",
        "log.segment.initial.bytes=1MiB", "log.inline.max.bytes=256KiB",
    ],
}


def find_checker():
    return os.environ.get("LOGCHECK") or str(HERE / "checker.py")


class Killer(threading.Thread):
    """Kills and restarts the broker each time somebody connects to its socket."""

    def __init__(self, broker, path):
        super().__init__(daemon=True)
        self.broker, self.ready_seconds = broker, []
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()

    def run(self):
        while True:
            try:
                asker, _ = self.listener.accept()
            except OSError:
                return
            with asker:
                try:
                    if not self.broker.is_running():
                        raise RuntimeError(f"it was not running\n{self.broker.errors()}")
                    self.broker.kill_and_start()
                    self.ready_seconds.append(self.broker.ready_seconds)
                    asker.sendall(b"0")
                except RuntimeError as error:
                    print(f"kill and restart: {error}", file=sys.stderr)
                    asker.sendall(b"1")


def poke(path):
    """What the checker runs as its fault."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(path)
        return 0 if asker.recv(1) == b"0" else 1


def one_mode(mode, chosen, python, checker):
    """The outcome in a line; raises when it is not a pass."""
    with tempfile.TemporaryDirectory(prefix="basalt-kill-") as data:
        path = os.path.join(data, "kill.sock")
        broker_data = os.path.join(data, "data")
        told = [word for key in SETTINGS.get(mode, []) for word in ("--set", key)]
        arguments = [*chosen.broker, *told]
        with Broker(chosen.binary or find_binary(), broker_data, arguments) as broker:
            killer = Killer(broker, path)
            killer.start()
            fault = f"'{sys.executable}' '{HERE / 'kill.py'}' --poke '{path}'"
            command = [python, checker, "-b", broker.address, "--seconds", str(chosen.seconds),
                       "--fault", fault, "--fault-every", str(chosen.every), "--consumers",
                       str(chosen.consumers), *MODES[mode]]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                                  timeout=chosen.seconds * 3 + 300)
            killer.listener.close()
            print(done.stdout, end="", flush=True)
            status = broker.stop() if broker.is_running() else "missing"
            errors = broker.errors()
    ready = killer.ready_seconds
    slowest = max(ready, default=0)
    line = (f"{len(ready)} kills, ready after {statistics.median(ready or [0]):.2f} s, "
            f"at most {slowest:.2f} s")
    if done.returncode != 0 or status != 0:
        raise RuntimeError(f"{line}; the checker ended with {done.returncode}, the broker with "
                           f"{status}\n{errors}")
    if slowest > chosen.ready_within:
        raise RuntimeError(f"{line}; {chosen.ready_within} s are allowed")
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--every", type=float, default=3.5, help="mean seconds between kills")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--ready-within", type=float, default=2.0)
    parser.add_argument("--consumers", type=int, default=0,
                        help="readers in a group during the run; they need a coordinator")
    parser.add_argument("--binary", help="the broker's binary")
    parser.add_argument("--broker", nargs="*", default=[], help="arguments of the broker")
    parser.add_argument("--poke", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.poke:
        return poke(chosen.poke)

    modes = chosen.modes.split(",")
    counts = {"passed": 0, "failed": 0, "not run": 0}
    for mode in modes:
        state, detail = "passed", ""
        try:
            checker = find_checker()
            client = next(client for client in CLIENTS if client.name == "confluent-kafka-newest")
            client.prepare()
            python = str(client.python)
            subprocess.run([python, checker, "--selftest"], check=True,
                           stdout=subprocess.DEVNULL)
            detail = one_mode(mode, chosen, python, checker)
        except NotRun as reason:
            state, detail = "not run", reason
        except (RuntimeError, subprocess.SubprocessError) as error:
            state, detail = "failed", error
        counts[state] += 1
        print(f"kill {mode:<12} {state:<8} {detail}", flush=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
