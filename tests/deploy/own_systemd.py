"""A systemd of one's own: process 1 of fresh namespaces, with the units of one folder and no others. It needs root.

The network is this machine's. Users of a unit (DynamicUser=) may not be able to read this checkout and its Python, so
both are mounted below /run/try; what else the unit says is done as on a host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

from sidecar.drill.processes import wait_until

INIT = "/usr/lib/systemd/systemd"
SEEN = Path("/run/try")
PYTHON = SEEN / "python" / "bin" / f"python{sysconfig.get_python_version()}"
TARGET = "try.target"
# systemd wants a cgroup of its own; it is process 1 of it, too.
OUTER = """set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/c && mount -t cgroup2 none /mnt/c
mkdir -p /mnt/c/$2 && echo $$ > /mnt/c/$2/cgroup.procs
umount /mnt/c && umount /mnt
exec unshare --cgroup --pid --fork --kill-child --mount --uts --ipc --mount-proc sh -c "$1" sh "$3" "$4" "$5" "$6"
"""
INNER = """set -e
umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/try/units /run/try/python /run/try/venv /run/try/root
mount --bind "$1" /run/try/units && mount --bind "$2" /run/try/python
mount --bind "$3" /run/try/venv && mount --bind "$4" /run/try/root
exec env -i PATH="$PATH" container=other SYSTEMD_UNIT_PATH=/run/try/units INIT --system --unit=TARGET \
  --log-target=console --show-status=0
""".replace("INIT", INIT).replace("TARGET", TARGET)
REMOVE = """mount -t tmpfs none /mnt && mkdir /mnt/c && mount -t cgroup2 none /mnt/c && cd /mnt/c
find "$1" -depth -type d -exec rmdir {} +"""
NEEDED = "sysinit.target", "basic.target", "sockets.target", "shutdown.target", "network-online.target", TARGET
"""Units that are pulled in by default; here they are empty."""


class SystemdError(Exception):
    """systemd does not start here; the text has its output."""


class OwnSystemd:
    def __init__(self, units: Path, root: Path) -> None:
        """The units are those of the folder; nothing of this machine's is seen."""
        for name in NEEDED:
            text = "[Unit]\n" if name != "shutdown.target" else "[Unit]\nDefaultDependencies=no\n"
            (units / name).write_text(text)
        self._said = units.parent / "systemd.log"
        self._cgroup = f"own-systemd-{os.getpid()}"
        places = (str(units), sys.base_prefix, sys.prefix, str(root))
        words = [OUTER, "sh", INNER, self._cgroup, *places]
        with self._said.open("w") as said:
            self._process = subprocess.Popen(["unshare", "--mount", "sh", "-c", *words], stdout=said, stderr=said)

    def __enter__(self) -> OwnSystemd:
        try:
            wait_until("a systemd in namespaces", self._is_up, 30)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise SystemdError(f"no systemd in namespaces: {self._said.read_text()}")
        return self.systemctl("is-active", TARGET).stdout.strip() == "active"

    def systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        command = ["nsenter", "-t", *children[:1], "-m", "-p", "-u", "-i", "-C", "systemctl", "--no-pager", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def show(self, unit: str, name: str) -> str:
        return self.systemctl("show", "--value", f"--property={name}", unit).stdout.strip()

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGKILL)  # and with it process 1, and all others with that
        self._process.wait()
        wait_until("the end of what that systemd ran", self._is_gone, 10)

    def _is_gone(self) -> bool:
        command = ["unshare", "--mount", "sh", "-c", REMOVE, "sh", self._cgroup]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def missing() -> list[str]:
    """Returns the tools and rights that this needs and does not find."""
    tools = [name for name in ("unshare", "nsenter", "mount", "systemctl", INIT) if shutil.which(name) is None]
    return tools + (["root"] if os.geteuid() != 0 else [])
