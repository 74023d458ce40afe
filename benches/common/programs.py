"""Programs that the measurements start: which are missing, how they are built, and how they are run."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HOST = "127.0.0.1"
# Debian installs servers in directories that are not in the PATH of most users.
SERVER_DIRECTORIES = ("/usr/sbin", "/sbin")
# The Debian packages of tools.
PACKAGES = {
    "callgrind_control": "valgrind",
    "cc": "build-essential",
    "h2load": "nghttp2-client",
    "nginx": "nginx",
    "openssl": "openssl",
    "redis-server": "redis-server",
    "valgrind": "valgrind",
}


def fail(message):
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


def enter_repository():
    """Makes relative paths those of the repository, and finds servers."""
    os.environ["PATH"] += "".join(os.pathsep + directory for directory in SERVER_DIRECTORIES)
    os.chdir(Path(__file__).resolve().parent.parent.parent)


def require(tools):
    """Ends with what to install, unless these tools are there."""
    if packages := sorted({PACKAGES[tool] for tool in tools if tool in PACKAGES and not shutil.which(tool)}):
        fail(f"please install {' '.join(packages)} (on Debian: apt-get install {' '.join(packages)})")
    if others := sorted(tool for tool in tools if tool not in PACKAGES and not shutil.which(tool)):
        fail(f"please install {' '.join(others)} (scripts/setup {' '.join(others)})")


def binary(given, profile):
    """The binary to measure; it is built unless one is given."""
    if given:
        if not os.access(given, os.X_OK):
            fail(f"there is no program {given}")
        return Path(given).resolve()
    subprocess.run(["cargo", "build", "--locked", "--profile", profile], check=True)
    metadata = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    found = json.loads(subprocess.run(metadata, check=True, capture_output=True).stdout)
    return Path(found["target_directory"]) / profile / "tidegate"


def compiled(name, directory):
    """A program in C of this directory."""
    source, program = Path(__file__).resolve().parent / f"{name}.c", Path(directory) / name
    subprocess.run(["cc", "-O2", "-o", str(program), str(source), "-lm"], check=True)
    return program


def wait_for_port(port, process, log=None):
    for _ in range(1500):
        if process.poll() is not None:
            said = Path(log).read_text(errors="replace") if log else ""
            fail(f"the process for port {port} has ended with {process.returncode} {said}")
        try:
            socket.create_connection((HOST, port)).close()
            return
        except OSError:
            time.sleep(0.02)
    fail(f"nothing listens on port {port}")


def mortal(command):
    """The same command; the kernel kills its process when this one ends."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


def stop(process):
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def pinned(command, port, cores, log):
    """A process on these cores, which listens on a port and writes to the file `log`, until the end of the block."""
    pin = lambda: os.sched_setaffinity(0, cores)  # noqa: E731
    with log.open("w") as out:
        process = subprocess.Popen(mortal(command), stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=pin)
        try:
            wait_for_port(port, process, log)
            yield process
        finally:
            # One that is frozen would not end.
            process.send_signal(signal.SIGCONT)
            stop(process)


@contextlib.contextmanager
def running(command, port, log=subprocess.DEVNULL):
    """A process that listens on a port, until the end of the block."""
    process = subprocess.Popen(mortal(command), stdout=subprocess.DEVNULL, stderr=log)
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def write_certificate(directory):
    """Writes tls.pem and tls.key, for an ECDSA key, and both.pem with both, for HAProxy."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "tls.key"]
    subject = ["-subj", "/CN=bench.example", "-addext", "subjectAltName=DNS:bench.example", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, *subject, "-out", "tls.pem"]
    subprocess.run(command, cwd=directory, check=True, stderr=subprocess.DEVNULL)
    parts = [(Path(directory) / name).read_text() for name in ("tls.pem", "tls.key")]
    (Path(directory) / "both.pem").write_text("".join(parts))


def write_lines(path, tables):
    """Writes measurements as JSON, with a line for each entry of each table, and numbers rounded to five digits."""
    parts = []
    for name, table in tables.items():
        rows = (f"  {json.dumps(key)}: {json.dumps(rounded(value))}" for key, value in table.items())
        parts.append(f" {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n }")
    Path(path).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(it) for key, it in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(it) for it in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
