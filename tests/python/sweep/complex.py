"""Complex numbers: the ops that exist only for them."""

from .core import case


@case("Angle", "Conj", "Imag", "Real", tol={"complex64": (1e-5, 1e-6), "float32": (1e-5, 1e-6)})
def parts(t):
    attributes = {} if t.op == "Conj" else {"Tout": t["Tout"]}
    for shape in [(3, 7), (2, 0), ()]:
        yield dict(input=t.normal("T", shape), **attributes)


@case("ComplexAbs")
def complex_abs(t):
    for shape in [(3, 7), (2, 0), ()]:
        yield dict(x=t.normal("T", shape), Tout=t["Tout"])


@case("Complex")
def from_parts(t):
    for real, imag in [((3, 7), (3, 7)), ((3, 1), (7,)), ((2, 0), ()), ((), ())]:
        yield dict(real=t.normal("T", real), imag=t.normal("T", imag), Tout=t["Tout"])
