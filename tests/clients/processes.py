"""A client's programs as processes: one that is run to its end, one that is fed, one that is
listened to. Each has its standard error in a file of its own and is ended by its id.
"""
import os
import queue
import signal
import subprocess
import threading
import time

STEP_SECONDS = 120


class Ended(RuntimeError):
    """A program's bad end; `said` is all that it said."""

    def __init__(self, name, status, said):
        super().__init__(f"{name} ended with {status}: {said.strip()[-1000:]}")
        self.said = said


def run(command, text=None, seconds=STEP_SECONDS, **more):
    """The standard output of a command that has to succeed."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds,
                          **more)
    if done.returncode != 0:
        raise Ended(os.path.basename(command[0]), done.returncode, done.stderr + done.stdout)
    return done.stdout


class Process:
    def __init__(self, name, command, directory, **pipes):
        self.name, self.errors_path = name, os.path.join(directory, name + ".err")
        arguments, environment = command
        with open(self.errors_path, "wb") as errors:
            self.child = subprocess.Popen(arguments, stderr=errors, text=True,
                                          env={**os.environ, **environment}, **pipes)

    def errors(self):
        with open(self.errors_path, errors="replace") as said:
            return said.read()[-1500:]

    def is_running(self):
        return self.child.poll() is None

    def wait(self, seconds, statuses=(0,)):
        try:
            status = self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} is still there after {seconds} s: {self.errors()}")
        if status not in statuses:
            raise RuntimeError(f"{self.name} ended with {status}: {self.errors()}")

    def kill(self):
        if self.is_running():
            self.child.kill()
            self.child.wait()


class Producer(Process):
    """Takes lines at its standard input. They are handed over by a thread, since a program whose
    broker is gone may stop reading."""

    def __init__(self, name, command, directory):
        super().__init__(name, command, directory, stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL)
        self.lines = queue.SimpleQueue()
        threading.Thread(target=self.hand_over, daemon=True).start()

    def hand_over(self):
        try:
            while (text := self.lines.get()) is not None:
                self.child.stdin.write(text)
                self.child.stdin.flush()
            self.child.stdin.close()
        except OSError:
            pass  # it ended, which its status tells

    def feed(self, text):
        self.lines.put(text)

    def finish(self, seconds=STEP_SECONDS):
        self.lines.put(None)
        self.wait(seconds)


class Consumer(Process):
    """Collects the deliveries it prints; `parse` makes them of a line, or None of another line."""

    def __init__(self, name, command, directory, parse):
        self.begun = time.monotonic()
        super().__init__(name, command, directory, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE)
        self.parse, self.deliveries, self.trouble = parse, [], None
        self.reader = threading.Thread(target=self.listen, daemon=True)
        self.reader.start()

    def listen(self):
        try:
            for line in self.child.stdout:
                delivery = self.parse(line)
                if delivery:
                    self.deliveries.append(delivery)
        except Exception as error:  # told by whoever asks next
            self.trouble = f"{self.name} printed what cannot be read: {error!r} in {line!r}"

    def leave(self, statuses=(0,), seconds=20):
        """Ends it as a person would; all that it printed is there afterwards."""
        self.child.send_signal(signal.SIGTERM)
        self.wait(seconds, statuses)
        self.reader.join(seconds)
        self.check()

    def check(self, may_end=True):
        if self.trouble:
            raise RuntimeError(self.trouble)
        if not may_end and not self.is_running():
            raise RuntimeError(f"{self.name} ended by itself, {self.child.returncode}: "
                               f"{self.errors()}")

    def kill(self):
        super().kill()
        self.reader.join(5)
