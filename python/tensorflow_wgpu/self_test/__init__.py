"""`python -m tensorflow_wgpu --self-test`: a case of every family of kernels on this machine's
adapter, compared with TensorFlow's CPU.

`_cases` is the table, `_values` makes the arguments, `_run` compares, `_report` prints.
"""
