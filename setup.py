"""The compiled kernels. Optional: without a compiler `sidecar.native.twin` does the same, slower."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"sidecar.native.{name}", [f"sidecar/native/{name}.c"], extra_compile_args=["-O3"], optional=True)
        for name in ("_columns", "_groups", "_kernel", "_wire")
    ]
)
