"""Run a command where cargo can be found: the one that is installed, else one that PyPI's `puccinialin` brings.

    python engine/with_rust.py python setup.py build_ext --inplace

Without any Rust the command runs all the same: the engine is optional, and a printed line says that it is missing.
JETLAKE_NO_ENGINE=1 looks for nothing.
"""

import os
import re
import shutil
import subprocess
import sys

RUST_MIN = (1, 85)


def cargo_version() -> tuple[int, ...]:
    """Of the cargo that is installed; (0,) when there is none."""
    if shutil.which("cargo") is None:
        return (0,)
    ran = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.(\d+)", ran.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def environment() -> dict[str, str]:
    """What cargo needs, besides what is set already."""
    if os.environ.get("JETLAKE_NO_ENGINE") == "1" or cargo_version() >= RUST_MIN:
        return {}
    print("The consensus engine needs Rust: getting it (puccinialin)", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "puccinialin"], check=True)
        from puccinialin import setup_rust

        return dict(setup_rust())
    except Exception as error:  # whatever it is, everything but the cluster works without
        print(f"No Rust, so no cluster; everything else works: {error}", file=sys.stderr)
        return {}


if __name__ == "__main__":
    found = environment()
    sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **found}, check=False).returncode)
