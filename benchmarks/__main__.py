"""python -m benchmarks [--smoke] [name ...]: run all benchmarks, or those named (append, scan, ...)."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from time import perf_counter

from jetlake.store.kernels import COMPILED

NAMES = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure JetLake beside its peers.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"which ones: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--smoke", action="store_true", help="a tiny size, to see that they run; figures mean nothing")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if not (COMPILED or arguments.smoke):
        parser.error("the kernels are not built, or being built: run `make setup` first")
    for name in arguments.names or NAMES:
        start = perf_counter()
        import_module(f"benchmarks.bench_{name}").main(smoke=arguments.smoke)
        print(f"  [{name}: {perf_counter() - start:.1f} s]", flush=True)


if __name__ == "__main__":
    main()
