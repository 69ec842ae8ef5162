"""Build the Cython kernels, every `src/jetlake/**/_*_c.pyx`, and the consensus engine in `engine/`.

Everything else about the package is in pyproject.toml. A kernel is optional: where there is no C compiler the install
goes through without it, and its Python twin does the work. An error in the Cython source itself always fails.
JETLAKE_NO_KERNELS=1 skips them all.

The engine is optional too: where there is no Rust the install goes through, and a server without it takes no part in a
cluster. JETLAKE_NO_ENGINE=1 skips it, and so does JETLAKE_NO_KERNELS=1.
"""

import os
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}


class BuildKernels(build_ext):
    """build_ext, except that a kernel which fails to build leaves no older one behind to be loaded in its place."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            raise

    def copy_extensions_to_source(self) -> None:
        for ext in self.extensions:
            (SOURCE / self.get_ext_filename(ext.name)).unlink(missing_ok=True)
        super().copy_extensions_to_source()


def kernels() -> list[Extension]:
    if os.environ.get("JETLAKE_NO_KERNELS") == "1":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    shared = sorted(str(path) for pattern in ("*.pxd", "*.h") for path in SOURCE.glob(f"jetlake/**/{pattern}"))
    extensions = [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [str(path)],
            include_dirs=[str(SOURCE)],
            depends=shared,
            extra_compile_args=["-O3", "-g0"],  # what a debugger wants would take a third of the build
        )
        for path in sorted(SOURCE.glob("jetlake/**/_*_c.pyx"))
    ]
    built = cythonize(
        extensions,
        include_path=[str(SOURCE)],
        build_dir="build/cython",
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
        quiet=True,
    )
    for ext in built:
        ext.optional = True  # set here because cythonize does not carry it over
    return built


def engine() -> list[Any]:
    if "1" in (os.environ.get("JETLAKE_NO_ENGINE"), os.environ.get("JETLAKE_NO_KERNELS")):
        return []
    try:
        from setuptools_rust import Binding, RustExtension
    except ImportError:
        return []
    if not Path("engine/Cargo.toml").exists():
        return []
    os.environ.setdefault("CARGO_TARGET_DIR", str(Path("build/engine").absolute()))
    return [
        RustExtension(
            "jetlake.cluster._engine",
            "engine/Cargo.toml",
            args=["--locked"],
            binding=Binding.PyO3,
            optional=True,
            debug=False,  # an editable install would make a debug build of 29 MB
        )
    ]


setup(ext_modules=kernels(), rust_extensions=engine(), cmdclass={"build_ext": BuildKernels})
