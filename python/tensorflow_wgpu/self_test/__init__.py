"""`python -m tensorflow_wgpu --self-test`: a case of every family of kernels on this machine's
adapter, against TensorFlow's CPU.

`_cases` is the table, `_values` makes their arguments, `_run` compares, `_report` tells.
"""
