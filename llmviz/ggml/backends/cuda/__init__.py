"""The CUDA backend, written with CuPy. Import `device` only where a device was asked for.

↔ ggml/src/ggml-cuda/

`library` compiles the kernels in ``sources/``, `device` owns the memory, ``ops_*`` turn nodes into
launches, `capture` records a whole graph for decoding while nobody watches. Importing this package
imports no CuPy.
"""
