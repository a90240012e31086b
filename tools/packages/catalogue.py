"""The packages that are run: packages by other authors, with the tests in their own wheels and
source distributions, and our own programs on libraries whose tests are not published.

A row contains everything about a package. `environments.py` makes its environment; `runs.py` runs a
file.
"""

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent


class Package(NamedTuple):
    """A package and its test files."""

    name: str
    #: Packages installed with their dependencies, all pinned.
    requires: tuple[str, ...]
    #: Packages installed without dependencies: they pin another TensorFlow.
    alone: tuple[str, ...] = ()
    #: The source distribution that holds the tests. Without it the tests are in the wheel of
    #: `alone` or `requires`, and `files` are relative to `site-packages`.
    source: str | None = None
    #: A folder of the source distribution that lacks its `__init__.py`. Without that file the
    #: folder below it would be imported by the package's own name.
    parent: str | None = None
    #: Patterns of files.
    files: tuple[str, ...] = ()
    #: Parts of paths that are left out, for the reason in `why`.
    without: tuple[str, ...] = ()
    why: str = ""
    #: Cases that fail on WGPU alone, and why that is no fault of WGPU. The page lists them.
    reasons: tuple[tuple[str, str], ...] = ()
    #: An expression for `pytest -k`.
    select: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    #: The files of the sample for CI.
    sample: tuple[str, ...] = ()
    #: The cases of the sample, for `pytest -k`.
    sample_select: str = ""
    #: Whether the files are our own programs: the CPU runs first and stores the values with which
    #: WGPU is compared.
    programs: bool = False


LEGACY = ("TF_USE_LEGACY_KERAS", "1")

