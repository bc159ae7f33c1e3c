"""Puts the pretend device of pretend.cpp under torch: `torch.cuda`, as far as it is asked for here.

`import torch` loads the library first, in every process that has PRETEND_CUDA in its environment and
this folder in PYTHONPATH (sitecustomize.py). Processes that import no torch do not notice.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
LIBRARY = "PRETEND_CUDA"
NAME = "Pretend A100"


def _torch() -> Path:
    """Its folder; nothing is imported."""
    return Path(importlib.util.find_spec("torch").origin).parent


def lacking() -> str:
    """Why the device cannot be here, if it cannot."""
    if shutil.which("g++") is None:
        return "it is compiled with g++, and there is none: apt install g++"
    if runpy.run_path(str(_torch() / "version.py"))["cuda"]:
        return "it takes the place of CUDA, which this torch has: make test-device TORCH=cpu"
    return ""


def build() -> Path:
    """The library, compiled for this torch unless it is there."""
    torch = _torch()
    source = HERE / "pretend.cpp"
    of = source.read_bytes() + str(torch).encode() + (torch / "version.py").read_bytes()
    library = HERE / "build" / f"pretend-{hashlib.sha256(of).hexdigest()[:12]}.so"
    if not library.exists():
        print("building the pretend device: a minute", flush=True)
        library.parent.mkdir(exist_ok=True)
        aside = library.with_suffix(f".{os.getpid()}")
        include = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        linked = [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-Wl,--no-as-needed"]
        linked += ["-ltorch", "-ltorch_cpu", "-lc10"]
        compiler = ["g++", "-O1", "-std=c++20", "-shared", "-fPIC", "-w"]
        subprocess.run([*compiler, *include, str(source), "-o", str(aside), *linked], check=True)
        aside.replace(library)
    return library


class BeforeTorch:
    """Of sys.meta_path: the hooks of the library must be there when torch is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        ctypes.CDLL(os.environ[LIBRARY], ctypes.RTLD_GLOBAL)
        spec = importlib.util.find_spec("torch")
        execute = spec.loader.exec_module

        def execute_and_install(module: Any) -> None:
            execute(module)
            install(module)

        spec.loader.exec_module = execute_and_install
        return spec


def install(torch: Any) -> None:
    """Replace what torch.cuda would ask of CUDA."""
    cuda, used_in = torch.cuda, None

    def use(*_: Any, **__: Any) -> None:
        nonlocal used_in
        if cuda._is_in_bad_fork():
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess (pretend)")
        used_in = os.getpid()

    class Context:
        """A device or stream, also as a context manager."""

        device, stream_id, cuda_stream = torch.device("cuda", 0), 0, 0

        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> None:
            use()

        def __exit__(self, *_: object) -> None:
            pass

        wait_stream = synchronize = use

    about = {"name": NAME, "major": 8, "minor": 0, "total_memory": 80 * 2**30}
    threads = {"multi_processor_count": 108, "warp_size": 32, "max_threads_per_multi_processor": 2048}
    properties = SimpleNamespace(**about, **threads, regs_per_multiprocessor=65536, gcnArchName="")
    generator = torch.Generator("cuda")

    def numbered(*_: Any) -> int:
        use()
        return 0

    def seed_all(seed: int) -> None:
        if not cuda._is_in_bad_fork():
            generator.manual_seed(int(seed))

    # A function of its own for each name: torch.compile keeps a table of them.
    for name in ("_lazy_init", "init", "synchronize", "set_device", "empty_cache"):
        setattr(cuda, name, lambda *_, **__: use())
    for name in ("getDevice", "setDevice", "exchangeDevice", "maybeExchangeDevice"):
        setattr(torch._C, f"_cuda_{name}", lambda *_: 0)
    torch._C._cuda_getDeviceCount = lambda: 1
    torch._C._cuda_getCurrentRawStream = lambda index: 0
    cuda._lazy_call = lambda call, **_: call()
    cuda._is_in_bad_fork = lambda: used_in not in (None, os.getpid())
    cuda.is_initialized = lambda: used_in == os.getpid()
    cuda.is_available, cuda._is_compiled = lambda: True, lambda: True
    cuda.is_bf16_supported = lambda *_, **__: True
    cuda.is_current_stream_capturing = lambda: False
    cuda.device_count, cuda.current_device = lambda: 1, numbered
    cuda.device = Context
    cuda.stream, cuda.current_stream = lambda *_: Context(), lambda *_: Context()
    cuda.get_device_name = lambda *_: properties.name
    cuda.get_device_properties = lambda *_: properties
    cuda.get_device_capability = lambda *_: (properties.major, properties.minor)
    cuda.memory_allocated = lambda *_: torch.ops.pretend.counts()[3]
    cuda.max_memory_allocated = lambda *_: torch.ops.pretend.counts()[4]
    cuda.mem_get_info = lambda *_: (properties.total_memory,) * 2
    cuda.reset_peak_memory_stats = lambda *_: torch.ops.pretend.reset()
    cuda.default_generators = (generator,)
    cuda.get_rng_state = lambda *_: generator.get_state()
    cuda.set_rng_state = lambda state, *_: generator.set_state(state)
    cuda.manual_seed = lambda seed: seed_all(seed)
    cuda.manual_seed_all = cuda.random.manual_seed_all = lambda seed: seed_all(seed)
    used_in = None  # making a generator was no use
    _place_storages(torch)


def _place_storages(torch: Any) -> None:
    """torch's own constructor of storages was compiled without CUDA."""
    kind = torch.UntypedStorage
    plain = {name: getattr(kind, name) for name in ("clone", "cpu", "to")}

    def copied(source: Any, device: Any) -> Any:
        made = torch.empty(source.nbytes(), dtype=torch.uint8, device=device)
        made.copy_(torch.empty(0, dtype=torch.uint8, device=source.device).set_(source))
        return made.untyped_storage()

    def on_gpu(*devices: Any) -> bool:
        return "cuda" in {torch.device(device).type for device in devices}

    def to(self: Any, *, device: Any, non_blocking: bool = False) -> Any:
        moves = on_gpu(self.device, device)
        return copied(self, device) if moves else plain["to"](self, device=device)

    kind.clone = lambda self: copied(self, "cuda") if on_gpu(self.device) else plain["clone"](self)
    kind.cpu = lambda self: copied(self, "cpu") if on_gpu(self.device) else plain["cpu"](self)
    kind.to = to
    kind.is_cuda = property(lambda self: on_gpu(self.device))
