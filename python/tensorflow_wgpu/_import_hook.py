"""Runs a function right after a module was imported, in whatever way and however often.

This module knows nothing of TensorFlow. The function gets the module and changes it; a function
that fails leaves the module and its classes as they were.
"""

from __future__ import annotations

import importlib.abc
import logging
import sys
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger("tensorflow_wgpu")

Patch = Callable[[types.ModuleType], None]

#: Attributes that Python itself changes in a class, or does not let others change.
OF_PYTHON = ("__dict__", "__weakref__")


class PostImport(importlib.abc.MetaPathFinder):
    """Applies `patches`, a table keyed by names of modules. `advice` ends the warning about a
    module that is not as its patch expects.
    """

    def __init__(self, patches: Mapping[str, Patch], advice: str = "") -> None:
        self.patches = patches
        self.advice = advice
        #: Modules that may have been imported, or begun, before this finder was there.
        self.unseen = set(patches)
        self._finding = threading.local()
        self.patch_imported()

    def patch_imported(self) -> None:
        """Patches modules whose import began before this finder was there, once it is finished."""
        for name in list(self.unseen):
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is not None and not getattr(spec, "_initializing", False):
                self.patch(name, module)

    def patch(self, name: str, module: types.ModuleType) -> None:
        """Patches a module that was just executed. If its version is unknown, the patch does not
        fail.
        """
        self.unseen.discard(name)
        before = _Snapshot(module)
        try:
            self.patches[name](module)
        except Exception as e:
            before.restore()
            log.warning(
                "%s is not as tensorflow-wgpu expects (%s: %s) and stays as it is; %s",
                name,
                type(e).__name__,
                e,
                self.advice,
            )

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Lets the finders behind this one find the module, and puts a loader in front of the
        module's own.
        """
        if self.unseen:
            self.patch_imported()
        # A reload has a target.
        if fullname not in self.patches or (target is None and fullname in sys.modules):
            return None
        finding = vars(self._finding).setdefault("names", set())
        if fullname in finding:
            # A finder behind this one asks all finders, as this one does.
            return None
        finding.add(fullname)
        try:
            spec = _ask(_behind(self), fullname, path, target)
        finally:
            finding.discard(fullname)
        if hasattr(getattr(spec, "loader", None), "exec_module"):
            try:
                spec.loader = _PatchingLoader(spec.loader, fullname, self)
            except (AttributeError, TypeError) as e:
                log.warning(
                    "the loader of %s cannot be hooked into (%s); %s", fullname, e, self.advice
                )
        return spec


def _behind(finder: PostImport) -> list[Any]:
    """The finders that Python would ask after this one."""
    finders = list(sys.meta_path)
    # Another finder may hold this one without it being in the list.
    return finders[finders.index(finder) + 1 :] if finder in finders else finders


def _ask(finders: list[Any], fullname: str, path: Any, target: Any) -> Any:
    for finder in finders:
        find_spec = getattr(finder, "find_spec", None)
        spec = find_spec(fullname, path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


class _PatchingLoader(importlib.abc.Loader):
    """A module's own loader, followed by the patch. It removes itself before the module runs, so
    that no code finds it in a module.
    """

    def __init__(self, loader: Any, name: str, finder: PostImport) -> None:
        self._loader = loader
        self._name = name
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        """The module that its own loader makes."""
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module: types.ModuleType) -> None:
        """Runs the module, then its patch."""
        for holder, name in ((module, "__loader__"), (module.__spec__, "loader")):
            if getattr(holder, name, None) is self:
                setattr(holder, name, self._loader)
        self._loader.exec_module(module)
        # A module may replace itself in `sys.modules`.
        self._finder.patch(self._name, sys.modules.get(self._name, module))


class _Snapshot:
    """The attributes of a module and of the classes in it."""

    def __init__(self, module: types.ModuleType) -> None:
        classes = {id(c): c for c in vars(module).values() if isinstance(c, type)}
        self._before = [(holder, dict(vars(holder))) for holder in (module, *classes.values())]

    def restore(self) -> None:
        """Undoes all changes since."""
        for holder, before in self._before:
            now = dict(vars(holder))
            for name in now.keys() - before.keys():
                delattr(holder, name)
            for name, value in before.items():
                if name not in OF_PYTHON and now.get(name, self) is not value:
                    setattr(holder, name, value)
