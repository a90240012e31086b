// y = old OPERATOR delta, element by element; y may be old. Integers wrap around; half and bfloat16
// are computed in f32 and rounded once. Grid: Shader::map.

fn value(i: u32) -> {{VALUE}} {
    return load_old(i) {{OPERATOR}} load_delta(i);
}
