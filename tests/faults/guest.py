"""A virtual machine with a broker in it, and the disk it runs on, which can lose power.

QEMU without KVM starts Debian's cloud kernel with an initramfs of busybox, the kernel's virtio
modules and the broker; the data directory lies on ext4 on the disk. Packages are kept unpacked
below ~/.cache/basalt/guest. Only loopback is used; the guest reaches nothing but who connects.
"""
import os
import pathlib
import random
import re
import shutil
import socket
import struct
import subprocess
import threading
import time

from broker import find_binary, free_port
from records import NotRun
from installs import CACHE, install
from processes import run

GUEST = CACHE.parent / "guest"
QEMU = "qemu-system-x86_64"
MODULES = ["virtio_pci", "virtio_blk", "virtio_net"]
DISK_BYTES = 1 << 30
FLUSH_SECONDS_MAX = 0.02
EIO = 5
READY_WITHIN = 240
INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
for module in {modules}; do $b insmod /modules/$module.ko; done
$b ip link set lo up; $b ip link set eth0 up
$b ip addr add 10.0.2.15/24 dev eth0; $b ip route add default via 10.0.2.2
$b mount -t ext4 /dev/vda /data || {{ echo "powercut: no file system"; $b poweroff -f; }}
echo "powercut: mounted"
ulimit -l unlimited
/basalt serve --data-dir /data/basalt --listen 0.0.0.0:9092 {arguments}
echo "powercut: the broker ended with $?"
$b poweroff -f
"""


class Disk:
    """A disk with a volatile write cache, behind NBD on a socket; the cache is lost in `cut`."""

    def __init__(self, dir, sector):
        """`sector` bytes that belong together are written as a whole or not at all."""
        self.sector = sector
        self.path = os.path.join(dir, "disk.sock")
        self.file = os.open(os.path.join(dir, "disk"), os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self.file, DISK_BYTES)
        mkfs = shutil.which("mkfs.ext4", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        if not mkfs:
            raise NotRun("no mkfs.ext4")
        run([mkfs, "-q", "-F", "-b", "4096", os.path.join(dir, "disk")])
        # Sector: what it holds for certain, then what was written since the last flush.
        self.unflushed, self.is_on = {}, False
        # What is wrong with it: seconds each write takes more, writes that still have to fail.
        self.delay, self.failing = 0.0, 0
        self.moves = threading.Event()
        self.moves.set()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = None

    def serve(self):
        """Serves the one machine that connects next."""
        self.is_on = True
        self.thread = threading.Thread(target=self.session, daemon=True)
        self.thread.start()

    def session(self):
        self.listener.settimeout(30)
        try:
            stream, _ = self.listener.accept()
        except OSError:
            return
        stream.settimeout(None)
        with stream, stream.makefile("rb") as source:
            try:
                if self.greet(stream, source):
                    while self.request(stream, source):
                        pass
            except (OSError, EOFError, struct.error):
                return

    def greet(self, stream, source):
        """Agrees on the export; whether requests follow."""
        export = struct.pack(">QH", DISK_BYTES, 1 | 4)
        stream.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
        source.read(4)
        while True:
            option, size = struct.unpack(">8xII", source.read(16))
            source.read(size)

            def answer(kind, data=b"", option=option):
                head = struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data))
                stream.sendall(head + data)

            if option in (6, 7):
                answer(3, struct.pack(">H", 0) + export)
                answer(1)
                if option == 7:
                    return True
            elif option == 2:
                answer(1)
                return False
            else:
                answer(0x80000001)

    def hold(self):
        """It stands still until it is mended."""
        self.moves.clear()

    def mend(self):
        self.delay, self.failing = 0.0, 0
        self.moves.set()

    def request(self, stream, source):
        kind, handle, offset, size = struct.unpack(">4x2xHQQI", source.read(28))
        if not self.is_on:
            return False
        data, error = b"", 0
        self.moves.wait()
        if kind == 0:
            data = os.pread(self.file, size, offset)
        elif kind == 1:
            data_in = source.read(size)
            time.sleep(self.delay)
            if self.failing:
                self.failing, error = self.failing - 1, EIO
            else:
                self.write(offset, data_in)
        elif kind == 3:
            time.sleep(random.uniform(0, FLUSH_SECONDS_MAX))
            if not self.is_on:
                return False
            self.unflushed.clear()
        else:
            return False
        stream.sendall(struct.pack(">IIQ", 0x67446698, error, handle) + data)
        return True

    def write(self, offset, data):
        sectors = range(offset // self.sector, -(-(offset + len(data)) // self.sector))
        for sector in sectors:
            if sector not in self.unflushed:
                self.unflushed[sector] = [os.pread(self.file, self.sector, sector * self.sector)]
        os.pwrite(self.file, data, offset)
        for sector in sectors:
            self.unflushed[sector].append(os.pread(self.file, self.sector, sector * self.sector))

    def await_unflushed(self, seconds):
        """Until there is something that a cut may lose."""
        deadline = time.monotonic() + seconds
        while not self.unflushed and time.monotonic() < deadline:
            time.sleep(0.0005)

    def cut(self, chance, kept):
        """The power is gone: what a sector was not sure to hold it holds with probability `kept`.
        How many sectors were not sure, and how many of them are older than their last write."""
        self.thread.join()
        unsure, older = len(self.unflushed), 0
        for sector, versions in self.unflushed.items():
            if chance.random() >= kept:
                older += 1
                os.pwrite(self.file, chance.choice(versions[:-1]), sector * self.sector)
        self.unflushed.clear()
        return unsure, older


class Machine:
    """The guest: one QEMU process at a time, over the same disk."""

    def __init__(self, dir, disk, binary, arguments):
        """`arguments` are the broker's, beside its addresses."""
        self.disk = disk
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.kernel, modules, busybox = kernel_and_busybox()
        arguments = " ".join(["--advertised", self.address, *arguments])
        self.initramfs = make_initramfs(dir, modules, busybox, binary or find_binary(), arguments)
        self.console = os.path.join(dir, "console")
        self.process, self.ready_seconds = None, 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def power_on(self):
        self.disk.serve()
        command = [
            QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1024",
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
            "-kernel", self.kernel, "-initrd", self.initramfs,
            "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
            "-drive", f"file=nbd:unix:{self.disk.path},format=raw,if=none,id=disk,cache=writeback",
            "-device", "virtio-blk-pci,drive=disk,physical_block_size=4096",
            "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:9092",
            "-device", "virtio-net-pci,netdev=net,romfile="]
        with open(self.console, "wb") as console:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console,
                                            stderr=subprocess.STDOUT)

    def said(self):
        with open(self.console, errors="replace") as console:
            return console.read()

    def wait(self, line):
        """Waits until the console shows a line; fails when the guest ends or takes too long."""
        deadline = time.monotonic() + READY_WITHIN
        while not re.search(rf"^{line}.*\n", self.said(), re.MULTILINE):
            if self.process.poll() is not None or time.monotonic() > deadline \
                    or "powercut: the broker ended" in self.said():
                raise AssertionError(f"no '{line}' from the guest:\n{self.said()[-3000:]}")
            time.sleep(0.05)

    def boot(self):
        """Until the broker is ready; keeps how long the broker itself took (in a slow guest)."""
        self.power_on()
        self.wait("powercut: mounted")
        begun = time.monotonic()
        self.wait("ready kafka=")
        self.ready_seconds = time.monotonic() - begun

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def is_running(self):
        return self.process.poll() is None and "powercut: the broker ended" not in self.said()


