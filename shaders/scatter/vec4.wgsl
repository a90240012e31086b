// The tensors in vec4s, which rows, columns and offsets then count.

fn load_updates(t: u32) -> {{VALUE}} {
    return read_updates(t);
}

fn load_dst(t: u32) -> {{VALUE}} {
    return read_dst(t);
}

fn store_dst(t: u32, v: {{VALUE}}) {
    write_dst(t, v, 4u);
}
