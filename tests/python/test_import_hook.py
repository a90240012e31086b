"""Patches after imports, together with other hooks and loaders as programs and libraries write
them. No test here needs TensorFlow.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import types

import pytest
from tensorflow_wgpu._import_hook import PostImport


class Loader(importlib.abc.Loader):
    """A loader as importlib documents it."""

    def create_module(self, spec):
        """The usual module."""

    def exec_module(self, module):
        """Leaves a mark."""
        module.executed = True

    def extra(self):
        """An attribute that only this loader has."""
        return "extra"


class SlottedLoader(Loader):
    """A loader to which no attributes can be added."""

    __slots__ = ()

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Finder(importlib.abc.MetaPathFinder):
    """Finds modules whose names begin with wgpu_made_up; all have one loader."""

    def __init__(self, loader):
        self.loader = loader

    def find_spec(self, fullname, path, target=None):
        """A spec of every such name."""
        if not fullname.startswith("wgpu_made_up"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self.loader, is_package=self.loader is None)


class AsksAllOthers(importlib.abc.MetaPathFinder):
    """A hook of the kind that many libraries have: it asks every other finder, and wraps the
    loader.
    """

    def __init__(self, seen):
        self.seen = seen

    def find_spec(self, fullname, path, target=None):
        """The result of another finder, with a wrapped loader."""
        for finder in sys.meta_path:
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec = find_spec(fullname, path, target) if find_spec else None
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module

                def exec_module(module, execute=execute):
                    execute(module)
                    self.seen.append(module.__name__)

                spec.loader = types.SimpleNamespace(
                    create_module=spec.loader.create_module, exec_module=exec_module
                )
                return spec
        return None


class AsksByName(importlib.abc.MetaPathFinder):
    """Another kind: it asks importlib for the spec and skips itself meanwhile."""

    def __init__(self, seen):
        self.seen = seen
        self.names = set()

    def find_spec(self, fullname, path, target=None):
        """The result of importlib."""
        if fullname in self.names or not fullname.startswith("wgpu_made_up"):
            return None
        self.names.add(fullname)
        try:
            self.seen.append(fullname)
            return importlib.util.find_spec(fullname)
        finally:
            self.names.discard(fullname)


@pytest.fixture(autouse=True)
def no_module_stays():
    yield
    for name in [name for name in sys.modules if name.startswith("wgpu_made_up")]:
        del sys.modules[name]


def marking(seen):
    def patch(module):
        assert module.executed
        seen.append(module)
        module.patched = True

    return patch


def install(monkeypatch, *finders):
    monkeypatch.setattr(sys, "meta_path", [*finders])


@pytest.mark.parametrize("loader", [Loader(), SlottedLoader(), None])
def test_any_finder_and_loader(monkeypatch, caplog, loader):
    """Finders without find_spec, loaders without attributes, and namespace packages without any."""
    seen = []
    ours = PostImport({"wgpu_made_up": marking(seen)})
    install(monkeypatch, ours, object(), Finder(loader))
    module = importlib.import_module("wgpu_made_up")
    assert seen == ([] if loader is None else [module])
    assert module.__spec__.loader is not ours
    assert not caplog.text


@pytest.mark.parametrize("other", [AsksAllOthers, AsksByName])
@pytest.mark.parametrize("first", [False, True])
def test_another_hook_before_or_behind(monkeypatch, other, first):
    """Both do their work; there is no endless recursion between them."""
    seen, theirs = [], []
    ours = PostImport({"wgpu_made_up": marking(seen)})
    hooks = [ours, other(theirs)]
    install(monkeypatch, *(reversed(hooks) if first else hooks), Finder(Loader()))
    module = importlib.import_module("wgpu_made_up")
    assert seen == [module]
    assert set(theirs) == {"wgpu_made_up"}
    assert module.patched


def test_two_of_our_kind(monkeypatch):
    """Two versions of the package in one process, for example."""
    seen = []
    hooks = [PostImport({"wgpu_made_up": marking(seen)}) for _ in range(2)]
    install(monkeypatch, *hooks, Finder(Loader()))
    module = importlib.import_module("wgpu_made_up")
    assert seen == [module, module]
    assert type(module.__spec__.loader) is type(module.__loader__) is Loader


def test_a_loader_of_many_modules_stays_as_it_is(monkeypatch):
    seen = []
    loader = Loader()
    install(monkeypatch, PostImport({"wgpu_made_up": marking(seen)}), Finder(loader))
    module = importlib.import_module("wgpu_made_up")
    other = importlib.import_module("wgpu_made_up_too")
    assert seen == [module]
    assert not hasattr(other, "patched")
    assert vars(loader) == {}
    assert module.__loader__ is module.__spec__.loader is loader
    # Until the module runs, the loader has the attributes of the module's own loader.
    del sys.modules["wgpu_made_up"]
    assert importlib.util.find_spec("wgpu_made_up").loader.extra() == "extra"


def test_a_module_that_is_reloaded_or_imported_again_is_patched_again(monkeypatch):
    seen = []
    install(monkeypatch, PostImport({"wgpu_made_up": marking(seen)}), Finder(Loader()))
    module = importlib.import_module("wgpu_made_up")
    module.patched = False
    assert importlib.reload(module) is module
    assert module.patched
    del sys.modules["wgpu_made_up"]
    again = importlib.import_module("wgpu_made_up")
    assert again is not module
    assert again.patched
    assert seen == [module, module, again]
    importlib.import_module("wgpu_made_up")
    assert len(seen) == 3


def test_a_module_in_the_place_of_another_is_patched(monkeypatch):
    """TensorFlow's C++ modules replace themselves by the library that holds them."""
    real = types.ModuleType("wgpu_made_up_real")
    real.executed = True

    class Replacing(Loader):
        def exec_module(self, module):
            sys.modules[module.__name__] = real

    seen = []
    install(monkeypatch, PostImport({"wgpu_made_up": marking(seen)}), Finder(Replacing()))
    assert importlib.import_module("wgpu_made_up") is real
    assert seen == [real]