PACKAGES = [
    Package(
        "dm-sonnet",
        requires=("dm-sonnet==2.0.2", "dm-tree==0.1.10", "tabulate==0.10.0"),
        files=("sonnet/**/*_test.py",),
        without=("distribute/", "conformance/distribute"),
        why="several processes, or replicas by `tf.config.set_logical_device_configuration`",
        sample=("sonnet/src/batch_norm_test.py",),
    ),
    Package(
        "tensorly",
        requires=("tensorly==0.10.0", "scipy==1.17.1"),
        source="tensorly==0.10.0",
        files=("tensorly/**/test_*.py",),
        without=("contrib/sparse", "datasets/"),
        why="another backend; downloads",
        environment=(("TENSORLY_BACKEND", "tensorflow"),),
        sample=("tensorly/tenalg/tests/test_khatri_rao.py",),
    ),
    Package(
        "tf-models-official",
        requires=(
            "tensorflow-text==2.21.0",
            "tf-slim==1.1.0",
            "gin-config==0.5.0",
            "tensorflow-hub==0.16.1",
            "tensorflow-model-optimization==0.8.1",
            "tensorflow-datasets==4.9.10",
            "opencv-python-headless==5.0.0.93",
            "pycocotools==2.0.11",
            "seqeval==1.2.2",
            "sentencepiece==0.2.3",
            "sacrebleu==2.6.0",
            "immutabledict==4.3.1",
            "psutil==7.2.2",
            "pandas==3.1.1",
            "scipy==1.17.1",
            "pyyaml==6.0.4",
            "six==1.17.0",
        ),
        alone=("tf-models-official==2.20.0",),
        files=(
            "official/nlp/modeling/**/*_test.py",
            "official/vision/modeling/**/*_test.py",
            "official/vision/losses/*_test.py",
            "official/vision/ops/*_test.py",
            "official/modeling/**/*_test.py",
            "official/projects/**/*_test.py",
            "official/recommendation/**/*_test.py",
        ),
        without=("distribut", "tpu"),
        why="several processes; TPUs",
        reasons=(
            (
                "NNBlocksTest::test_hourglass_block",
                "it enlarges an image to 268 MB, more than the software adapter lets a shader bind "
                "(128 MiB), and ResizeNearestNeighbor does not cut its result into windows. The "
                "drivers of GPUs allow 2 GB and more. It needs `--case 2400` to come so far.",
            ),
        ),
        environment=(LEGACY,),
    ),
    Package(
        "tensorflow-gnn",
        requires=("ml-collections==1.1.0", "networkx==3.6.1", "pyarrow==26.0.1", "pandas==3.1.1"),
        alone=("tensorflow-gnn==1.0.3",),
        files=("tensorflow_gnn/**/*_test.py",),
        without=("runner/", "experimental/sampler", "data/", "tools/", "sampler/"),
        why="need Apache Beam and Google Vizier, and compute nothing on a device",
        environment=(LEGACY,),
    ),
    Package(
        "gpflow",
        requires=(
            "check_shapes==1.1.1",
            "deprecated==1.3.1",
            "multipledispatch==1.0.0",
            "scipy==1.17.1",
            "tabulate==0.10.0",
            "typing_extensions==4.16.0",
            "tensorflow-probability==0.25.0",
            "dm-tree==0.1.10",
            "decorator==5.3.1",
            "cloudpickle==3.1.3",
            "gast==0.7.0",
        ),
        alone=("gpflow==2.11.2",),
        source="gpflow==2.11.2",
        parent="tests",
        files=("tests/gpflow/**/test_*.py",),
        without=("docs", "test_notebooks"),
        why="notebooks",
        environment=(LEGACY,),
    ),
    Package(
        "tf-agents",
        requires=(
            "cloudpickle==3.1.3",
            "gin-config==0.5.0",
            "pillow==13.0.0",
            "six==1.17.0",
            "tensorflow-probability==0.25.0",
            "scipy==1.17.1",
            "mock==5.2.0",
            "pygame==2.6.1",
        ),
        alone=("gym==0.23.0", "gym_notices==0.1.0", "tf-agents==0.19.0"),
        files=("tf_agents/**/*_test.py",),
        without=("reverb", "examples/", "distribut", "train/", "environments/", "specs/"),
        why="Reverb, several processes, or nothing on a device",
        reasons=(
            (
                "FalconRewardPredictionPolicyTest::testMaxExplorationProbabilityHintAmbiguousRewards",
                "it wants 300 of 1,000 draws of an event whose probability is 0.32. About one seed "
                "in twelve draws fewer, on the CPU, too. `tf.random.categorical` draws other "
                "numbers on GPUs than on the CPU, and WGPU draws those of GPUs.",
            ),
            (
                "PolicySaverTest::testSaveAction",
                "the four cases of this name that take no input function compare actions that are "
                "drawn on the device with those that TFLite's interpreter draws on the CPU. Where "
                "TensorFlow sees a GPU of its own, the test leaves that comparison out. GPUs draw "
                "other numbers than the CPU.",
            ),
        ),
        environment=(LEGACY,),
    ),
    Package(
        "keras-cv-attention-models",
        requires=("keras-cv-attention-models==1.4.3",),
        source="keras-cv-attention-models==1.4.3",
        files=("tests/test_layers.py",),
        environment=(LEGACY,),
    ),
    Package(
        "vision networks",
        requires=("keras-cv-attention-models==1.4.3",),
        files=("vision_networks_test.py",),
        # With oneDNN, TensorFlow's CPU aborts the softmax in HaloNet's and VOLO's attention.
        environment=(LEGACY, ("TF_ENABLE_ONEDNN_OPTS", "0")),
        programs=True,
    ),
    Package(
        "keras-hub",
        requires=("keras-hub==0.32.0", "tensorflow-text==2.21.0", "pyyaml==6.0.4"),
        files=("keras_hub_*_test.py",),
        programs=True,
    ),
    Package(
        "microscopy",
        requires=(
            "stardist==0.9.2",
            "csbdeep==0.8.2",
            "tifffile==2026.3.3",
            "pillow==13.0.0",
            "ruamel.yaml==0.19.1",
        ),
        alone=("n2v==0.3.3",),
        files=("microscopy_test.py",),
        environment=(LEGACY,),
        programs=True,
    ),
    Package(
        "random networks",
        requires=(),
        files=("random_networks_test.py",),
        sample=("random_networks_test.py",),
        sample_select="seed0000 or seed0002 or seed0006 or seed0007 or seed0009",
        programs=True,
    ),
]
