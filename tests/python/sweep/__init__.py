"""A case for every op that the plug-in registers; `tests/python/test_sweep.py` runs them.

There is a module of this package for each kernel family. Modules are found by name: adding a file
is enough. `core` defines a case.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