def test_imports_of_many_threads(monkeypatch):
    seen = []
    names = [f"wgpu_made_up{i}" for i in range(8)]
    ours = PostImport(dict.fromkeys(names, marking(seen)))
    install(monkeypatch, ours, AsksAllOthers([]), Finder(Loader()))
    threads = [
        threading.Thread(target=lambda: [importlib.import_module(name) for name in names])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(module.__name__ for module in seen) == names


class Base:
    """A class that modules share."""

    inherited = "kept"


def broken(patch):
    """A module, and its state after a patch that fails at its end."""

    class Local(Base):
        """A class of the module."""

        __slots__ = ("slot",)
        made = classmethod(lambda cls: cls)
        value = property(lambda self: 1)

        def __new__(cls):
            return super().__new__(cls)

        def call(self):
            return "kept"

    def fail(module):
        patch(module.Local)
        module.kept = 2
        module.added = 3
        del module.deleted
        raise AttributeError("renamed")

    module = types.ModuleType("made_up")
    vars(module).update(kept=1, deleted=4, Local=Local, Alias=Local, Base=Base)
    before, of_class, of_base = dict(vars(module)), dict(vars(Local)), dict(vars(Base))
    PostImport({"made_up": fail}).patch("made_up", module)
    assert vars(module) == before
    assert dict(vars(Local)) == of_class
    assert dict(vars(Base)) == of_base
    return Local


def test_a_patch_that_fails_half_way_leaves_classes_as_they_were(caplog):
    def patch(cls):
        cls.call = lambda self: "changed"
        cls.inherited = "changed"
        cls.made = staticmethod(lambda: None)
        cls.value = property(lambda self: 2)
        cls.__new__ = lambda cls: object.__new__(cls)
        cls.__init__ = lambda self: None
        Base.inherited = "changed"

    Local = broken(patch)
    assert Local().call() == Local.inherited == "kept"
    assert Local.made() is Local
    assert Local().value == 1
    assert "AttributeError: renamed" in caplog.text


def test_a_patch_that_fails_after_it_deleted_a_method():
    def patch(cls):
        del cls.call
        cls.call = lambda self: "changed"
        del cls.call

    assert broken(patch)().call() == "kept"
