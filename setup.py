"""The compiled kernels. Optional: without a compiler `sidecar.kernel.twin` does the same, slower."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "sidecar.kernel._kernel",
            ["sidecar/kernel/_kernel.c"],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]
)
