"""Runs the targets and prints what came of it.

    python -m tests.fuzz.run [--inputs 100000] [--seed 1] [--only requests,layouts] [--guided] [--asan]

Without `--guided` the inputs are changed at random, and the same seed gives the same inputs. With it atheris (the extra
`fuzz`) is led by the coverage of the Python code. `--asan` compiles the C extensions with gcc's AddressSanitizer and
UndefinedBehaviorSanitizer, and runs on them: `make sanitize`. An input that raises, takes longer than `--slow-ms` or
lets the memory grow is printed in hexadecimal, and the exit code is 1; `--replay HEX --only TARGET` runs it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

NATIVE = "SIDECAR_FUZZ_NATIVE"
"""Folder of the extensions that were compiled with the sanitizer."""
NATIVES = ("_columns", "_groups", "_kernel", "_wire")
GROWS_MIB = 300
FINDINGS_MAX = 5


class Slow(BaseException):
    """An input took too long. The tested code does not catch this."""


@dataclass
class Result:
    inputs: int = 0
    seconds: float = 0.0
    slowest_ms: float = 0.0
    grown_mib: float = 0.0
    stopped: bool = False
    """By Ctrl-C; what was done until then counts."""
    findings: list[tuple[bytes, str]] = field(default_factory=list)


def load_native(folder: str) -> None:
    """Put the extensions of this folder in the place of the installed ones."""
    import sidecar

    for name in NATIVES:
        full = f"sidecar.native.{name}"
        spec = importlib.util.spec_from_file_location(full, next(Path(folder).glob(f"{name}.*")))
        assert spec is not None and spec.loader is not None, sidecar
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[full] = module


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises Slow in whatever computes for longer. Time in which the machine does something else does not count."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Slow

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fuzz(name: str, inputs: int, seed: int, slow_ms: float) -> Result:
    """Run one target on so many inputs, its seeds first."""
    from tests.fuzz.mutate import Mutator
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    seeds = target.seeds()
    mutator = Mutator(seed, seeds)
    result = Result()
    target.run(seeds[0])  # what is loaded or filled once is nobody's growth
    before, start = peak_mib(), time.perf_counter()
    for n in range(inputs):
        data = seeds[n] if n < len(seeds) else mutator.next()
        began = time.perf_counter()
        try:
            with within(10 * slow_ms / 1000):
                target.run(data)
        except KeyboardInterrupt:
            result.stopped = True
            break
        except Slow:
            result.findings.append((data, f"hangs: more than {10 * slow_ms:.0f} ms"))
        except Exception as exc:  # noqa: BLE001 - whatever it is, it is a finding
            where = traceback.extract_tb(exc.__traceback__)[-1]
            result.findings.append((data, f"{exc!r} at {where.filename}:{where.lineno}"))
        result.slowest_ms = max(result.slowest_ms, (time.perf_counter() - began) * 1000)
        result.inputs = n + 1
        if len(result.findings) >= FINDINGS_MAX:
            break
    result.seconds = time.perf_counter() - start
    result.grown_mib = peak_mib() - before
    if result.grown_mib > GROWS_MIB:
        result.findings.append((b"", f"memory grew by {result.grown_mib:.0f} MiB"))
    return result


def replay(name: str, data: bytes) -> None:
    from tests.fuzz.targets import TARGETS

    TARGETS[name].run(data)


def guided(name: str, inputs: int, seed: int, slow_ms: float) -> None:
    """Never returns: libFuzzer ends the process, with another code than 0 if it found something."""
    import atheris  # type: ignore[import-not-found, import-untyped, unused-ignore]

    with atheris.instrument_imports(include=["sidecar"]):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    corpus = Path(tempfile.mkdtemp(prefix="sidecar-corpus-"))
    for n, data in enumerate(target.seeds()):
        (corpus / f"seed-{n}").write_bytes(data)
    options = [f"-runs={inputs}", f"-seed={seed}", "-max_len=8192", "-rss_limit_mb=4096", "-print_final_stats=1"]
    options += [f"-timeout={max(1, round(10 * slow_ms / 1000))}", f"-artifact_prefix={corpus}/", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target.run)
    atheris.Fuzz()


def with_sanitizer(argv: list[str]) -> int:
    """Compile the extensions for it, and run this command again on them."""
    import sidecar

    source = Path(sidecar.__file__).parent / "native"
    include = sysconfig.get_paths()["include"]
    found = [
        subprocess.check_output(["gcc", f"-print-file-name=lib{n}.so"], text=True).strip() for n in ("asan", "ubsan")
    ]
    with tempfile.TemporaryDirectory(prefix="sidecar-asan-") as folder:
        for name in NATIVES:
            out = f"{folder}/{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
            flags = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-shared", "-fPIC"]
            subprocess.run(["gcc", *flags, f"-I{include}", str(source / f"{name}.c"), "-o", out], check=True)
        env = {**os.environ, "LD_PRELOAD": ":".join(found), NATIVE: folder, "PYTHONMALLOC": "malloc"}
        env["ASAN_OPTIONS"] = "detect_leaks=0:quarantine_size_mb=16"  # the interpreter's own, at its end
        return subprocess.run([sys.executable, "-m", "tests.fuzz.run", *argv], env=env, check=False).returncode


def report(name: str, r: Result) -> bool:
    rate = r.inputs / r.seconds if r.seconds else 0
    print(
        f"{name:15} {r.inputs:10,} inputs {r.seconds:8.1f} s {rate:9,.0f}/s  slowest {r.slowest_ms:7.1f} ms"
        f"  memory +{r.grown_mib:4.0f} MiB  findings {len(r.findings)}",
        flush=True,
    )
    for data, what in r.findings:
        print(f"  {what}\n  --only {name!r} --replay {data.hex()}", flush=True)
    return not r.findings


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--inputs", type=int, default=100_000, help="of all targets together, by their shares")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--only", default="")
    ap.add_argument("--slow-ms", type=float, default=500.0)
    ap.add_argument("--replay", default=None)
    ap.add_argument("--guided", action="store_true")
    ap.add_argument("--guided-one", default="", help=argparse.SUPPRESS)
    ap.add_argument("--asan", action="store_true")
    a = ap.parse_args()
    if a.asan:
        return with_sanitizer([arg for arg in sys.argv[1:] if arg != "--asan"])
    if a.guided_one:
        guided(a.guided_one, a.inputs, a.seed, a.slow_ms)
    if folder := os.environ.get(NATIVE):
        load_native(folder)
    from tests.fuzz.targets import TARGETS

    names = a.only.split(",") if a.only else list(TARGETS)
    if a.replay is not None:
        replay(names[0], bytes.fromhex(a.replay))
        return 0
    total = sum(TARGETS[n].share for n in names)
    good = True
    for name in names:
        count = round(a.inputs * TARGETS[name].share / total)
        if a.guided:
            command = [sys.executable, "-m", "tests.fuzz.run", "--guided-one", name, "--inputs", str(count)]
            command += ["--seed", str(a.seed), "--slow-ms", str(a.slow_ms)]
            start = time.perf_counter()
            code = subprocess.run(command, check=False).returncode
            print(
                f"{name:15} {count:10,} inputs {time.perf_counter() - start:8.1f} s guided, exit code {code}",
                flush=True,
            )
            good &= code == 0
        else:
            result = fuzz(name, count, a.seed, a.slow_ms)
            good &= report(name, result)
            if result.stopped:
                break
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
