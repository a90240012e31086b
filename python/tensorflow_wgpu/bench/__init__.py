"""Benchmarks through TensorFlow: `python -m tensorflow_wgpu.bench`.

`workloads` makes models and steps, `measure` times them on several devices in turn, `report` writes
the results. Importing this package imports no TensorFlow.
"""
