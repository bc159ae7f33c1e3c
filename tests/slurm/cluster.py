"""A Slurm of one's own on this machine, for as long as a `with` lasts: one node, two pretended GPUs.

Real munged, slurmctld and slurmd of Debian's packages, in a scratch folder with a key and ports of
their own. Only /etc/slurm must be the real place, as the executor's job steps look nowhere else: what
is there is put aside and comes back. The daemons are children that the kernel ends with this process.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

ETC, ASIDE = Path("/etc/slurm"), Path("/etc/slurm.aside-for-make-test-slurm")
PACKAGES = ("slurm-wlm", "munge")
DAEMONS = ("slurmctld", "slurmd")
GPUS = 2


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def running(name: str) -> bool:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            alive = (process / "cmdline").read_bytes()  # a zombie has none
            if alive and (process / "comm").read_text().strip() == name:
                return True
        except OSError:
            continue
    return False


def install() -> None:
    if all(shutil.which(name) for name in (*DAEMONS, "munged", "sbatch")):
        return
    if not shutil.which("apt-get"):
        sys.exit(f"expected the packages {' and '.join(PACKAGES)}, found no apt-get; install them.")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        done = subprocess.run(["apt-get", "-qq", *words], env=environment, stdout=subprocess.DEVNULL)
        if done.returncode != 0 and words[0] == "install":
            sys.exit("expected Debian's Slurm packages, found that apt-get failed; see above.")


def settings(folder: Path) -> dict[str, str]:
    host = socket.gethostname().partition(".")[0]
    controller, node = free_ports(2)
    slurm = f"""
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# cred_expire is also how long a requeued job waits before it starts again.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
KillWait=5
MinJobAge=86400
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,defer
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs={max(2, os.cpu_count() or 2)} RealMemory=64000 Gres=gpu:{GPUS}
PartitionName=cpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes={host} MaxTime=INFINITE State=UP
"""
    gres = f"NodeName={host} Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n"
    return {"slurm.conf": slurm, "gres.conf": gres}


def restore() -> None:
    """As it was, also after a run that was killed before it could do so."""
    if (ETC / "made-by-make-test-slurm").exists():
        shutil.rmtree(ETC)
    if ASIDE.exists():
        ASIDE.rename(ETC)


def output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: list[subprocess.Popen] = []

    def __enter__(self) -> Cluster:
        if os.geteuid() != 0:
            sys.exit("expected root, which Slurm's daemons need, found another user; use sudo.")
        found = [name for name in DAEMONS if running(name)]
        if found:
            sys.exit(f"expected no Slurm on this machine, found {found[0]}; use one without.")
        install()
        restore()
        try:
            self._configure()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _configure(self) -> None:
        if ETC.exists():
            ETC.rename(ASIDE)
        ETC.mkdir()
        (ETC / "made-by-make-test-slurm").touch()
        self.folder.chmod(0o755)
        for name in ("state", "spool", "munge"):
            (self.folder / name).mkdir()
        for name, text in settings(self.folder).items():
            (ETC / name).write_text(text)
        for number in range(GPUS):  # as good as /dev/null: nothing opens them
            subprocess.run(["mknod", str(self.folder / f"gpu{number}"), "c", "1", "3"], check=True)
        key = self.folder / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        shutil.chown(key.parent, "munge", "munge")
        shutil.chown(key, "munge", "munge")

    def _start(self) -> None:
        own = self.folder / "munge"
        files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
        options = [f"--{option}={own / name}" for option, name in files.items()]
        munge = ["--reuid=munge", "--regid=munge", "--clear-groups"]
        self._daemon(*munge, "munged", "-F", f"--seed-file={own / 'seed'}", *options)
        self._wait("munged", (own / "socket").exists)
        for name in DAEMONS:
            self._daemon(name, "-D")
        self._wait("an idle node", lambda: "idle" in output("sinfo", "-h", "-o", "%T").split())

    def _daemon(self, *words: str) -> None:
        log = (self.folder / f"daemon{len(self.daemons)}.log").open("w")
        command = ["setpriv", "--pdeathsig", "TERM", *words]
        self.daemons.append(  # in a session of its own: Ctrl-C is for us, who end it in good order
            subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        )

    def _wait(self, what: str, there, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while True:
            ended = [daemon.args for daemon in self.daemons if daemon.poll() is not None]
            try:
                if not ended and there():
                    return
            except subprocess.CalledProcessError:
                pass  # slurmctld does not answer yet
            if ended or time.monotonic() > deadline:
                logs = "\n".join(p.read_text() for p in sorted(self.folder.glob("daemon*.log")))
                sys.exit(f"{logs}\nexpected {what} within {seconds:g} s, found none; see above.")
            time.sleep(0.1)

    def jobs(self) -> list[dict[str, str]]:
        """All there ever were, as `scontrol show job` describes them."""
        lines = output("scontrol", "show", "job", "--oneliner").splitlines()
        words = [[word.partition("=") for word in line.split()] for line in lines]
        return [{key: value for key, _, value in line} for line in words if len(line) > 5]

    def __exit__(self, *problem: object) -> None:
        try:
            if len(self.daemons) == 1 + len(DAEMONS):
                subprocess.run(["scancel", "--user", "root"], capture_output=True, timeout=30)
                deadline = time.monotonic() + 20
                while running("slurmstepd") and time.monotonic() < deadline:
                    time.sleep(0.1)
            for daemon in reversed(self.daemons):
                daemon.terminate()
                daemon.wait(30)
        finally:
            for daemon in self.daemons:
                daemon.kill()
            restore()
