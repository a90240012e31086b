"""PyTorch on a CUDA GPU: cuBLAS and cuDNN in float32, without TF32."""

from __future__ import annotations

from collections.abc import Callable

from rows import measure, tell

try:
    import torch
except ImportError:
    tell(refused="needs PyTorch with CUDA: python -m pip install torch")
    raise SystemExit(0) from None
if not torch.cuda.is_available():
    tell(refused=f"PyTorch {torch.__version__} sees no CUDA GPU")
    raise SystemExit(0)

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cudnn.allow_tf32 = False
functional = torch.nn.functional


def of(function: Callable, *shapes: list[int], repeat: int = 1) -> Callable[[], Callable[[int], None]]:
    """The maker of a row that calls a function on random tensors."""

    def make() -> Callable[[int], None]:
        inputs = [torch.randn(shape, device="cuda") for shape in shapes]

        def run(times: int) -> None:
            for _ in range(times * repeat):
                function(*inputs)
            torch.cuda.synchronize()

        return run

    return make


def channels_last(padding: int) -> Callable:
    """A convolution in TensorFlow's layout."""

    def conv(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        # Views, no copies: the memory is that of NHWC.
        return functional.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=padding)

    return conv


tell(about=f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
with torch.no_grad():
    measure(
        {
            "matmul": of(torch.matmul, [1024, 1024], [1024, 1024]),
            "conv3": of(channels_last(1), [8, 56, 56, 64], [64, 3, 3, 64]),
            "conv1": of(channels_last(0), [8, 14, 14, 256], [1024, 1, 1, 256]),
            "add": of(torch.add, [16 << 20], [16 << 20]),
            "gelu": of(lambda x: functional.gelu(x, approximate="tanh"), [16 << 20]),
            "softmax": of(lambda x: torch.softmax(x, -1), [4096, 1024]),
            "sum_last": of(lambda x: torch.sum(x, 1), [4096, 4096]),
            "sum_first": of(lambda x: torch.sum(x, 0), [4096, 4096]),
            "layer_norm": of(
                lambda x, w, b: functional.layer_norm(x, [1024], w, b, 1e-3), [4096, 1024], [1024], [1024]
            ),
            "small": of(torch.add, [64], [64], repeat=1000),
        }
    )
