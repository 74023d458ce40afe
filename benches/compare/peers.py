"""The proxies that are compared."""

import shutil
import subprocess
from dataclasses import dataclass
from typing import Callable

import peer_haproxy
import peer_nginx
import peer_tidegate


@dataclass(frozen=True)
class Peer:
    """A proxy: its command for a scenario, and how to learn whether it is there."""

    command: Callable
    program: str
    version: list
    packages: tuple = ()
    files: tuple = ()

    @property
    def is_installed(self):
        return shutil.which(self.program) is not None and all(path.exists() for path in self.files)


PEERS = {
    "tidegate": Peer(peer_tidegate.command, "sh", []),
    "nginx": Peer(peer_nginx.command, "nginx", ["nginx", "-v"], ("nginx",)),
    "nginx-bare": Peer(peer_nginx.bare_command, "nginx", [], ("nginx",)),
    "haproxy": Peer(peer_haproxy.command, "haproxy", ["haproxy", "-v"], ("haproxy",)),
    "relay": Peer(peer_tidegate.relay_command, "cc", []),
    "nginx-lua": Peer(
        peer_nginx.command_with_lua,
        "nginx",
        [],
        ("nginx", *peer_nginx.LUA_PACKAGES),
        (*peer_nginx.LUA_MODULES, peer_nginx.LUA_LIBRARY),
    ),
}


def version(command):
    """The first line of what a program says of its version, without the date."""
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines()[0].removeprefix("nginx version: ").split(" 20")[0]
