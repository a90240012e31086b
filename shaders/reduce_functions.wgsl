// The functions of the reduction's row, which all reduction programs share. MAP, COMBINE and FINISH
// come from the row; p.total is the number of elements behind each final value.

alias Accumulator = {{ACCUMULATOR}};
alias Output = {{OUTPUT}};

fn identity() -> Accumulator {
    return {{IDENTITY}};
}

{{ORDER}}

fn map_element(x: {{INPUT}}) -> Accumulator {
    return {{MAP}};
}

fn combine(a: Accumulator, b: Accumulator) -> Accumulator {
    return {{COMBINE}};
}

fn finish(a: Accumulator) -> Output {
    let count = {{COUNT}}(p.total);
    return {{FINISH}};
}
