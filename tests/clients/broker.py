"""A basalt process for tests in Python: started on a free port of loopback, ended by its id."""
import itertools
import os
import pathlib
import select
import signal
import socket
import subprocess
import tempfile
import time

READY_WITHIN = 30
STOPS_WITHIN = 20
COUNTER = itertools.count()


def find_binary():
    """The newest build below CARGO_TARGET_DIR, or below target/."""
    top = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or top / "target")
    found = [path for path in (target / kind / "basalt" for kind in ("release", "debug"))
             if path.exists()]
    if not found:
        raise SystemExit(f"no broker below {target}: cargo build comes first")
    return str(max(found, key=lambda path: path.stat().st_mtime))


def free_port():
    """A port below the range from which the system serves connections, none given before."""
    for _ in range(2000):
        port = 12000 + (os.getpid() * 41 + next(COUNTER) * 7) % 20000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port")


class Broker:
    clean_statuses = (0,)
    # Variables of its environment beside those of this process.
    environment = {}

    def __init__(self, binary, data, arguments=(), port=None):
        self.binary, self.data, self.arguments = binary, data, list(arguments)
        self.address = f"127.0.0.1:{port or free_port()}"
        self.process, self.ready_line, self.ready_seconds = None, "", 0.0
        self.said = tempfile.NamedTemporaryFile(prefix="basalt-", suffix=".err")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        self.said.close()

    def start(self):
        begun = time.monotonic()
        command = [self.binary, "serve", "--data-dir", self.data, "--listen", self.address]
        for flag in ("--http", "--pg"):
            if flag not in self.arguments:
                command += [flag, "127.0.0.1:0"]
        self.process = subprocess.Popen(command + self.arguments, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.said,
                                        env={**os.environ, **self.environment})
        text = b""
        while b"\nready " not in b"\n" + text or not text.endswith(b"\n"):
            left = READY_WITHIN - (time.monotonic() - begun)
            readable, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            more = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            if not more:
                self.kill()
                raise RuntimeError(f"the broker is not ready:\n{self.errors()}")
            text += more
        self.ready_line = text.decode().strip().splitlines()[-1]
        self.ready_seconds = time.monotonic() - begun

    def errors(self):
        self.said.flush()
        with open(self.said.name, errors="replace") as said:
            return said.read()[-4000:]

    def check_said(self):
        """A thread of the broker that panicked is a failure, whatever clients saw of it."""
        self.said.flush()
        with open(self.said.name, errors="replace") as said:
            panics = [line.strip() for line in said if "panicked at" in line]
        if panics:
            raise RuntimeError(f"{len(panics)} panics in the broker: {panics[0]}")

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"still there {STOPS_WITHIN} s after SIGTERM\n{self.errors()}")
        self.close_output()
        self.process = None
        return status

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.close_output()
            self.process = None

    def close_output(self):
        if self.process.stdout:
            self.process.stdout.close()

    def stop_and_start(self):
        status = self.stop()
        if status not in self.clean_statuses:
            raise RuntimeError(f"a clean stop ended with {status}\n{self.errors()}")
        self.start()

    def kill_and_start(self):
        self.kill()
        self.start()
