"""PyTorch on CUDA: cuBLAS and cuDNN in float32, without TF32; float16 sums in float32."""

from __future__ import annotations

from collections.abc import Callable

from rows import Run, serve, tell

try:
    import torch
except ImportError:
    tell(refused="needs PyTorch with CUDA: python -m pip install torch")
    raise SystemExit(0) from None
if not torch.cuda.is_available():
    tell(refused=f"PyTorch {torch.__version__} sees no CUDA GPU")
    raise SystemExit(0)

torch.backends.cuda.matmul.allow_tf32 = False
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
torch.backends.cudnn.allow_tf32 = False
functional, gradients = torch.nn.functional, torch.nn.grad


def of(
    function: Callable, *shapes: list[int], repeat: int = 1, dtype: torch.dtype = torch.float32
) -> Callable[[], Run]:
    """The maker of a row that calls a function on random tensors."""

    def make() -> Run:
        inputs = [torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes]

        def run(times: int) -> None:
            for _ in range(times * repeat):
                function(*inputs)
            torch.cuda.synchronize()

        return run

    return make


def channels_last(t: torch.Tensor) -> torch.Tensor:
    """A view of TensorFlow's layout, without a copy."""
    return t.permute(0, 3, 1, 2)


def convolutions(key: str, x: list[int], w: list[int]) -> dict[str, Callable[[], Run]]:
    """A convolution of stride 1 and its gradients."""
    pad, y = w[1] // 2, [*x[:3], w[0]]
    nchw, oihw = [x[0], x[3], x[1], x[2]], [w[0], w[3], w[1], w[2]]
    view = channels_last
    return {
        key: of(lambda x, w: functional.conv2d(view(x), view(w), padding=pad), x, w),
        f"{key}_x": of(
            lambda w, y: gradients.conv2d_input(nchw, view(w), view(y), padding=pad), w, y
        ),
        f"{key}_w": of(
            lambda x, y: gradients.conv2d_weight(view(x), oihw, view(y), padding=pad), x, y
        ),
    }


tell(about=f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
with torch.no_grad():
    serve(
        {
            "matmul": of(torch.matmul, [1024, 1024], [1024, 1024]),
            "matmul_large": of(torch.matmul, [4096, 4096], [4096, 4096]),
            "matmul_half": of(torch.matmul, [4096, 4096], [4096, 4096], dtype=torch.float16),
            **convolutions("conv3", [8, 56, 56, 64], [64, 3, 3, 64]),
            **convolutions("conv1", [8, 14, 14, 256], [1024, 1, 1, 256]),
            "add": of(torch.add, [16 << 20], [16 << 20]),
            "gelu": of(lambda x: functional.gelu(x, approximate="tanh"), [16 << 20]),
            "softmax": of(lambda x: torch.softmax(x, -1), [4096, 1024]),
            "sum_last": of(lambda x: torch.sum(x, 1), [4096, 4096]),
            "sum_first": of(lambda x: torch.sum(x, 0), [4096, 4096]),
            "layer_norm": of(
                lambda x, w, b: functional.layer_norm(x, [1024], w, b, 1e-3),
                [4096, 1024],
                [1024],
                [1024],
            ),
            "transpose": of(lambda x: x.t().contiguous(), [4096, 4096]),
            "max_pool": of(
                lambda x: functional.max_pool2d(channels_last(x), 3, 2, 1), [8, 112, 112, 64]
            ),
            "small": of(torch.add, [64], [64], repeat=1000),
        }
    )