def kernel_and_busybox():
    """Paths of a kernel, the folder of its modules and busybox; Debian's packages, unpacked."""
    if not shutil.which(QEMU):
        install(["apt-get", "install", "-y", "--no-install-recommends", "qemu-system-x86"])
    for tool in ("apt-get", "dpkg-deb", "cpio", "ldd"):
        if not shutil.which(tool):
            raise NotRun(f"no {tool}")
    if not (GUEST / "done").exists():
        shutil.rmtree(GUEST, ignore_errors=True)
        GUEST.mkdir(parents=True)
        said = run(["apt-cache", "depends", "linux-image-cloud-amd64"])
        kernel = re.search(r"Depends: (linux-image-\S+)", said)
        if not kernel:
            raise NotRun("apt knows no linux-image-cloud-amd64")
        try:
            run(["apt-get", "download", "-q", kernel[1], "busybox-static"], cwd=GUEST, seconds=300)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            raise NotRun(f"no kernel or busybox: {error}"[:300]) from error
        for package in GUEST.glob("*.deb"):
            run(["dpkg-deb", "-x", str(package), str(GUEST)])
        (GUEST / "done").touch()
    kernels = list((GUEST / "boot").glob("vmlinuz-*"))
    busybox = [path for path in (GUEST / "bin/busybox", GUEST / "usr/bin/busybox") if path.exists()]
    if not kernels or not busybox:
        raise NotRun(f"no kernel or busybox in the packages below {GUEST}")
    return str(kernels[0]), next(GUEST.glob("**/lib/modules/*")), busybox[0]


def load_order(modules, names):
    """The modules' files with what they depend on, each behind its own dependencies."""
    files = {path.name.split(".ko")[0].replace("-", "_"): path for path in modules.rglob("*.ko*")}
    order = {}

    def visit(name):
        if name in order or name not in files:
            return  # Built into the kernel, or here already.
        data = files[name].read_bytes()
        if files[name].suffix == ".xz":
            import lzma
            data = lzma.decompress(data)
        found = re.search(rb"\0depends=([^\0]*)\0", data)
        for needed in found[1].decode().split(",") if found else []:
            visit(needed.replace("-", "_"))
        order[name] = data

    for name in names:
        visit(name)
    return order


def make_initramfs(dir, modules, busybox, binary, arguments):
    root = pathlib.Path(dir, "root")
    for name in ("bin", "dev", "proc", "sys", "data", "modules"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    shutil.copy(binary, root / "basalt")
    if shutil.which("strip"):
        run(["strip", str(root / "basalt")])
    for library in re.findall(r"(/\S+) \(0x", run(["ldd", binary])):
        target = root / library[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    order = load_order(modules, MODULES)
    for name, data in order.items():
        (root / "modules" / f"{name}.ko").write_bytes(data)
    (root / "init").write_text(INIT.format(modules=" ".join(order), arguments=arguments))
    (root / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    path = os.path.join(dir, "initramfs")
    with open(path, "wb") as out:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=root, check=True,
                       input=names.encode(), stdout=out)
    return path
